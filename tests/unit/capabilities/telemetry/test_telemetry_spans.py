"""Spans and metrics of a run, by the GenAI conventions; names are a contract with dashboards."""

import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Cancellation,
    ConfigurationError,
    ErrorPolicy,
    ModelError,
    ModelSettings,
    Usage,
    UseTelemetry,
    make_hook,
)
from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.span_links import link_to
from stepwell.errors import ModelErrorKind
from stepwell.testing import MockTool, ScriptedModel, call
from tests.unit.capabilities.telemetry.recording import Recorded

USAGE = Usage(
    input_tokens=100, output_tokens=20, cached_tokens=60, cache_write_tokens=5, reasoning_tokens=7
)


def agent_of(recorded: Recorded, turns: Any, **parts: Any) -> Agent:
    model = ScriptedModel(turns, name="gemini:gemini-3-pro", usage=USAGE)
    tools = [MockTool.returning("look", "hello")]
    given = {"tools": tools, "capabilities": [recorded.capability()], "max_retries": 3, **parts}
    return Agent(model, **given)


async def test_a_run_is_an_agent_span_around_its_turns_and_tools() -> None:
    recorded = Recorded()
    agent = agent_of(recorded, [call("look", id="c1", path="a"), "Done."])
    with recorded.tracer.start_as_current_span("request"):
        await agent.run("Look")
    assert recorded.names == [
        "request",
        "invoke_agent helper",
        "chat gemini-3-pro",
        "execute_tool look",
        "chat gemini-3-pro",
    ]
    assert recorded.parents() == {
        ("request", None),
        ("invoke_agent helper", "request"),
        ("chat gemini-3-pro", "invoke_agent helper"),
        ("execute_tool look", "invoke_agent helper"),
    }
    kinds = {span.name: span.kind for span in recorded.spans}
    assert kinds["chat gemini-3-pro"] is SpanKind.CLIENT
    assert kinds["execute_tool look"] is kinds["invoke_agent helper"] is SpanKind.INTERNAL
    assert not recorded.opened.open


async def test_the_attributes_of_each_span() -> None:
    recorded = Recorded()
    agent = agent_of(
        recorded,
        [call("look", id="c1", path="a"), "Done."],
        settings=ModelSettings(temperature=0.5, max_tokens=99, seed=3, top_p=0.9),
    )
    state = await agent.run("Look")
    assert state.execution is not None
    ids = {"gen_ai.agent.id": state.agent_id, "stepwell.execution.id": state.execution.id}
    shared = {**ids, "gen_ai.agent.name": "helper"}
    chat = dict(recorded.spans[1].attributes or {})
    assert chat == {
        **shared,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-3-pro",
        "gen_ai.response.model": "gemini-3-pro",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 99,
        "gen_ai.request.seed": 3,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_write.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 7,
        "stepwell.step.number": 1,
    }
    assert recorded.told("execute_tool look") == {
        **shared,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "c1",
        "stepwell.step.number": 1,
        "stepwell.tool.outcome": "completed",
    }
    assert recorded.told("invoke_agent helper") == {
        **shared,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-3-pro",
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 120,
        "gen_ai.usage.cache_write.input_tokens": 10,
        "gen_ai.usage.reasoning.output_tokens": 14,
        "stepwell.decision": "allow_stop",
        "stepwell.decision.resolved_by": "ToolCallPresenceCheck",
        "stepwell.status": "completed",
        "stepwell.step.count": 2,
        "stepwell.stop_reason": "completed",
    }


async def test_every_decision_and_every_vote_of_the_last_one_is_told() -> None:
    recorded = Recorded()
    state = await agent_of(recorded, [call("look")] * 9, max_steps=2).run("Look")
    events = recorded.one("invoke_agent helper").events
    decisions = [dict(it.attributes or {}) for it in events if it.name == "stepwell.decision"]
    assert [(it["stepwell.step.number"], it["stepwell.decision"]) for it in decisions] == [
        (1, "request"),
        (2, "forbid"),
    ]
    assert decisions[1]["stepwell.stop_reason"] == "steps_limit"
    assert "StepsLimit: forbid" in decisions[1]["stepwell.decision.votes"]
    votes = [dict(it.attributes or {}) for it in events if it.name == "stepwell.evaluation"]
    assert state.stop is not None
    told = [it["stepwell.evaluation.criterion"] for it in votes]
    assert told == [vote.criterion for vote in state.stop.evaluations]
    assert votes[0] == {
        "stepwell.evaluation.criterion": "StepsLimit",
        "stepwell.evaluation.decision": "forbid",
        "stepwell.evaluation.number.current": 2,
        "stepwell.evaluation.number.maximum": 2,
        "stepwell.stop_reason": "steps_limit",
    }


async def test_the_metrics_of_a_run() -> None:
    recorded = Recorded()
    tools = [MockTool.returning("look", "hello"), MockTool.raising("burn", ValueError("hot"))]
    turns = [[call("look"), call("burn"), call("made_up_by_the_model")], "Done."]
    await agent_of(recorded, turns, tools=tools).run("Look")
    agent = {"gen_ai.agent.name": "helper"}
    model = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.request.model": "gemini-3-pro",
        "gen_ai.response.model": "gemini-3-pro",
    }
    assert recorded.points("gen_ai.client.token.usage") == [
        ({**model, "gen_ai.token.type": "input"}, 200),
        ({**model, "gen_ai.token.type": "output"}, 40),
    ]
    assert [about for about, _ in recorded.points("gen_ai.client.operation.duration")] == [model]
    calls = {
        (about["gen_ai.tool.name"], about["stepwell.tool.outcome"]): count
        for about, count in recorded.points("stepwell.tool.calls")
    }
    assert calls == {("look", "completed"): 1, ("burn", "raised"): 1, ("_OTHER", "not_found"): 1}
    lasted = [about for about, _ in recorded.points("gen_ai.execute_tool.duration")]
    assert {**agent, "gen_ai.tool.name": "burn", "error.type": "ValueError"} in lasted
    assert len(lasted) == 2  # what never ran took no time
    assert recorded.points("stepwell.agent.steps") == [(agent, 2)]
    assert recorded.points("stepwell.agent.stops") == [
        ({**agent, "stepwell.stop_reason": "completed", "stepwell.status": "completed"}, 1)
    ]
    assert [about for about, _ in recorded.points("gen_ai.invoke_agent.duration")] == [agent]
    assert recorded.boundaries("gen_ai.client.token.usage")[:4] == [1, 4, 16, 64]
    assert recorded.boundaries("gen_ai.client.token.usage")[-1] == 67108864
    assert recorded.boundaries("gen_ai.client.operation.duration")[-1] == pytest.approx(81.92)


async def test_a_turn_that_fails_is_an_error_of_its_kind_and_of_the_run() -> None:
    recorded = Recorded()
    fault = ModelError(
        "the text of it", kind=ModelErrorKind.RATE_LIMIT, usage=Usage(input_tokens=9)
    )
    policy = ErrorPolicy.stop_on_any_error()
    agent = agent_of(recorded, [fault], error_policy=policy, model_retries=0)
    state = await agent.run("Look")
    assert state.status is AgentStatus.FAILED
    chat = recorded.one("chat gemini-3-pro")
    assert (chat.attributes or {})["error.type"] == "rate_limit"
    assert (chat.attributes or {})["gen_ai.usage.input_tokens"] == 9
    assert chat.status.status_code is StatusCode.ERROR
    run = recorded.one("invoke_agent helper")
    assert (run.attributes or {})["error.type"] == "ModelError"
    assert run.status.status_code is StatusCode.ERROR
    assert chat.status.description is run.status.description is None


async def test_calls_that_do_not_run_have_spans_that_say_so() -> None:
    recorded = Recorded()
    block = make_hook("before_tool", lambda it: it.block("no") if it.call.name == "burn" else None)
    tools = [MockTool.returning("look", "x"), MockTool.returning("burn", "x")]
    turns = [[call("burn"), call("nope")], "Done."]
    await agent_of(recorded, turns, tools=tools, hooks=[block]).run("Look")
    assert recorded.told("execute_tool burn")["stepwell.tool.outcome"] == "blocked"
    assert recorded.told("execute_tool nope")["stepwell.tool.outcome"] == "not_found"
    assert recorded.one("execute_tool burn").status.status_code is StatusCode.UNSET


async def test_a_run_that_ends_before_its_first_step_has_a_span() -> None:
    recorded = Recorded()
    cancellation = Cancellation()
    cancellation.request("not needed any more")
    await agent_of(recorded, ["Never."]).run("Look", cancellation=cancellation)
    assert recorded.names == ["invoke_agent helper"]
    told = recorded.told("invoke_agent helper")
    assert (told["stepwell.status"], told["stepwell.step.count"]) == ("cancelled", 0)


async def test_an_agent_without_a_name_is_only_called_an_agent() -> None:
    recorded = Recorded()
    capability = recorded.capability(name=None)
    await agent_of(recorded, ["Done."], capabilities=[capability]).run("Look")
    assert recorded.names[0] == "invoke_agent"
    assert "gen_ai.agent.name" not in recorded.told("invoke_agent")


def test_one_is_enough() -> None:
    recorded = Recorded()
    with pytest.raises(ConfigurationError, match="added twice"):
        agent_of(recorded, [], capabilities=[recorded.capability(), recorded.capability()])


def test_the_names_are_what_dashboards_know() -> None:
    told = {it: word for it, word in vars(names).items() if it.isupper() and isinstance(word, str)}
    known = {value for value in told.values() if value.startswith(("gen_ai.", "stepwell."))}
    assert known == set(KNOWN.split())


KNOWN = """
gen_ai.agent.id gen_ai.agent.name gen_ai.conversation.id gen_ai.operation.name gen_ai.output.type
gen_ai.provider.name gen_ai.request.max_tokens gen_ai.request.model gen_ai.request.seed
gen_ai.request.temperature gen_ai.request.top_p gen_ai.response.finish_reasons gen_ai.response.id
gen_ai.response.model gen_ai.token.type gen_ai.tool.call.id gen_ai.tool.name gen_ai.tool.type
gen_ai.usage.cache_read.input_tokens gen_ai.usage.cache_write.input_tokens
gen_ai.usage.input_tokens gen_ai.usage.output_tokens gen_ai.usage.reasoning.output_tokens
gen_ai.input.messages gen_ai.output.messages gen_ai.system_instructions
gen_ai.tool.call.arguments gen_ai.tool.call.result
stepwell.attempt stepwell.decision stepwell.execution.id stepwell.decision.resolved_by
stepwell.session.id stepwell.status stepwell.step.count stepwell.step.number stepwell.stop_reason
stepwell.tool.outcome stepwell.decision.votes stepwell.evaluation stepwell.evaluation.criterion
stepwell.evaluation.decision stepwell.evaluation.number. stepwell.evaluation.reason
gen_ai.invoke_agent.duration gen_ai.client.operation.duration stepwell.agent.steps
stepwell.agent.stops gen_ai.client.token.usage stepwell.tool.calls gen_ai.execute_tool.duration
stepwell.trace stepwell.inference.retry stepwell.inference.attempt
stepwell.inference.delay_seconds
"""


@pytest.mark.parametrize(
    ("trace_id", "is_linked"), [("a1", True), ("f" * 33, False), ("-1", False), ("0", False)]
)
def test_ids_of_no_span_are_no_link(trace_id: str, is_linked: bool) -> None:
    mark = {"execution_id": "e1", "trace_id": trace_id, "span_id": "b2"}
    state = AgentState.empty().with_metadata({names.TRACE_KEY: mark})
    assert (link_to(state, "e1") is not None) is is_linked


def test_without_an_sdk_nothing_is_recorded_and_nothing_is_kept() -> None:
    capability = UseTelemetry(True, NoOpTracerProvider(), NoOpMeterProvider())
    agent = Agent(ScriptedModel(["Done."]), capabilities=[capability])
    assert agent.run_sync("Look").metadata == {}


def run_python(source: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=True
    ).stdout


def test_nothing_of_opentelemetry_is_loaded_unless_used() -> None:
    said = run_python(
        "import sys, stepwell\n"
        "from stepwell import Agent\n"
        "from stepwell.testing import ScriptedModel\n"
        "Agent(ScriptedModel(['Hi.'])).run_sync('Hello')\n"
        "print(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert said == "False\n"


def test_without_the_package_it_says_what_to_install() -> None:
    said = run_python(
        "import sys\n"
        "sys.modules['opentelemetry'] = None\n"
        "from stepwell import ConfigurationError, UseTelemetry\n"
        "try:\n    UseTelemetry()\nexcept ConfigurationError as error:\n    print(error)"
    )
    assert "pip install 'stepwell[telemetry]'" in said

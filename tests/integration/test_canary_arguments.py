"""A canary secret in arguments that a tool marks secret reaches the tool and nothing else: with
both drivers, over every wire format, through hooks, approvals, subagents and cassettes.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from stepwell import (
    Agent,
    AgentRegistry,
    AgentSpec,
    AgentStatus,
    Approval,
    HookContext,
    InputRequired,
    ToolContext,
    ToolFailure,
    ToolOutput,
    UseApprovals,
    UseSubagents,
    UseSummarization,
    make_hook,
    tool,
)
from stepwell.drivers import ReActDriver
from stepwell.testing import CassetteModel, ScriptedModel, call
from tests.integration.canary import CANARY, Watch, found_in
from tests.servers.aimock_server import Aimock
from tests.servers.record import WIRES
from tests.servers.weather_agent import model_at

Log = pytest.LogCaptureFixture
QUOTED = 'Qz7rVx2mKb"9TpLw4Ns8\\dRf6hJn3gYc5U'
"""Looks different inside of JSON and inside of a repr."""


def tools_for(canary: str) -> tuple[list[Any], list[str]]:
    """Tools that are careless with their secret, and what they were given."""
    given: list[str] = []

    def note(code: SecretStr) -> str:
        given.append(code.get_secret_value())
        assert given[-1] == canary
        return given[-1]

    @tool
    def returns(code: SecretStr) -> ToolOutput:
        """Return it."""
        text = note(code)
        return ToolOutput(value={"said": text, text: [text]}, metadata={"last": f"<{text}>"})

    @tool
    def raises(code: SecretStr) -> str:
        """Raise with it."""
        raise ValueError(f"wrong code {note(code)!r}") from OSError(canary)

    @tool
    def refuses(code: SecretStr) -> ToolFailure:
        """Refuse it."""
        return ToolFailure(f"wrong code {note(code)}", {"code": canary})

    @tool
    def asks(code: SecretStr) -> InputRequired:
        """Ask about it."""
        return InputRequired(prompt=f"Really {note(code)}?", details={"code": canary})

    @tool
    def keeps(code: SecretStr, context: ToolContext) -> Any:
        """Ask, and keep it for later."""
        return InputRequired(
            prompt="Really?", resumes=True, kept={"code": note(code), "list": [canary]}
        )

    @tool
    def progresses(code: SecretStr, context: ToolContext) -> str:
        """Tell about it on the way."""
        context.progress(f"trying {note(code)}", 0.5)
        return "done"

    return [returns, raises, refuses, asks, keeps, progresses], given


def agent_calling(kind: str, name: str, canary: str, **settings: Any) -> Agent:
    """An agent whose model calls this tool with the canary, by itself or as a decision."""
    if kind == "native":
        turns: list[Any] = [call(name, id="c1", code=canary), "Done."]
        return Agent(ScriptedModel(turns), **settings)
    asked = {"thought": "?", "type": "call_tool", "tool": name, "args": {"code": canary}}
    last = {"thought": "", "type": "final_answer", "answer": "Done."}
    return Agent(driver=ReActDriver(ScriptedModel(map(json.dumps, [asked, last]))), **settings)


def cases() -> Iterator[Any]:
    for name in ("returns", "raises", "refuses", "asks", "keeps", "progresses"):
        for form, canary in (("plain", CANARY), ("quoted", QUOTED)):
            yield pytest.param(name, canary, id=f"{name}-{form}")


@pytest.mark.parametrize("kind", ["native", "react"])
@pytest.mark.parametrize(("name", "canary"), [*cases()])
async def test_a_careless_tool_lets_its_secret_out_nowhere(
    name: str, kind: str, canary: str, caplog: Log
) -> None:
    tools, given = tools_for(canary)
    watch = Watch(agent_calling(kind, name, canary, tools=tools, max_retries=3), caplog)
    await watch.stream()

    assert given == [canary]
    assert "[secret]" in repr(watch.states[-1].messages)
    assert watch.leaks(canary) == []


def blocking(context: HookContext) -> HookContext:
    assert context.call is not None
    return context.block(f"{context.call.arguments['code']} is too weak")


def raising(context: HookContext) -> None:
    assert context.call is not None
    raise ValueError(f"can't check {context.call.arguments['code']}")


def substituting(context: HookContext) -> HookContext:
    assert context.call is not None
    return context.with_result(f"tried {context.call.arguments['code']}")


@pytest.mark.parametrize(
    ("trigger", "hook"),
    [
        pytest.param("before_tool", blocking, id="blocking"),
        pytest.param("before_tool", raising, id="raising"),
        pytest.param("before_tool", substituting, id="substituting"),
        pytest.param("after_tool", raising, id="raising-after"),
        pytest.param("after_tool", substituting, id="substituting-after"),
    ],
)
async def test_what_a_hook_says_of_a_call_holds_no_secret(
    trigger: str, hook: Callable[[HookContext], Any], caplog: Log
) -> None:
    tools, _ = tools_for(CANARY)
    hooks = [make_hook(trigger, hook)]
    watch = Watch(agent_calling("native", "returns", CANARY, tools=tools, hooks=hooks), caplog)
    state = await watch.run()

    assert state.steps[0].step.tool_executions[0].call.name == "returns"
    assert watch.leaks() == []


@pytest.mark.parametrize("nested", [False, True], ids=["own", "subagent"])
async def test_a_secret_given_with_an_approval_is_gone_when_the_call_has_run(
    nested: bool, caplog: Log
) -> None:
    tools, given = tools_for(CANARY)
    asked = call("returns", id="c1", code=CANARY)
    spawn = call("spawn_subagent", id="s1", subagent="helper", prompt="Try the code.")
    script = [spawn, asked, "Tried.", "Done."] if nested else [asked, "Done."]
    helper = AgentSpec(name="helper", description="Helps.", system_prompt="You help.")
    agent = Agent(
        ScriptedModel(script),
        tools=tools,
        capabilities=[UseApprovals("returns"), UseSubagents(AgentRegistry([helper]))],
    )
    watch = Watch(agent, caplog)
    paused = await watch.run()
    assert watch.leaks() == []

    # The person's answer is in the state until the run goes on: it has to reach the tool.
    answered = paused.with_answer(paused.pending[0], Approval.edited({"code": CANARY}))
    state = await watch.run(answered)

    assert given == [CANARY]
    assert state.status is AgentStatus.COMPLETED
    assert found_in(answered)
    assert watch.leaks() == []


async def test_a_summary_of_what_was_done_holds_no_secret(caplog: Log) -> None:
    tools, given = tools_for(CANARY)
    seen: list[str] = []

    def summed_up(request: Any) -> str:
        seen.extend(message.text for message in request.messages)
        return f"So far: {seen[-1]}"

    script = [*(call("returns", code=CANARY) for _ in range(12)), "Done."]
    summarizing = UseSummarization(max_tokens=300, keep_messages=2, model=ScriptedModel(summed_up))
    agent = Agent(ScriptedModel(script), tools=tools, capabilities=[summarizing], max_steps=30)
    watch = Watch(agent, caplog)
    state = await watch.run("Try the code. " * 60)

    assert state.status is AgentStatus.COMPLETED
    assert len(given) == 12
    assert seen
    assert found_in(seen) == []
    assert watch.leaks() == []


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("wire", WIRES)
async def test_no_wire_format_keeps_a_secret_argument(
    wire: str, streamed: bool, aimock: Aimock, caplog: Log
) -> None:
    asked = {"id": "call_code", "name": "returns", "arguments": {"code": CANARY}}
    aimock.load(
        {
            "match": {"userMessage": "Try the code", "hasToolResult": True},
            "response": {"content": "Done."},
        },
        {"match": {"userMessage": "Try the code"}, "response": {"toolCalls": [asked]}},
    )
    tools, given = tools_for(CANARY)
    watch = Watch(Agent(model_at(aimock.base_url(wire), wire), tools=tools), caplog)
    state = await (watch.stream if streamed else watch.run)("Try the code")

    assert state.final_response == "Done."
    assert given == [CANARY]
    assert watch.leaks() == []
    # Nor is it sent again.
    assert found_in(aimock.journal()[-1]["body"]) == []


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
async def test_a_cassette_does_not_record_secret_arguments(
    streamed: bool, tmp_path: Path, caplog: Log
) -> None:
    tools, given = tools_for(CANARY)
    path = tmp_path / "cassette.json"
    script = ScriptedModel([call("returns", id="c1", code=CANARY), "Done."])
    watch = Watch(Agent(CassetteModel(path, script, mode="record"), tools=tools), caplog)
    await (watch.stream if streamed else watch.run)()

    assert given == [CANARY]
    assert watch.leaks() == []
    recorded = path.read_text(encoding="utf-8")
    assert len(json.loads(recorded)["turns"]) == 2
    assert found_in(recorded) == []


async def test_a_cassette_does_not_record_secrets_it_is_told(tmp_path: Path) -> None:
    tools, given = tools_for(CANARY)
    path = tmp_path / "cassette.json"
    script = ScriptedModel([call("returns", id="c1", code=CANARY), "Done."])
    model = CassetteModel(path, script, mode="record", secrets=[CANARY])
    await Agent(model, tools=tools).run("Go")

    assert given == [CANARY]
    assert found_in(path.read_text(encoding="utf-8")) == []

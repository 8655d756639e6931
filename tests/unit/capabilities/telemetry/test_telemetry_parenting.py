"""What runs inside a call is traced inside its span, whatever task or thread it runs in; and every
span ends, however the run does."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor

from stepwell import (
    Agent,
    AgentStatus,
    Approval,
    Cancellation,
    Message,
    ModelRequest,
    ModelResponse,
    TextDelta,
    UseApprovals,
    UseSelfCritique,
    UseSubagents,
    make_hook,
    tool,
)
from stepwell.messages import FinishReason
from stepwell.models import ResponseEnd, StreamPart
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import MockTool, ScriptedModel, call
from tests.answers import answer_call
from tests.unit.capabilities.telemetry.recording import Recorded


def current() -> str:
    return getattr(trace.get_current_span(), "name", "none")


class HttpModel:
    """Traces its request, as an instrumented HTTP client would."""

    name = "acme:large"

    def __init__(self, recorded: Recorded, turns: list[Any]) -> None:
        self._tracer = recorded.tracer
        self._inner = ScriptedModel(turns)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        with self._tracer.start_as_current_span("POST"):
            await asyncio.sleep(0)
            return await self._inner.respond(request)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        with self._tracer.start_as_current_span("POST"):
            response = await self._inner.respond(request)
        yield TextDelta(response.text)
        await asyncio.sleep(0)
        yield ResponseEnd(response)


@pytest.mark.parametrize("streams", [False, True])
async def test_what_http_clients_trace_is_inside_the_turn(streams: bool) -> None:
    recorded = Recorded()
    agent = Agent(HttpModel(recorded, ["Hi."]), capabilities=[recorded.capability()])
    if streams:
        _ = [part async for part in agent.stream("Hello")]
    else:
        await agent.run("Hello")
    assert recorded.parents() == {
        ("invoke_agent helper", None),
        ("chat large", "invoke_agent helper"),
        ("POST", "chat large"),
    }


async def test_parallel_tools_in_threads_and_tasks_have_their_own_spans_inside() -> None:
    recorded = Recorded()
    together = threading.Barrier(3, timeout=90)

    def in_thread(name: str) -> str:
        """Runs in a thread."""
        with recorded.tracer.start_as_current_span(f"inside {name}"):
            together.wait()
        return current()

    async def in_task(name: str) -> str:
        """Runs in a task."""
        with recorded.tracer.start_as_current_span(f"inside {name}"):
            await asyncio.to_thread(together.wait)
        return current()

    calls = [call("in_thread", name="a"), call("in_thread", name="b"), call("in_task", name="c")]
    agent = Agent(
        ScriptedModel([calls, "Done."]),
        tools=[in_thread, in_task],
        capabilities=[recorded.capability()],
    )
    await agent.run("Go")
    by_id = {span.context.span_id: span for span in recorded.spans if span.context}
    inside = {span.name: span.parent for span in recorded.spans if span.name.startswith("inside")}
    owners = {name: by_id[parent.span_id] for name, parent in inside.items() if parent}
    assert [owners[f"inside {name}"].name for name in "abc"] == [
        "execute_tool in_thread",
        "execute_tool in_thread",
        "execute_tool in_task",
    ]
    assert len({span.context.span_id for span in owners.values() if span.context}) == 3


async def test_a_subagent_is_an_agent_span_inside_the_call_that_runs_it() -> None:
    recorded = Recorded()

    def turn(request: ModelRequest) -> Any:
        who = request.context.messages[-1].text
        said = sum(message.is_assistant() for message in request.messages)
        spawn = call("spawn_subagent", subagent="critic", prompt="Judge")
        turns = {"main": [spawn, "Done."], "critic": [call("look"), "Good."]}
        return turns[who][said]

    def look() -> str:
        """Look."""
        return current()

    critic = AgentSpec(name="critic", description="Judges.", system_prompt="critic")
    agent = Agent(
        ScriptedModel(turn),
        tools=[look],
        system_prompt="main",
        capabilities=[UseSubagents(AgentRegistry([critic])), recorded.capability()],
    )
    await agent.run("Go")
    assert recorded.parents() == {
        ("invoke_agent helper", None),
        ("chat scripted", "invoke_agent helper"),
        ("execute_tool spawn_subagent", "invoke_agent helper"),
        ("invoke_agent critic", "execute_tool spawn_subagent"),
        ("chat scripted", "invoke_agent critic"),
        ("execute_tool look", "invoke_agent critic"),
    }
    assert not recorded.opened.open


async def test_a_hook_that_asks_a_model_does_so_inside_the_run() -> None:
    recorded = Recorded()
    seen: list[str] = []

    async def look(_context: Any) -> None:
        seen.append(current())

    critic = ScriptedModel(['{"approved": true, "feedback": ""}'], name="acme:critic")
    agent = Agent(
        ScriptedModel(["Done."]),
        hooks=[make_hook("after_step", look)],
        capabilities=[recorded.capability(), UseSelfCritique(model=critic)],
    )
    await agent.run("Go")
    assert seen == ["invoke_agent helper"]
    assert ("chat critic", "invoke_agent helper") in recorded.parents()


async def test_who_reads_a_run_is_never_inside_its_spans() -> None:
    recorded = Recorded()
    turns = [call("look"), call("look"), "Done."]
    agent = Agent(
        ScriptedModel(turns),
        tools=[MockTool.returning("look", "x")],
        capabilities=[recorded.capability()],
    )
    seen = [current() async for _ in agent.iterator("Go")]
    assert set(seen) == {"none"}


async def test_a_run_that_is_left_half_way_leaves_no_span_open() -> None:
    recorded = Recorded()
    agent = Agent(
        ScriptedModel([call("look"), call("look"), "Done."]),
        tools=[MockTool.returning("look", "x")],
        capabilities=[recorded.capability(content=True)],
    )
    states = agent.iterator("Go")
    await anext(states)
    assert recorded.opened.open
    await states.aclose()  # type: ignore[attr-defined]
    assert not recorded.opened.open
    assert recorded.told("invoke_agent helper")["stepwell.status"] == "in_progress"


async def test_a_stream_that_is_left_half_way_leaves_no_span_open() -> None:
    recorded = Recorded()
    agent = Agent(HttpModel(recorded, ["Hi."]), capabilities=[recorded.capability(content=True)])
    parts = agent.stream("Hello")
    assert isinstance(await anext(parts), TextDelta)
    await parts.aclose()  # type: ignore[attr-defined]
    assert not recorded.opened.open
    assert recorded.told("invoke_agent helper")["stepwell.status"] == "cancelled"
    assert recorded.told("chat large")["error.type"] == "cancelled"


async def waits(started: asyncio.Event) -> None:
    started.set()
    await asyncio.sleep(60)


@pytest.mark.parametrize("how", ["cancellation", "task"])
async def test_a_cancelled_run_ends_the_spans_of_what_was_running(how: str) -> None:
    recorded, started, cancellation = Recorded(), asyncio.Event(), Cancellation()

    async def slow() -> None:
        """Wait."""
        await waits(started)

    agent = Agent(
        ScriptedModel([[call("slow"), call("slow")], "Done."]),
        tools=[slow],
        capabilities=[recorded.capability()],
    )
    run = asyncio.create_task(agent.run("Go", cancellation=cancellation))
    await started.wait()
    if how == "task":
        run.cancel()
    else:
        cancellation.request("enough")
    await asyncio.wait([run])
    assert recorded.names.count("execute_tool slow") == 2
    assert not recorded.opened.open
    told = recorded.told("invoke_agent helper")
    assert (told["stepwell.status"], told["stepwell.stop_reason"]) == (
        "cancelled",
        "user_requested",
    )


async def test_a_tool_that_takes_too_long_timed_out() -> None:
    recorded = Recorded()

    async def slow() -> None:
        """Wait."""
        await asyncio.sleep(60)

    agent = Agent(
        ScriptedModel([call("slow"), "Done."]),
        tools=[tool(timeout=0.01)(slow)],
        capabilities=[recorded.capability()],
        max_retries=1,
    )
    await agent.run("Go")
    assert recorded.told("execute_tool slow")["error.type"] == "timeout"


async def test_a_resumed_run_is_a_new_span_with_a_link_to_the_one_before() -> None:
    recorded = Recorded()
    agent = Agent(
        ScriptedModel([call("look", id="c1"), "Done."]),
        tools=[MockTool.returning("look", "x")],
        capabilities=[recorded.capability(), UseApprovals("look")],
    )
    paused = await agent.run("Go")
    assert paused.status is AgentStatus.PAUSED
    done = await agent.run(answer_call(paused, "c1", Approval(approved=True)))
    assert done.status is AgentStatus.COMPLETED
    first, second = [span for span in recorded.spans if span.name == "invoke_agent helper"]
    assert (first.attributes or {})["stepwell.status"] == "paused"
    assert [link.context.span_id for link in second.links] == [first.context.span_id]  # type: ignore[union-attr]
    assert not first.links
    again = await agent.run(done.with_message(Message.user("More")))
    assert again.status is AgentStatus.FAILED  # the script is over
    third = [span for span in recorded.spans if span.name == "invoke_agent helper"][-1]
    assert not third.links  # another execution


async def test_each_manual_step_is_a_span_and_they_are_linked() -> None:
    recorded = Recorded()
    agent = Agent(
        ScriptedModel([call("look"), "Done."]),
        tools=[MockTool.returning("look", "x")],
        capabilities=[recorded.capability()],
    )
    state = await agent.next_step("Go")
    assert not recorded.opened.open
    state = await agent.next_step(state)
    assert state.status is AgentStatus.COMPLETED
    first, second = [span for span in recorded.spans if span.name == "invoke_agent helper"]
    assert [link.context.span_id for link in second.links] == [first.context.span_id]  # type: ignore[union-attr]
    assert (second.attributes or {})["gen_ai.usage.output_tokens"] == 5  # of this step alone


class Broken(SpanProcessor):
    """An exporter's bug."""

    def __init__(self, at: str) -> None:
        self._at = at

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        if self._at == "start":
            raise RuntimeError("broken exporter")

    def on_end(self, span: Any) -> None:
        if self._at == "end":
            raise RuntimeError("broken exporter")


@pytest.mark.parametrize("at", ["start", "end"])
async def test_a_broken_exporter_does_not_harm_a_run(
    at: str, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = Recorded()
    recorded.tracers.add_span_processor(Broken(at))
    turns = [call("look", id="c1"), ModelResponse(text="Done.", finish_reason=FinishReason.STOP)]
    agent = Agent(
        ScriptedModel(turns),
        tools=[MockTool.returning("look", "x")],
        capabilities=[recorded.capability(content=True)],
    )
    with caplog.at_level(logging.ERROR):
        state = await agent.run("Go")
    assert state.final_response == "Done."
    assert "broken exporter" in caplog.text
    assert current() == "none"

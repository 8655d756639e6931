"""Envelopes of subagents: their own execution and status, and whose they are."""

import asyncio
from typing import Any

import msgspec

from stepwell import Agent, Approval, Cancellation
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import UseSubagents
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentFinished,
    AgentStepStarted,
    EventSource,
    SubagentSpawning,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.messages import ToolCall
from stepwell.models import ModelRequest
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import EventRecorder, FakeClock, MockTool, ScriptedModel, call
from tests.unit.broadcasting.following import Followed, assert_in_order


def spawn(name: str, id: str) -> ToolCall:
    return call("spawn_subagent", id=id, subagent=name, prompt="Go.")


class Team:
    """Agents that do in turn what the script under their name says, each with the tools."""

    def __init__(self, scripts: dict[str, list[Any]], *tools: MockTool) -> None:
        self.scripts = scripts
        registry = AgentRegistry(
            AgentSpec(name=name, description=name, system_prompt=name)
            for name in scripts
            if name != "main"
        )
        agent = Agent(
            ScriptedModel(self.turn),
            system_prompt="main",
            tools=[*tools, MockTool.returning("risky", "ok")],
            capabilities=[UseSubagents(registry), UseApprovals("risky")],
        )
        self.events = EventRecorder()
        agent.wiretap(self.events)
        self.followed = Followed(agent)

    def turn(self, request: ModelRequest) -> Any:
        script = self.scripts[request.context.messages[-1].text]
        return script[sum(message.is_assistant() for message in request.messages)]

    def execution_for(self, call_id: str) -> str:
        spawned = next(e for e in self.events.of(SubagentSpawning) if e.call_id == call_id)
        begun = self.events.of(AgentExecutionStarted)
        return next(e.execution_id for e in begun if e.agent_id == spawned.child_agent_id)

    def lineage(self, execution_id: str) -> set[tuple[str | None, str | None]]:
        return {
            (e["payload"]["parent_execution_id"], e["payload"]["parent_tool_call_id"])
            for e in self.followed.envelopes
            if e["execution_id"] == execution_id
        }


async def test_a_subagent_has_its_own_execution_and_status() -> None:
    team = Team({"main": [spawn("a", "c1"), "All done."], "a": [call("look"), "Found."]}, LOOK)

    await team.followed.run()

    child = team.execution_for("c1")
    assert child != "e1"
    assert team.followed.statuses("e1") == ["processing", "completed"]
    assert team.followed.statuses(child) == ["processing", "completed"]
    assert team.lineage(child) == {("e1", "c1")}
    assert team.lineage("e1") == {(None, None)}
    names = {(e["execution_id"], e["payload"]["agent_name"]) for e in team.followed.envelopes}
    assert names == {("e1", None), (child, "a")}
    types = [(e["execution_id"] == child, e["type"]) for e in team.followed.envelopes]
    ended = types.index((True, "agent.status"), types.index((True, "agent.status")) + 1)
    assert ended < types.index((False, "agent.tool.completed"))
    assert_in_order(team.followed.envelopes)


async def test_two_subagents_at_once_and_one_below_are_told_apart() -> None:
    together = asyncio.Barrier(2)

    async def meet() -> str:
        await together.wait()
        return "met"

    team = Team(
        {
            "main": [[spawn("a", "c1"), spawn("b", "c2")], "Done."],
            "a": [call("meet", id="c1"), spawn("c", "c3"), "A."],
            "b": [call("meet", id="c1"), "B."],
            "c": ["C."],
        },
        MockTool("meet", meet),
    )

    await team.followed.run()

    a, b = team.execution_for("c1"), team.execution_for("c2")
    below = team.execution_for("c3")
    assert len({"e1", a, b, below}) == 4
    assert team.lineage(a) == {("e1", "c1")}
    assert team.lineage(b) == {("e1", "c2")}
    assert team.lineage(below) == {(a, "c3")}
    for execution in ("e1", a, b, below):
        assert team.followed.statuses(execution) == ["processing", "completed"]
    assert_in_order(team.followed.envelopes)


async def test_a_subagent_that_waits_and_its_parent_are_both_paused() -> None:
    scripts = {"main": [spawn("a", "c1"), "Done."], "a": [call("risky", id="x"), "A."]}
    team = Team(scripts)
    state = await team.followed.run()
    child = team.execution_for("c1")
    assert team.followed.statuses(child) == ["processing", "paused"]
    assert team.followed.statuses("e1") == ["processing", "paused"]

    (waiting,) = state.pending
    assert waiting.call_id is not None
    await team.followed.run(state.with_answer(waiting, Approval.granted()))

    for execution in ("e1", child):
        statuses = team.followed.statuses(execution)
        assert statuses == ["processing", "paused", "processing", "completed"]
    assert team.lineage(child) == {("e1", "c1")}
    assert_in_order(team.followed.envelopes)


async def test_a_cancelled_run_cancels_its_subagents_first() -> None:
    cancellation = Cancellation()
    scripts = {"main": [spawn("a", "c1"), "Done."], "a": [call("hang"), "A."]}
    team = Team(scripts, MockTool("hang", asyncio.Event().wait))
    team.followed.agent.on_event(
        ToolCallStarted, lambda e: cancellation.request("stop it") if e.tool == "hang" else None
    )

    await team.followed.run(cancellation=cancellation)

    child = team.execution_for("c1")
    assert team.followed.statuses(child) == ["processing", "cancelled"]
    assert team.followed.statuses("e1") == ["processing", "cancelled"]
    assert team.followed.envelopes[-1]["execution_id"] == "e1"
    assert_in_order(team.followed.envelopes)


async def test_a_failed_subagent_fails_alone() -> None:
    scripts = {"main": [spawn("a", "c1"), "Never mind."], "a": [call("bad")]}
    team = Team(scripts, MockTool.raising("bad", ValueError("boom")))

    await team.followed.run()

    assert team.followed.statuses(team.execution_for("c1")) == ["processing", "failed"]
    assert team.followed.statuses("e1") == ["processing", "completed"]
    assert_in_order(team.followed.envelopes)


async def test_subagents_of_other_runs_are_left_out() -> None:
    """Also when the other run is one of the very same state."""
    team = Team({"main": [spawn("a", "c1"), "Done."], "a": [call("look"), "Found."]}, LOOK)
    state = team.followed.agent.new_state("Go.")
    other = team.followed.agent.new_state("Go.")

    await asyncio.gather(*(team.followed.run(each) for each in (state, state, other)))

    executions = {envelope["execution_id"] for envelope in team.followed.envelopes}
    assert len(executions) == 2
    assert len(team.events.of(AgentFinished)) == 6
    assert_in_order(team.followed.envelopes)


LOOK = MockTool.returning("look", "x")
DEBUG = BroadcastConfig.debug()
CLOCK = FakeClock()
ROOT = EventSource(agent_id="A", parent_agent_id=None, execution_id="x1")
CHILD = EventSource(agent_id="B", parent_agent_id="A", execution_id="x2")


def step(source: EventSource) -> AgentEvent:
    return AgentStepStarted(source, CLOCK.now(), step_number=1, message_count=1, available_tools=())


def begun() -> AgentEvent:
    return AgentExecutionStarted(
        ROOT, CLOCK.now(), message_count=1, available_tools=(), resumed=False
    )


def spawning() -> AgentEvent:
    return SubagentSpawning(
        ROOT,
        CLOCK.now(),
        name="b",
        prompt="",
        depth=0,
        max_depth=3,
        call_id="c1",
        child_agent_id="B",
    )


def call_ended() -> AgentEvent:
    return ToolCallCompleted(
        ROOT,
        CLOCK.now(),
        tool="spawn_subagent",
        call_id="c1",
        success=False,
        error="Error: timed out",
        value=None,
        started_at=CLOCK.now(),
        completed_at=CLOCK.now(),
        duration_ms=1.0,
    )


def call_begun(source: EventSource, tool: str) -> AgentEvent:
    return ToolCallStarted(source, CLOCK.now(), tool=tool, args={}, call_id="c1", step_number=1)


async def heard(
    *events: AgentEvent, config: BroadcastConfig = DEBUG
) -> list[tuple[str, str, str | None]]:
    """Execution, type and status of what an adapter makes of these events."""
    screen = RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(screen, "s1", "e1", config)
    listen = adapter.wiretap()
    for event in events:
        listen(event)
    adapter.on_agent_status_changed("stopped")
    await adapter.flush()
    assert_in_order(screen.envelopes)
    return [
        (e["execution_id"], e["type"].removeprefix("agent."), e["payload"].get("status"))
        for e in screen.envelopes
    ]


async def test_a_subagent_that_was_cut_off_is_over_when_its_call_is() -> None:
    """It told no end of its own: it did not end in time when its call was ended."""
    call_events = (call_begun(ROOT, "spawn_subagent"), spawning(), step(CHILD))
    told = await heard(begun(), step(ROOT), *call_events, call_begun(CHILD, "hang"), call_ended())

    assert told[-4:] == [
        ("x2", "tool.completed", None),
        ("x2", "status", "cancelled"),
        ("e1", "tool.completed", None),
        ("e1", "status", "stopped"),
    ]


async def test_what_is_left_of_a_tree_is_over_before_its_root() -> None:
    told = await heard(begun(), step(ROOT), spawning(), step(CHILD), call_begun(CHILD, "hang"))

    assert told[-3:] == [
        ("x2", "tool.completed", None),
        ("x2", "status", "stopped"),
        ("e1", "status", "stopped"),
    ]


async def test_calls_below_are_closed_also_where_statuses_are_sent_by_hand() -> None:
    below = EventSource(agent_id="C", parent_agent_id="B", execution_id="x3")
    config = BroadcastConfig(auto_status_tracking=False)
    of_child = (step(CHILD), call_begun(CHILD, "t"))
    of_below = (step(below), call_begun(below, "t"))

    told = await heard(begun(), step(ROOT), *of_child, *of_below, config=config)

    assert told[-3:] == [
        ("x2", "tool.completed", None),
        ("x3", "tool.completed", None),
        ("e1", "status", "stopped"),
    ]


async def test_a_subagent_whose_spawning_was_not_heard_still_has_its_parent() -> None:
    told = await heard(begun(), step(ROOT), step(CHILD))

    assert ("x2", "status", "processing") in told


async def test_a_subagent_of_before_a_reset_is_none_of_the_next_execution() -> None:
    """Also when the next one is of the same state, so that the parent seems to be the same."""
    screen = RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(screen, "s1", "e1", DEBUG)
    for event in (begun(), step(ROOT), spawning(), step(CHILD)):
        adapter(event)
    adapter.reset("e2")
    again = EventSource(agent_id="A", parent_agent_id=None, execution_id="x3")
    for event in (msgspec.structs.replace(begun(), source=again), step(again)):
        adapter(event)
    told = adapter.next_seq
    adapter(call_begun(CHILD, "late"))
    await adapter.flush()

    assert adapter.next_seq == told
    assert [e["payload"]["status"] for e in screen.of_type("agent.status")] == [
        "processing",
        "processing",
        "stopped",
        "stopped",
        "processing",
    ]


async def test_a_subagent_of_nobody_known_is_left_out() -> None:
    assert await heard(step(CHILD)) == [("e1", "status", "stopped")]

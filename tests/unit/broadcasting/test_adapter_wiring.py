"""How an adapter is wired, by hand or whole, and which executions it serves."""

import asyncio
import logging
from typing import Any

import pytest

from stepwell import Agent, AgentState, ErrorPolicy, HookContext, InputRequired, make_hook
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.continuation import AgentStatus
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    AgentStepStarted,
    ContinuationEvaluated,
    StreamEventReceived,
    SubagentSpawning,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.journal.status import BroadcastStatus
from stepwell.models import ModelRequest
from stepwell.testing import FakeClock, MockTool, ScriptedModel, SequentialIds, call
from tests.answers import answer_call
from tests.unit.broadcasting.following import Followed, assert_in_order

BY_HAND = BroadcastConfig(auto_status_tracking=False)
GOOD_AND_BAD = [MockTool.returning("good", "x"), MockTool.raising("bad", ValueError("boom"))]


def adapter_for(screen: RecordingBroadcaster, config: BroadcastConfig) -> AgentEventEnvelopeAdapter:
    return AgentEventEnvelopeAdapter(
        screen, "s1", "e1", config, new_id=SequentialIds("envelope"), clock=FakeClock()
    )


def eventful_agent() -> Agent:
    def refuse(context: HookContext) -> HookContext | None:
        return context.block("no") if context.call.name == "blocked" else None

    calls = [call("good", x=1), call("bad"), call("blocked"), call("unknown")]
    return Agent(
        ScriptedModel([calls, call("asks"), "never"]),
        tools=[
            MockTool("good", lambda x: "fine"),
            MockTool.raising("bad", ValueError("boom")),
            MockTool.returning("blocked", "never"),
            MockTool.returning("asks", InputRequired(prompt="Which?")),
        ],
        hooks=[make_hook("before_tool", refuse)],
        error_policy=ErrorPolicy.ignore_tool_errors(),
        clock=FakeClock(),
        new_id=SequentialIds(),
    )


async def test_single_handlers_give_the_same_as_the_wiretap() -> None:
    agent = eventful_agent()
    whole, single = RecordingBroadcaster(), RecordingBroadcaster()
    listening = adapter_for(whole, BroadcastConfig.debug())
    agent.wiretap(listening.wiretap())
    adapter = adapter_for(single, BroadcastConfig.debug())
    agent.on_event(AgentExecutionStarted, adapter.on_agent_execution_started)
    agent.on_event(AgentStepStarted, adapter.on_agent_step_started)
    agent.on_event(AgentStepCompleted, adapter.on_agent_step_completed)
    agent.on_event(ToolCallStarted, adapter.on_tool_call_started)
    agent.on_event(ToolCallCompleted, adapter.on_tool_call_completed)
    agent.on_event(ToolCallBlocked, adapter.on_tool_call_blocked)
    agent.on_event(ContinuationEvaluated, adapter.on_continuation_evaluated)
    agent.on_event(StreamEventReceived, adapter.on_stream_chunk)
    agent.on_event(SubagentSpawning, adapter.on_subagent_spawning)
    agent.on_event(AgentFailed, adapter.on_agent_failed)
    agent.on_event(AgentFinished, adapter.on_agent_finished)

    await agent.run("Go.")
    await asyncio.gather(listening.flush(), adapter.flush())

    assert len(whole.envelopes) > 15
    assert single.envelopes == whole.envelopes


def wire_seed_handlers(agent: Agent, adapter: AgentEventEnvelopeAdapter) -> None:
    """The six handlers that existed before the wiretap: none of them is for the end of a run."""
    agent.on_event(AgentStepStarted, adapter.on_agent_step_started)
    agent.on_event(AgentStepCompleted, adapter.on_agent_step_completed)
    agent.on_event(ToolCallStarted, adapter.on_tool_call_started)
    agent.on_event(ToolCallCompleted, adapter.on_tool_call_completed)
    agent.on_event(ContinuationEvaluated, adapter.on_continuation_evaluated)
    agent.on_event(StreamEventReceived, adapter.on_stream_chunk)


@pytest.mark.parametrize(
    ("turns", "settings", "last"),
    [
        (["Hi."], {}, "completed"),
        ([call("good"), call("bad")], {}, "failed"),
        ([call("good"), call("good"), "never"], {"max_steps": 2}, "stopped"),
        ([call("good"), call("good"), "x"], {"max_steps": 2, "at_limit": "pause"}, "paused"),
    ],
)
async def test_wiring_without_the_events_of_the_end_gives_a_last_status(
    turns: list[Any], settings: dict[str, Any], last: str
) -> None:
    agent = Agent(ScriptedModel(turns), tools=GOOD_AND_BAD, **settings)
    screen = RecordingBroadcaster()
    adapter = adapter_for(screen, BroadcastConfig.standard())
    wire_seed_handlers(agent, adapter)

    state = await agent.run("Go.")

    statuses = [envelope["payload"] for envelope in screen.of_type("agent.status")]
    assert [status["status"] for status in statuses] == ["processing", last]
    assert state.stop is not None
    assert statuses[-1]["stop_reason"] == state.stop.stop_reason
    assert statuses[-1]["step_count"] == state.step_count
    assert (statuses[-1]["error_message"] is not None) == (last == "failed")
    assert screen.envelopes[-1]["type"] == "agent.status"


def test_it_gives_it_in_a_sync_run_as_well() -> None:
    agent, screen = Agent(ScriptedModel(["Hi."])), RecordingBroadcaster()
    wire_seed_handlers(agent, adapter_for(screen, BroadcastConfig.standard()))

    agent.run_sync("Go.")

    assert screen.envelopes[-1]["payload"]["status"] == "completed"


async def test_a_handler_called_by_hand_sends_the_last_status_at_reset_at_the_latest() -> None:
    agent, screen = Agent(ScriptedModel(["One.", "Two."])), RecordingBroadcaster()
    adapter = adapter_for(screen, BroadcastConfig.minimal())
    heard: list[AgentEvent] = []
    agent.wiretap(heard.append)
    await agent.run("Go.")
    for event in heard:
        if isinstance(event, AgentStepStarted):
            adapter.on_agent_step_started(event)
        if isinstance(event, ContinuationEvaluated):
            adapter.on_continuation_evaluated(event)
    adapter.reset("e2")
    await adapter.flush()

    told = [envelope["payload"]["status"] for envelope in screen.of_type("agent.status")]
    assert told == ["processing", "completed"]


async def test_tools_alone_can_be_wired_beside_the_step() -> None:
    agent, screen = eventful_agent(), RecordingBroadcaster()
    adapter = adapter_for(screen, BY_HAND)
    agent.on_event(AgentStepStarted, adapter.on_agent_step_started)
    agent.on_event(ToolCallCompleted, adapter.on_tool_call_completed)

    await agent.run("Go.")
    await adapter.flush()

    assert len(screen.of_type("agent.tool.completed")) == 4
    assert screen.of_type("agent.status") == ()


async def test_the_end_alone_tells_the_error_and_the_steps_of_a_failed_run() -> None:
    agent = Agent(ScriptedModel([call("good"), call("bad")]), tools=GOOD_AND_BAD)
    screen = RecordingBroadcaster()
    adapter = adapter_for(screen, BroadcastConfig.minimal())
    agent.on_event(AgentExecutionStarted, adapter.on_agent_execution_started)
    agent.on_event(AgentFinished, adapter.on_agent_finished)

    state = await agent.run("Go.")
    await adapter.flush()

    (status,) = (envelope["payload"] for envelope in screen.envelopes)
    assert (status["status"], status["previous_status"]) == ("failed", "idle")
    assert (status["step_count"], status["stop_reason"]) == (2, "error")
    assert state.stop is not None
    assert state.stop.resolving_evaluation is not None
    assert status["error_message"] == status["reason"] == state.stop.resolving_evaluation.reason


async def test_the_failure_alone_tells_the_error_and_the_steps_as_well() -> None:
    agent = Agent(ScriptedModel([call("good"), call("bad")]), tools=GOOD_AND_BAD)
    screen = RecordingBroadcaster()
    adapter = adapter_for(screen, BroadcastConfig.minimal())
    agent.on_event(AgentExecutionStarted, adapter.on_agent_execution_started)
    agent.on_event(AgentFailed, adapter.on_agent_failed)

    await agent.run("Go.")
    await adapter.flush()

    (status,) = (envelope["payload"] for envelope in screen.envelopes)
    assert (status["status"], status["stop_reason"], status["step_count"]) == ("failed", "error", 2)
    assert status["error_message"] == status["reason"] == "ValueError: boom"


async def test_a_status_by_hand_counts_the_steps_that_are_completed() -> None:
    followed = Followed(Agent(ScriptedModel([call("good"), "Hi."]), tools=GOOD_AND_BAD), BY_HAND)
    for event_type in (ToolCallStarted, AgentStepCompleted):
        followed.agent.on_event(
            event_type, lambda _: followed.adapter.on_agent_status_changed("processing")
        )

    await followed.run()

    assert [status["step_count"] for status in followed.payloads("agent.status")] == [0, 1, 2]


async def test_without_automatic_status_only_those_by_hand_are_sent() -> None:
    followed = Followed(Agent(ScriptedModel(["Hi."])), BY_HAND)
    followed.adapter.on_agent_status_changed("processing")
    state = await followed.run()
    followed.adapter.on_agent_status_changed(
        BroadcastStatus.COMPLETED, last_response=state.final_response
    )
    await followed.adapter.flush()

    assert followed.statuses() == ["processing", "completed"]
    last = followed.payloads("agent.status")[-1]
    assert (last["previous_status"], last["last_response"], last["step_count"]) == (
        "processing",
        "Hi.",
        1,
    )
    assert last["agent_id"] == state.agent_id
    assert followed.adapter.status is BroadcastStatus.COMPLETED


async def test_a_status_by_hand_may_tell_an_error_and_the_words_of_the_agent() -> None:
    screen = RecordingBroadcaster()
    adapter = adapter_for(screen, BY_HAND)

    adapter.on_agent_status_changed(AgentStatus.IN_PROGRESS)
    adapter.on_agent_status_changed("failed", ValueError("the worker died"))
    await adapter.flush()

    assert [envelope["payload"]["status"] for envelope in screen.envelopes] == [
        "processing",
        "failed",
    ]
    assert screen.envelopes[-1]["payload"]["error_message"] == "the worker died"
    assert screen.envelopes[-1]["timestamp"] == "2026-01-01T12:00:00.000Z"


async def test_an_unknown_status_is_not_sent_but_reported(caplog: pytest.LogCaptureFixture) -> None:
    screen = RecordingBroadcaster()
    adapter = adapter_for(screen, BY_HAND)

    adapter.on_agent_status_changed("sleeping")
    await adapter.flush()

    assert screen.envelopes == ()
    assert "'sleeping' is not sent" in caplog.text


async def test_nothing_moves_a_terminal_status(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "stepwell.broadcasting")
    followed = Followed(Agent(ScriptedModel(["Hi."])))
    await followed.run()

    followed.adapter.on_agent_status_changed("processing")
    followed.adapter.on_agent_status_changed("failed", "too late")
    await followed.adapter.flush()

    assert followed.statuses() == ["processing", "completed"]
    assert "the status failed is not sent" in caplog.text


async def test_after_a_terminal_status_by_hand_the_run_changes_no_status() -> None:
    followed = Followed(Agent(ScriptedModel([call("look"), "Hi."]), tools=[MockTool("look", str)]))
    followed.agent.on_event(
        ToolCallStarted, lambda _: followed.adapter.on_agent_status_changed("cancelled")
    )

    await followed.run()

    assert followed.statuses() == ["processing", "cancelled"]
    assert_in_order(followed.envelopes)


async def test_reset_serves_the_next_execution_and_counts_on() -> None:
    followed = Followed(Agent(ScriptedModel(["One.", "Two.", "Three."])))
    first = await followed.run()
    followed.adapter.reset("e2")
    assert followed.adapter.status is BroadcastStatus.IDLE

    second = await followed.run(first.with_user_message("And then?"))
    followed.adapter.reset()
    await followed.run(second.with_user_message("And then?"))

    assert followed.statuses("e1") == ["processing", "completed"]
    assert followed.statuses("e2") == ["processing", "completed"] * 2
    numbers = [envelope["seq"] for envelope in followed.envelopes]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_without_reset_a_second_run_is_left_out_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    followed = Followed(Agent(ScriptedModel(["One.", "Two."])))
    await followed.run()
    told = len(followed.envelopes)

    await followed.run()

    assert len(followed.envelopes) == told
    assert "call reset() before its next run" in caplog.text


async def test_of_runs_at_once_on_one_agent_only_the_first_is_told() -> None:
    both_run = asyncio.Barrier(2)

    async def look() -> str:
        await both_run.wait()
        return "x"

    def turn(request: ModelRequest) -> object:
        return "Done." if any(m.is_tool() for m in request.messages) else call("look")

    followed = Followed(Agent(ScriptedModel(turn), tools=[look]))

    first, second = await asyncio.gather(followed.run("One."), followed.run("Two."))

    assert first.is_finished
    assert second.is_finished
    assert {envelope["payload"]["agent_id"] for envelope in followed.envelopes} == {first.agent_id}
    assert followed.statuses() == ["processing", "completed"]
    assert_in_order(followed.envelopes)


def asking_agent() -> Agent:
    return Agent(
        ScriptedModel([call("ask", id="c1"), "Blue it is."]),
        tools=[MockTool.returning("ask", InputRequired(prompt="Which colour?"))],
    )


async def paused(followed: Followed) -> AgentState:
    state = await followed.run()
    assert followed.adapter.status is BroadcastStatus.PAUSED
    return state


async def test_a_paused_run_tells_what_it_waits_for_and_goes_on_with_the_answer() -> None:
    followed = Followed(asking_agent())
    state = await paused(followed)

    status = followed.payloads("agent.status")[-1]
    assert status["stop_reason"] == "input_required"
    assert status["reason"] == "Which colour?"
    assert status["waits_for"] == [
        {
            "question_id": state.pending[0].id,
            "kind": "question",
            "prompt": "Which colour?",
            "call_id": "c1",
            "tool_name": "ask",
        }
    ]

    await followed.run(answer_call(state, "c1", "blue"))

    assert followed.statuses() == ["processing", "paused", "processing", "completed"]
    assert followed.payloads("agent.status")[2]["previous_status"] == "paused"
    assert_in_order(followed.envelopes)


async def test_a_fresh_adapter_takes_up_a_run_that_was_paused() -> None:
    first = Followed(asking_agent())
    state = await paused(first)
    elsewhere = Followed(Agent(ScriptedModel(["Blue it is."])))

    await elsewhere.run(answer_call(state, "c1", "blue"))

    assert elsewhere.statuses() == ["processing", "completed"]
    assert elsewhere.payloads("agent.step.started")[0]["step_number"] == 2
    assert elsewhere.payloads("agent.status")[0]["step_count"] == 1


async def test_a_run_that_pauses_at_a_limit_is_paused() -> None:
    agent = Agent(
        ScriptedModel([call("look")]),
        tools=[MockTool.returning("look", "x")],
        max_steps=1,
        at_limit="pause",
    )
    followed = Followed(agent)

    await followed.run()

    last = followed.payloads("agent.status")[-1]
    assert (last["status"], last["stop_reason"]) == ("paused", "steps_limit")
    assert [waiting["kind"] for waiting in last["waits_for"]] == ["budget"]


def test_a_sync_run_ends_after_all_was_sent() -> None:
    screen = RecordingBroadcaster()
    agent = Agent(ScriptedModel(["Hi."]))
    adapter = adapter_for(screen, BroadcastConfig.standard())
    agent.wiretap(adapter.wiretap())

    agent.run_sync("Go.")

    assert [e["payload"]["status"] for e in screen.of_type("agent.status")] == [
        "processing",
        "completed",
    ]

"""What is broadcast of a run: which envelopes, in which order, with which words."""

import json
from typing import Any

import pytest

from stepwell import (
    Agent,
    Cancellation,
    ErrorPolicy,
    HookContext,
    ModelError,
    ToolFailure,
    make_hook,
)
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.continuation import AgentStop
from stepwell.drivers import ReActDriver
from stepwell.journal.status import BroadcastStatus
from stepwell.testing import FakeClock, MockTool, ScriptedModel, call
from tests.unit.broadcasting.following import Followed, assert_in_order

NO_TEXT = BroadcastConfig.minimal()


async def test_a_run_with_one_tool_call_is_told_from_beginning_to_end() -> None:
    """B141, B142, B148."""
    model = ScriptedModel([call("add", a=1, b=2), "It is three."])
    followed = Followed(Agent(model, tools=[MockTool.returning("add", 3)]))

    await followed.run()

    assert followed.types == [
        "status",
        "step.started",
        "tool.started",
        "tool.completed",
        "step.completed",
        "step.started",
        "stream.chunk",
        "stream.chunk",
        "stream.chunk",
        "stream.chunk",
        "step.completed",
        "status",
    ]
    assert_in_order(followed.envelopes)
    first, last = followed.payloads("agent.status")
    assert (first["status"], first["previous_status"], first["step_count"]) == (
        "processing",
        "idle",
        0,
    )
    assert (last["status"], last["previous_status"]) == ("completed", "processing")
    assert last["stop_reason"] == "completed"
    assert last["step_count"] == 2
    assert last["last_response"] == "It is three."
    assert last["reason"]
    assert followed.adapter.status is BroadcastStatus.COMPLETED


async def test_every_envelope_says_whose_it_is_and_when_it_was() -> None:
    """B143, B159."""
    clock = FakeClock()
    followed = Followed(Agent(ScriptedModel(["Hi."]), clock=clock))

    state = await followed.run()

    assert set(followed.screen.channels) == {"agent.s1"}
    for envelope in followed.envelopes:
        assert list(envelope) == [
            "id",
            "seq",
            "type",
            "session_id",
            "execution_id",
            "timestamp",
            "payload",
        ]
        assert (envelope["session_id"], envelope["execution_id"]) == ("s1", "e1")
        assert envelope["timestamp"] == "2026-01-01T12:00:00.000Z"
        assert envelope["payload"]["agent_id"] == state.agent_id
        assert envelope["payload"]["parent_execution_id"] is None
        assert envelope["payload"]["parent_tool_call_id"] is None


async def test_a_channel_and_a_first_number_can_be_given() -> None:
    screen = RecordingBroadcaster()
    agent = Agent(ScriptedModel(["Hi."]))
    adapter = AgentEventEnvelopeAdapter(
        screen, "s1", "e1", channel="agent.session.s1", first_seq=40
    )
    agent.wiretap(adapter.wiretap())

    await agent.run("Go.")
    await adapter.flush()

    assert set(screen.channels) == {"agent.session.s1"}
    assert [envelope["seq"] for envelope in screen.envelopes][:2] == [40, 41]
    assert adapter.delivered == len(screen.envelopes) > 3
    assert (adapter.failed, adapter.dropped) == (0, 0)


async def test_tool_envelopes_have_the_call_id_duration_and_summaries() -> None:
    """B144, B145, B146."""
    clock = FakeClock()

    def find(query: str, types: list[str], limit: int, page: int) -> dict[str, int]:
        clock.advance(2)
        return {"found": 3}

    asked = call("find", id="c1", query="x" * 40, types=["program"], limit=5, page=2)
    followed = Followed(Agent(ScriptedModel([asked, "Done."]), tools=[find], clock=clock))

    await followed.run()

    (started,) = followed.payloads("agent.tool.started")
    (completed,) = followed.payloads("agent.tool.completed")
    assert started["tool_call_id"] == completed["tool_call_id"] == "c1"
    assert started["tool_name"] == completed["tool_name"] == "find"
    assert started["step_number"] == 1
    assert started["args_summary"] == f'query: \'{"x" * 26}..., types: ["program"], limit: 5'
    assert started["args"] is None
    assert completed["success"] is True
    assert completed["error"] is None
    assert completed["duration_ms"] == 2000
    assert completed["result_summary"] == '{"found":3}'


async def test_debug_tells_all_arguments_with_long_texts_clipped() -> None:
    """B144, B148."""
    asked = call("note", text="y" * 600, deep={"list": ["z" * 501, "short"]}, n=1, flag=True)
    note = MockTool("note", lambda text, deep, n, flag: "noted")
    followed = Followed(Agent(ScriptedModel([asked, "Ok."]), tools=[note]), BroadcastConfig.debug())

    await followed.run()

    (started,) = followed.payloads("agent.tool.started")
    assert started["args"] == {
        "text": "y" * 500 + "...",
        "deep": {"list": ["z" * 500 + "...", "short"]},
        "n": 1,
        "flag": True,
    }


async def test_the_longest_text_among_the_arguments_is_a_setting() -> None:
    config = BroadcastConfig(include_tool_args=True, max_arg_length=5)
    note = MockTool("note", lambda text: "noted")
    followed = Followed(
        Agent(ScriptedModel([call("note", text="abcdef"), "Ok."]), tools=[note]), config
    )

    await followed.run()

    assert followed.payloads("agent.tool.started")[0]["args"] == {"text": "abcde..."}


@pytest.mark.parametrize(
    ("config", "chunks", "decisions"),
    [
        (BroadcastConfig.minimal(), 0, 0),
        (BroadcastConfig.standard(), 3, 0),
        (BroadcastConfig.debug(), 3, 1),
    ],
)
async def test_presets_tell_more_or_less(
    config: BroadcastConfig, chunks: int, decisions: int
) -> None:
    """B148, B150, B155."""
    followed = Followed(Agent(ScriptedModel(["Hello there."])), config)

    await followed.run()

    told = followed.payloads("agent.stream.chunk")
    assert len(told) == chunks
    assert [chunk["is_complete"] for chunk in told] == [False, False, True][:chunks]
    assert "".join(chunk["content"] for chunk in told) == ("Hello there." if chunks else "")
    assert [chunk["chunk_index"] for chunk in told] == list(range(chunks))
    assert len(followed.payloads("agent.continuation")) == decisions


async def test_a_decision_is_told_with_every_vote() -> None:
    """B155."""
    followed = Followed(
        Agent(ScriptedModel([call("add"), "x"]), tools=[MockTool.returning("add", 1)], max_steps=1),
        BroadcastConfig.debug(),
    )

    state = await followed.run()

    (decision,) = followed.payloads("agent.continuation")
    assert decision["step_number"] == 1
    assert decision["should_continue"] is False
    assert decision["stop_reason"] == "steps_limit"
    assert decision["resolved_by"] == "StepsLimit"
    assert state.stop is not None
    assert [vote["criterion"] for vote in decision["evaluations"]] == [
        vote.criterion for vote in state.stop.evaluations
    ]
    votes = {vote["criterion"]: vote for vote in decision["evaluations"]}
    assert votes["StepsLimit"]["decision"] == "forbid"
    assert votes["ToolCallPresenceCheck"]["decision"] == "request"


def stopping(name: str) -> Agent:
    """An agent that ends in that way at its first step, or before."""
    tools = [MockTool.returning("look", "x"), MockTool.raising("bad", ValueError("boom"))]
    tools.append(MockTool.raising("stop", AgentStop("guard", "too hot")))
    match name:
        case "completed":
            return Agent(ScriptedModel(["Done."]))
        case "finish_reason":
            return Agent(ScriptedModel(["Done."]), stop_on_finish_reasons=["stop"])
        case "error":
            return Agent(ScriptedModel([call("bad")]), tools=tools)
        case "retry_limit":
            policy = ErrorPolicy.retry_all(2)
            return Agent(ScriptedModel(lambda _: ModelError("down")), error_policy=policy)
        case "guard":
            return Agent(ScriptedModel([call("stop")]), tools=tools)
        case "token_limit":
            return Agent(ScriptedModel([call("look")]), tools=tools, max_tokens=1)
        case "steps_limit":
            return Agent(ScriptedModel([]), max_steps=0)
        case _:
            raise AssertionError(name)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("completed", "completed"),
        ("finish_reason", "completed"),
        ("error", "failed"),
        ("retry_limit", "failed"),
        ("guard", "stopped"),
        ("token_limit", "stopped"),
        ("steps_limit", "stopped"),
    ],
)
async def test_the_last_status_follows_from_the_stop_reason(reason: str, status: str) -> None:
    """B151, B153; also for a run that ends before its first step."""
    followed = Followed(stopping(reason), NO_TEXT)

    state = await followed.run()

    last = followed.payloads("agent.status")[-1]
    assert last["status"] == status
    assert last["stop_reason"] == reason
    assert state.stop is not None
    decisive = state.stop.resolving_evaluation
    assert last["reason"] == (decisive.reason if decisive else last["reason"])
    assert "\n" not in last["reason"]
    assert last["step_count"] == state.step_count
    assert followed.envelopes[-1]["payload"] == last
    before = [] if state.step_count == 0 else ["processing"]
    assert followed.statuses() == [*before, status]
    assert_in_order(followed.envelopes)


async def test_a_failed_run_tells_its_error_once() -> None:
    """B152: the decision changes no status, the failure does."""
    followed = Followed(stopping("error"), BroadcastConfig.debug())

    await followed.run()

    assert followed.statuses() == ["processing", "failed"]
    last = followed.payloads("agent.status")[-1]
    assert "boom" in last["error_message"]
    (step,) = followed.payloads("agent.step.completed")
    assert step["errors"] == 1
    assert "boom" in step["error_messages"][0]
    (tool,) = followed.payloads("agent.tool.completed")
    assert tool["success"] is False
    assert "boom" in tool["error"]
    assert tool["result_summary"] is None


async def test_an_expected_failure_of_a_tool_is_told_and_the_run_goes_on() -> None:
    missing = MockTool.returning("read", ToolFailure("no such file"))
    followed = Followed(Agent(ScriptedModel([call("read"), "A pity."]), tools=[missing]), NO_TEXT)

    await followed.run()

    (tool,) = followed.payloads("agent.tool.completed")
    assert (tool["success"], tool["error"]) == (False, "Error: no such file")
    assert followed.statuses() == ["processing", "completed"]


async def test_a_react_decision_that_fails_ends_in_a_terminal_status() -> None:
    """B154."""
    driver = ReActDriver(ScriptedModel(lambda _: "this is no decision"))
    followed = Followed(Agent(driver=driver))

    await followed.run()

    assert followed.statuses()[-1] == "failed"
    assert followed.payloads("agent.status")[-1]["error_message"]
    assert_in_order(followed.envelopes)


async def test_a_blocked_call_has_one_result_that_says_so() -> None:
    """B164."""

    def refuse(context: HookContext) -> HookContext:
        return context.block("not on a Friday")

    agent = Agent(
        ScriptedModel([call("deploy", id="c1", to="prod"), "Then not."]),
        tools=[MockTool("deploy", lambda to: "done")],
        hooks=[make_hook("before_tool", refuse)],
    )
    followed = Followed(agent, NO_TEXT)

    await followed.run()

    assert followed.types[1:5] == [
        "step.started",
        "tool.started",
        "tool.completed",
        "step.completed",
    ]
    (started,) = followed.payloads("agent.tool.started")
    (completed,) = followed.payloads("agent.tool.completed")
    assert (started["tool_call_id"], started["args_summary"]) == ("c1", "to: 'prod'")
    assert started["step_number"] == 1
    assert completed["tool_call_id"] == "c1"
    assert completed["success"] is False
    assert completed["error"] == "Error: Blocked: not on a Friday"
    assert followed.statuses() == ["processing", "completed"]


async def test_a_cancelled_run_is_cancelled_also_before_its_first_step() -> None:
    cancellation = Cancellation()
    cancellation.request("closed the tab")
    followed = Followed(Agent(ScriptedModel([])))

    await followed.run(cancellation=cancellation)

    assert followed.types == ["status"]
    (status,) = followed.payloads("agent.status")
    assert (status["status"], status["previous_status"]) == ("cancelled", "idle")
    assert (status["stop_reason"], status["reason"]) == ("user_requested", "closed the tab")


async def test_steps_tell_usage_and_finish_reason() -> None:
    followed = Followed(
        Agent(ScriptedModel([call("add"), "x"]), tools=[MockTool.returning("add", 1)])
    )

    await followed.run()

    first, second = followed.payloads("agent.step.completed")
    assert first["has_tool_calls"] is True
    assert second["has_tool_calls"] is False
    assert (first["finish_reason"], second["finish_reason"]) == ("tool_calls", "stop")
    assert first["usage"] == {
        "prompt": 10,
        "completion": 5,
        "total": 15,
        "cached": 0,
        "reasoning": 0,
    }
    begun = followed.payloads("agent.step.started")
    assert [step["step_number"] for step in begun] == [1, 2]
    assert begun[0]["available_tools"] == ["add"]
    assert begun[1]["message_count"] == 3


ODD: dict[str, Any] = {
    "half": "file-\udcff",
    "nan": float("nan"),
    "big": 10**5000,
    "deep\ud800": {"inf": [float("inf")]},
}


@pytest.mark.parametrize("config", [BroadcastConfig.standard(), BroadcastConfig.debug()])
async def test_whatever_a_model_says_becomes_valid_json(config: BroadcastConfig) -> None:
    model = ScriptedModel([call("odd\udcff", **ODD), "half a pair: \ud83d"])
    followed = Followed(Agent(model, error_policy=ErrorPolicy.retry_all(3)), config)

    await followed.run()

    assert "tool.started" in followed.types
    assert followed.statuses()[-1] == "completed"
    for envelope in followed.envelopes:
        text = json.dumps(envelope, allow_nan=False, ensure_ascii=False).encode()
        assert json.loads(text) == envelope

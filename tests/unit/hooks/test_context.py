"""The hook context: changed copies, votes, and nothing changed in place."""

from datetime import UTC, datetime

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from stepwell import (
    AgentState,
    HookContext,
    HookTrigger,
    Message,
    ModelRequest,
    ModelResponse,
    StopReason,
    ToolCall,
)
from stepwell.continuation import ContinueRequest, StopSignal

AT = datetime(2026, 1, 1, tzinfo=UTC)
STATE = AgentState.empty(agent_id="agent", at=AT).with_execution_started("run", AT)
CONTEXT = HookContext(trigger=HookTrigger.BEFORE_TOOL, state=STATE)


@pytest.mark.parametrize(
    ("trigger", "change", "field", "value"),
    [
        ("on_stop", "with_state", "state", STATE.with_metadata({"a": 1})),
        ("before_tool", "with_call", "call", ToolCall(id="1", name="look")),
        ("before_tool", "with_result", "result", None),
        ("after_tool", "with_result", "result", None),
        (
            *("before_inference", "with_request", "request"),
            ModelRequest(messages=(Message.user("hi", id="m"),)),
        ),
        ("after_inference", "with_response", "response", ModelResponse(text="hi")),
        ("before_tool", "block", "block_reason", "not on Sundays"),
    ],
)
def test_each_change_is_a_copy_with_one_field_set(trigger, change, field, value):
    context = replace(CONTEXT, trigger=HookTrigger(trigger))
    changed = getattr(context, change)(value)

    assert getattr(changed, field) == value
    assert getattr(context, field) != value


def test_no_result_is_not_the_same_as_the_result_none():
    assert CONTEXT.result is UNSET
    assert CONTEXT.with_result(None).result is None


def test_stop_adds_a_signal_to_the_state():
    stopped = CONTEXT.stop("too hot", reason="guard", source="sensor")

    assert stopped.state.signals == (
        StopSignal(reason=StopReason.GUARD, message="too hot", source="sensor"),
    )
    assert CONTEXT.state.signals == ()


def test_stop_defaults_to_stop_requested_by_a_hook():
    (signal,) = CONTEXT.stop().state.signals

    assert (signal.reason, signal.source) == (StopReason.STOP_REQUESTED, "hook")


def test_stop_twice_keeps_both_signals_in_order():
    twice = CONTEXT.stop("one").stop("two", reason="guard")

    assert [signal.message for signal in twice.state.signals] == ["one", "two"]


def test_request_step_adds_a_request_to_the_state():
    asked = CONTEXT.request_step("not yet", source="critic", consumes=("sensor",))

    assert asked.state.execution.continue_requests == (
        ContinueRequest(source="critic", message="not yet", consumes=("sensor",)),
    )

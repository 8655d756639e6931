"""What ``agent.stream()`` yields."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from stepwell.events import (
    AgentEvent,
    StreamEventReceived,
    ThinkingReceived,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.models import TextDelta, ThinkingDelta
from stepwell.state import AgentState


class ToolStarted(Struct, frozen=True, kw_only=True, tag="tool_started"):
    """A tool is about to run."""

    call_id: str
    tool: str
    arguments: Mapping[str, Any]


class ToolCompleted(Struct, frozen=True, kw_only=True, tag="tool_completed"):
    """A tool call has its result."""

    call_id: str
    tool: str
    success: bool
    value: Any
    error: str | None
    duration_ms: float


class StepCompleted(Struct, frozen=True, tag="step_completed"):
    """A step was recorded; this is the state after it."""

    state: AgentState


class Final(Struct, frozen=True, tag="final"):
    """The run is over; this is its result."""

    state: AgentState


RunPart = TextDelta | ThinkingDelta | ToolStarted | ToolCompleted | StepCompleted | Final


def part_of(event: AgentEvent) -> RunPart | None:
    """The part that an event stands for, if it stands for one."""
    match event:
        case StreamEventReceived() if event.content:
            return TextDelta(event.content)
        case ThinkingReceived():
            return ThinkingDelta(event.content)
        case ToolCallStarted():
            return ToolStarted(call_id=event.call_id, tool=event.tool, arguments=event.args)
        case ToolCallCompleted():
            return ToolCompleted(
                call_id=event.call_id,
                tool=event.tool,
                success=event.success,
                value=event.value,
                error=event.error,
                duration_ms=event.duration_ms,
            )
        case _:
            return None

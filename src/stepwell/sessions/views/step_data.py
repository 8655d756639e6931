"""Converts a step to JSON for the API and the page. Pure."""

from collections.abc import Callable
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from stepwell.messages import ThinkingPart, Usage
from stepwell.sessions.records import SessionMessage
from stepwell.state import AgentStep, ErrorInfo, StepExecution, ToolExecution

Shorten = Callable[[Any], Any]


def as_is(value: Any) -> Any:
    """Return the whole value."""
    return value


def step_as_data(recorded: StepExecution, shorten: Shorten = as_is) -> dict[str, Any]:
    """A recorded step. Secret arguments are hidden in the state already. ``shorten`` may cut what
    can be large."""
    step = recorded.step
    return {
        "number": recorded.number,
        "type": step.step_type.value,
        "text": shorten(step.text),
        "thinking": shorten(_thinking(step)),
        "model": step.model,
        "finish_reason": None if step.finish_reason is None else step.finish_reason.value,
        "tool_executions": [_tool(ran, shorten) for ran in step.tool_executions],
        "errors": [shorten(_error(error)) for error in step.errors],
        "usage": _usage(step.usage),
        "cost": step.cost,
        "started_at": to_builtins(recorded.started_at),
        "completed_at": to_builtins(recorded.completed_at),
        "duration_seconds": recorded.duration_seconds,
        "decision": shorten(recorded.outcome.to_dict()),
    }


def message_as_data(message: SessionMessage) -> dict[str, Any]:
    """Return a session message for a trace."""
    return {
        "id": message.id,
        "role": message.role.value,
        "content": message.content,
        "metadata": dict(message.metadata),
        "created_at": to_builtins(message.created_at),
    }


def _thinking(step: AgentStep) -> str | None:
    response = step.response
    parts = () if response is None else response.parts
    return "".join(part.text for part in parts if isinstance(part, ThinkingPart)) or None


def _tool(ran: ToolExecution, shorten: Shorten) -> dict[str, Any]:
    return {
        "call_id": ran.call.id,
        "name": ran.call.name,
        "arguments": shorten(to_builtins(ran.call.arguments)),
        "outcome": ran.outcome.value,
        "result": shorten(ran.text),
        "error": None if ran.error is None else shorten(_error(ran.error)),
        "usage": _usage(ran.usage),
        "cost": ran.cost,
        "started_at": to_builtins(ran.started_at),
        "completed_at": to_builtins(ran.completed_at),
        "duration_seconds": ran.duration_seconds,
    }


def _error(error: ErrorInfo) -> dict[str, Any]:
    return to_builtins(asdict(error))


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_tokens": usage.total_tokens,
    }

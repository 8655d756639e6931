"""A slim document as a state: a conversation that can go on. Steps are only for showing."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import DecodeError, json

from stepwell.continuation import AgentStatus
from stepwell.ids import new_id
from stepwell.messages import History, Message, Part, Role, TextPart, ToolCall, ToolResult
from stepwell.serialization.slim_fields import Fields
from stepwell.serialization.slim_messages import tool_name
from stepwell.state import AgentState


def read_state(document: Any) -> AgentState:
    """The state that a document tells of. Raises ``SerializationError``."""
    fields = Fields.of(document)
    _check_display_fields(fields)
    times = fields.fields("execution")
    started_at = times.time("started_at")
    return AgentState(
        agent_id=fields.id("agent_id"),
        parent_agent_id=fields.id("parent_agent_id") if fields.has("parent_agent_id") else None,
        created_at=times.time("created_at") if times.has("created_at") else started_at,
        updated_at=times.time("updated_at"),
        messages=History[Message].of(_message(entry) for entry in fields.items("messages")),
        metadata=_values(fields, "metadata"),
        execution_count=times.count("count") if times.has("count") else 0,
        cumulative_seconds=(
            times.seconds("cumulative_seconds") if times.has("cumulative_seconds") else 0.0
        ),
    )


def _check_display_fields(fields: Fields) -> None:
    """A document whose facts are broken is not to be trusted with the others either."""
    fields.word("status", AgentStatus)
    fields.count("step_count")
    usage = fields.fields("usage")
    for key in ("prompt", "completion", "total"):
        usage.count(key)
    if fields.has("steps"):
        for step in fields.items("steps"):
            step.count("step_number")


def _message(entry: Fields) -> Message:
    role = entry.word("role", Role)
    content = entry.text("content")
    own = Fields.of(_values(entry, "metadata"), f"{entry.path}.metadata")
    parts: tuple[Part, ...] = (TextPart(content),) if content else ()
    if role is Role.TOOL:
        parts = (_result(own, content),)
        own = own.without("tool_call_id", "tool_name", "is_error", "waiting")
    elif role is Role.ASSISTANT and own.has("tool_calls") and _has_calls(entry):
        parts, own = (*parts, *_calls(own)), own.without("tool_calls")
    message_id = entry.id("id") if entry.has("id") else new_id()
    return Message(role=role, parts=parts, id=message_id, metadata=own.values)


def _has_calls(entry: Fields) -> bool:
    """Unless it says that its metadata are only an application's own note of calls."""
    return not entry.has("has_calls") or entry.flag("has_calls")


def _result(metadata: Fields, content: str) -> ToolResult:
    return ToolResult(
        call_id=metadata.id("tool_call_id"),
        tool_name=metadata.text("tool_name") if metadata.has("tool_name") else "",
        content=content,
        is_error=metadata.has("is_error") and metadata.flag("is_error"),
    )


def _calls(metadata: Fields) -> Iterator[ToolCall]:
    for call in metadata.items("tool_calls"):
        arguments, malformed = _arguments(call)
        if call.has("malformed"):
            malformed = call.text("malformed")
        yield ToolCall(
            id=call.id("id"), name=tool_name(call.values), arguments=arguments, malformed=malformed
        )


def _arguments(call: Fields) -> tuple[Mapping[str, Any], str | None]:
    """As an object, or as the JSON text that providers send; none if they were redacted."""
    holder = call
    if not call.has("arguments") and call.has("function"):
        holder = call.fields("function")
    if not holder.has("arguments"):
        return {}, None
    given = holder.values["arguments"]
    if not isinstance(given, str):
        return _values(holder, "arguments"), None
    try:
        read = json.decode(given)
    except (DecodeError, ValueError, RecursionError):  # also texts that can't be encoded
        return {}, given
    return (cast("dict[str, Any]", read), None) if isinstance(read, dict) else ({}, given)


def _values(fields: Fields, key: str) -> dict[str, Any]:
    """The values of an object; empty if it is left out."""
    return dict(fields.fields(key).values) if fields.has(key) else {}

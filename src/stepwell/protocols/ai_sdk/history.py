"""Converts UI messages of the AI SDK into a conversation that a provider accepts.

A UI message of the assistant has several steps; each becomes one response with its tool calls, and
every call has a result. Bad input raises ``ClientInputError``, which names the field.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from stepwell.messages import (
    FilePart,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from stepwell.protocols.ai_sdk.step_text import SUPERSEDED
from stepwell.protocols.ai_sdk.stop import STOP_PART
from stepwell.protocols.client_input import url_and_data
from stepwell.protocols.client_stream import ClientInputError
from stepwell.tools.result_text import as_text

_TOOL_STATES = frozenset(
    {
        "input-streaming",
        "input-available",
        "approval-requested",
        "approval-responded",
        "output-available",
        "output-error",
        "output-denied",
    }
)


class ToolPart(Struct, frozen=True, kw_only=True):
    """A validated tool part of a UI message."""

    call_id: str
    name: str
    state: str
    input: Any
    output: Any
    error_text: str
    approval: Mapping[str, Any]
    preliminary: bool

    @property
    def call(self) -> ToolCall:
        """The call; an input that is not an object is kept as text, like a malformed call."""
        given: Any = self.input
        if isinstance(given, Mapping):
            arguments = dict(cast("Mapping[str, Any]", given))
            return ToolCall(id=self.call_id, name=self.name, arguments=arguments)
        malformed = None if given is None else as_text(given)
        return ToolCall(id=self.call_id, name=self.name, malformed=malformed)

    @property
    def result(self) -> ToolResult:
        """The result of the call, or an error if it has none."""
        content, is_error = self._content()
        return ToolResult(
            call_id=self.call_id, tool_name=self.name, content=content, is_error=is_error
        )

    def _content(self) -> tuple[str, bool]:
        reason = self.approval.get("reason")
        why = f": {reason}" if isinstance(reason, str) and reason else ""
        is_denied = self.approval.get("approved") is False
        match self.state:
            case "output-available" if not self.preliminary:
                return as_text(self.output), False
            case "output-error":
                return self.error_text, True
            case "output-denied" | "approval-responded" if is_denied:
                return f"Error: Blocked: a person denied this call{why}", True
            case "output-denied":
                return "Error: Blocked: a person denied this call", True
            case "approval-requested":
                return "Error: Not run, because nobody approved it.", True
            case "approval-responded":
                return (
                    "Error: Not run: the run that asked is gone; call it again.",
                    True,
                )
            case _:
                return "Error: the call has no result, because the run ended before it.", True


class UiMessage(Struct, frozen=True, kw_only=True):
    """A validated UI message: its role, and its messages of the conversation."""

    where: str
    id: str
    role: str
    history: tuple[Message, ...]
    tools: tuple[ToolPart, ...] = ()
    ends_with_tools: bool = False
    asked: Mapping[str, str] = {}
    """The calls of the questions that its run waited for, by question id."""


def ui_messages(given: Sequence[Any]) -> list[UiMessage]:
    """Validate and return the messages that a client posted."""
    messages = [_ui_message(message, f"messages[{i}]") for i, message in enumerate(given)]
    seen: set[str] = set()
    for index, message in enumerate(messages):
        if message.id in seen:
            raise ClientInputError(f"messages[{index}].id {message.id!r:.80} comes twice")
        seen.add(message.id)
    return messages


def _ui_message(given: Any, where: str) -> UiMessage:
    message = _object(given, where)
    message_id = _text(message, "id", where)
    parts = message.get("parts")
    if not isinstance(parts, list):
        raise ClientInputError(f"{where}.parts is {parts!r:.80}; it must be a list")
    listed = [
        (_object(part, f"{where}.parts[{i}]"), f"{where}.parts[{i}]")
        for i, part in enumerate(cast("list[Any]", parts))
    ]
    match message.get("role"):
        case "assistant":
            return _assistant(message_id, listed, where)
        case "user" | "system" as role:
            said = [part for item, place in listed if (part := _user_part(item, place)) is not None]
            history = (Message.of(role, said, id=message_id),) if said else ()
            return UiMessage(where=where, id=message_id, role=role, history=history)
        case other:
            raise ClientInputError(
                f"{where}.role is {other!r:.80}; it must be user, assistant or system"
            )


class _Step:
    """One step of an answer while its parts are read."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._call_ids: set[str] = set()
        self.tools: list[ToolPart] = []

    def add(self, item: Mapping[str, Any], kind: str, where: str) -> None:
        """Add a part; sources, files and data parts are for user interfaces only."""
        if kind == "dynamic-tool" or kind.startswith("tool-"):
            tool = _tool_part(item, kind, where)
            if tool.call_id in self._call_ids:
                raise ClientInputError(f"{where}.toolCallId {tool.call_id!r:.80} comes twice")
            if tool.state != "input-streaming":  # its input is incomplete, so it never ran
                self._call_ids.add(tool.call_id)
                self.tools.append(tool)
        elif kind == "reasoning":
            self._parts.append(ThinkingPart(_text(item, "text", where, may_be_empty=True)))
        elif kind == "text" and item.get("providerMetadata") == SUPERSEDED:
            pass  # a later attempt replaced it
        elif kind == "text" and (text := _text(item, "text", where, may_be_empty=True)):
            self._parts.append(TextPart(text))

    def messages(self, name: str) -> list[Message]:
        """Return the response and the results of its calls; nothing for a step of reasoning
        only."""
        parts = (*self._parts, *(tool.call for tool in self.tools))
        if all(isinstance(part, ThinkingPart) for part in parts):
            return []
        response = Message(role=Role.ASSISTANT, parts=parts, id=f"{name}:0")
        results = enumerate(self.tools, start=1)
        return [response, *(Message.tool(t.result, id=f"{name}:{i}") for i, t in results)]


def _question_calls(waits_for: Any) -> dict[str, str]:
    """Return the calls by question id; the part may come from an older version."""
    entries = cast("list[Any]", waits_for) if isinstance(waits_for, list) else []
    asked = [cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)]
    pairs = [(entry.get("question_id"), entry.get("call_id")) for entry in asked]
    return {id: call for id, call in pairs if isinstance(id, str) and isinstance(call, str)}


def _assistant(
    message_id: str, listed: Sequence[tuple[Mapping[str, Any], str]], place: str
) -> UiMessage:
    """Return one response per step, each with the results of its calls."""
    steps = [_Step()]
    asked: dict[str, str] = {}
    for item, where in listed:
        kind = _text(item, "type", where)
        if kind == "step-start":
            steps.append(_Step())
        elif kind == STOP_PART:
            stop = _object(item.get("data"), f"{where}.data")
            asked = _question_calls(stop.get("waits_for"))
        else:
            steps[-1].add(item, kind, where)
    history = [m for i, step in enumerate(steps) for m in step.messages(f"{message_id}:{i}")]
    return UiMessage(
        where=place,
        id=message_id,
        role="assistant",
        history=tuple(history),
        tools=tuple(tool for step in steps for tool in step.tools),
        ends_with_tools=bool(history) and history[-1].is_tool(),
        asked=asked,
    )


def _tool_part(item: Mapping[str, Any], kind: str, where: str) -> ToolPart:
    state = item.get("state")
    if not isinstance(state, str) or state not in _TOOL_STATES:
        known = ", ".join(sorted(_TOOL_STATES))
        raise ClientInputError(f"{where}.state is {state!r:.80}; it must be one of {known}")
    is_dynamic = kind == "dynamic-tool"
    name = _text(item, "toolName", where) if is_dynamic else kind.removeprefix("tool-")
    if not name:
        raise ClientInputError(f"{where}.type is 'tool-', which names no tool")
    has_error = state == "output-error"
    given = item.get("input")
    return ToolPart(
        call_id=_text(item, "toolCallId", where),
        name=name,
        state=state,
        input=item.get("rawInput") if given is None else given,
        output=item.get("output"),
        error_text=_text(item, "errorText", where, may_be_empty=True) if has_error else "",
        approval=_object(item.get("approval") or {}, f"{where}.approval"),
        preliminary=item.get("preliminary") is True,
    )


def _user_part(item: Mapping[str, Any], where: str) -> Part | None:
    """Return a part of a user's message; data parts are for user interfaces only."""
    kind = _text(item, "type", where)
    if kind == "text":
        text = _text(item, "text", where, may_be_empty=True)
        return TextPart(text) if text else None
    if kind == "file":
        return _file(item, where)
    if kind.startswith("data-") or kind == "step-start":
        return None
    raise ClientInputError(f"{where}.type is {kind!r:.80}; a user sends text and files")


def _file(item: Mapping[str, Any], where: str) -> Part:
    url, media_type = _text(item, "url", where), _text(item, "mediaType", where)
    name = item.get("filename")
    if not isinstance(name, str | None):
        raise ClientInputError(f"{where}.filename is {name!r:.80}; it must be text")
    address, data = url_and_data(url, f"{where}.url")
    if media_type.startswith("image/"):
        return ImagePart(url=address, data=data, media_type=media_type)
    return FilePart(url=address, data=data, media_type=media_type, name=name)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ClientInputError(f"{where} is {value!r:.80}; it must be an object")
    return cast("Mapping[str, Any]", value)


def _text(item: Mapping[str, Any], field: str, where: str, *, may_be_empty: bool = False) -> str:
    value = item.get(field)
    if not isinstance(value, str) or not (value or may_be_empty):
        raise ClientInputError(f"{where}.{field} is {value!r:.80}; it must be text")
    return value

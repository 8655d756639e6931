"""Messages and tool calls in the format of AG-UI. Pure; wire names are camelCase."""

from collections.abc import Collection, Iterable
from typing import Any

from stepwell.messages import FilePart, ImagePart, Message, Role, TextPart, ToolCall
from stepwell.protocols.call_ids import CallIds
from stepwell.protocols.client_stream import WireEvent, json_bytes

OWN_KEY = "stepwell"
"""The key in an AG-UI metadata object for what AG-UI has no field for."""

ADDED_RESULT = {"ag_ui": "added"}
"""Metadata of a result that was missing in the client's input, so the client does not have it."""

UNKNOWN_MEDIA_TYPE = "application/octet-stream"


def wire_messages(messages: Iterable[Message], waiting: Collection[str] = ()) -> list[WireEvent]:
    """Return the messages in AG-UI's format; ``waiting`` are the calls that wait for a person.

    >>> wire_messages([Message.user("Hello", id="m1")])
    [{'id': 'm1', 'role': 'user', 'content': 'Hello'}]
    """
    ids = CallIds()
    return [_wire_message(message, ids, waiting) for message in messages]


def arguments_text(arguments: Any) -> str:
    """Return the arguments of a call as JSON text.

    >>> arguments_text({"city": "Zürich"})
    '{"city":"Zürich"}'
    """
    return json_bytes(arguments).decode()


def waiting_note() -> WireEvent:
    """Return metadata for a result that only says that its call waits."""
    return {OWN_KEY: {"waiting": True}}


def _wire_message(message: Message, ids: CallIds, waiting: Collection[str]) -> WireEvent:
    wire: WireEvent = {"id": message.id, "role": message.role.value}
    match message.role:
        case Role.ASSISTANT:
            calls = [_wire_call(call, message.id, ids) for call in message.tool_calls]
            if message.text or not calls:
                wire["content"] = message.text
            if calls:
                wire["toolCalls"] = calls
        case Role.TOOL:
            wire |= _result_fields(message, ids, waiting)
        case Role.USER:
            wire["content"] = _user_content(message)
        case Role.SYSTEM | Role.DEVELOPER:
            wire["content"] = message.text
    return wire


def _result_fields(message: Message, ids: CallIds, waiting: Collection[str]) -> WireEvent:
    result = message.tool_result
    if result is None:
        return {"content": message.text, "toolCallId": ""}
    fields: WireEvent = {
        "content": result.content,
        "toolCallId": ids.newest(result.call_id),
    }
    if result.is_error:
        fields["error"] = result.content
    if result.call_id in waiting:
        fields["metadata"] = waiting_note()
    return fields


def _wire_call(call: ToolCall, message_id: str, ids: CallIds) -> WireEvent:
    wire: WireEvent = {
        "id": ids.of_call(call.id, message_id),
        "type": "function",
        # Clients parse the arguments, so those of a malformed call are an empty object here.
        "function": {"name": call.name, "arguments": arguments_text(call.arguments)},
    }
    if call.signature is not None:
        wire["encryptedValue"] = call.signature
    if call.malformed is not None:
        wire["metadata"] = {OWN_KEY: {"malformed": call.malformed}}
    return wire


def _user_content(message: Message) -> str | list[WireEvent]:
    if all(isinstance(part, TextPart) for part in message.parts):
        return message.text
    return [wire for part in message.parts if (wire := _wire_part(part)) is not None]


def _wire_part(part: Any) -> WireEvent | None:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image", "source": _source(part)}
        case FilePart():
            wire: WireEvent = {"type": "document", "source": _source(part)}
            if part.name is not None:
                wire["metadata"] = {"name": part.name}
            return wire
        case _:
            return None


def _source(part: ImagePart | FilePart) -> dict[str, str]:
    if part.url is None:
        media_type = part.media_type or UNKNOWN_MEDIA_TYPE
        return {"type": "data", "value": part.data or "", "mimeType": media_type}
    source = {"type": "url", "value": part.url}
    return source if part.media_type is None else {**source, "mimeType": part.media_type}

"""Converts the messages of an AG-UI client into a conversation that a provider accepts.

Each call is followed by its result. Bad input raises ``ClientInputError``, which names the field.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import DecodeError, json

from stepwell.ids import new_id
from stepwell.messages import (
    FilePart,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ToolCall,
    ToolResult,
)
from stepwell.protocols.ag_ui.messages import ADDED_RESULT, OWN_KEY
from stepwell.protocols.ag_ui.shapes import (
    SentActivity,
    SentAssistant,
    SentAudio,
    SentCall,
    SentContent,
    SentDeveloper,
    SentDocument,
    SentImage,
    SentMessage,
    SentReasoning,
    SentResult,
    SentSystem,
    SentText,
    SentUser,
    SentVideo,
)
from stepwell.protocols.call_ids import restore_call_ids
from stepwell.protocols.client_input import check_base64, check_json, url_and_data
from stepwell.protocols.client_stream import ClientInputError

NO_RESULT = (
    "Error: there is no result: the run was left before this call ended. What it had begun may "
    "have taken effect."
)

Numbered = tuple[int, SentMessage]


def conversation(sent: Sequence[SentMessage], *, allow_system: bool) -> list[Message]:
    """Return the messages of the history, without reasoning, activities and messages of subagents,
    and with instructions only if they are allowed."""
    own = [(number, message) for number, message in enumerate(sent) if _is_in_history(message)]
    _check_ids(own)
    results: dict[str, list[tuple[int, SentResult]]] = {}
    for number, message in own:
        if isinstance(message, SentResult):
            results.setdefault(message.tool_call_id, []).append((number, message))
    for several in results.values():
        several.reverse()  # pop() takes the first
    history: list[Message] = []
    for number, message in own:
        match message:
            case SentUser():
                parts = _parts(message.content, f"messages[{number}].content")
                history.append(Message.user(parts, id=message.id))
            case SentSystem() if allow_system:
                history.append(Message.system(message.content, id=message.id))
            case SentDeveloper() if allow_system:
                history.append(Message.developer(message.content, id=message.id))
            case SentAssistant():
                calls = _calls(message, f"messages[{number}]")
                history.append(Message.assistant(message.content or "", calls, id=message.id))
                history += [_result(call, results.get(call.id)) for call in calls]
            case _:
                pass
    left = [number for several in results.values() for number, _ in several]
    if left:
        raise ClientInputError(
            f"messages[{min(left)}].toolCallId: no assistant message makes that call, or it has "
            "another result already"
        )
    return restore_call_ids(history)


def _is_in_history(message: SentMessage) -> bool:
    is_for_pages = isinstance(message, SentReasoning | SentActivity)
    return message.subagent_run_id is None and not is_for_pages


def _check_ids(own: Sequence[Numbered]) -> None:
    seen: set[str] = set()
    for number, message in own:
        if not message.id:
            raise ClientInputError(f"messages[{number}].id is empty")
        if message.id in seen:
            raise ClientInputError(f"messages[{number}].id {message.id!r:.80} comes twice")
        seen.add(message.id)


def _result(call: ToolCall, given: list[tuple[int, SentResult]] | None) -> Message:
    if not given:
        added = ToolResult(call_id=call.id, tool_name=call.name, content=NO_RESULT, is_error=True)
        return Message.of(Role.TOOL, (added,), id=new_id(), metadata=ADDED_RESULT)
    number, sent = given.pop()
    parts = _parts(sent.content, f"messages[{number}].content")
    result = ToolResult(
        call_id=call.id,
        tool_name=call.name,
        content="".join(part.text for part in parts if isinstance(part, TextPart)),
        is_error=sent.error is not None,
    )
    return Message.tool(result, id=sent.id)


def _calls(message: SentAssistant, where: str) -> list[ToolCall]:
    sent = enumerate(message.tool_calls or ())
    return [_call(call, f"{where}.toolCalls[{index}]") for index, call in sent]


def _call(sent: SentCall, where: str) -> ToolCall:
    arguments, malformed = _arguments(sent.function.arguments)
    check_json(arguments, f"{where}.function.arguments")
    own = (sent.metadata or {}).get(OWN_KEY)
    if isinstance(own, Mapping) and isinstance(own.get("malformed"), str):  # pyright: ignore[reportUnknownMemberType]
        malformed = str(own["malformed"])  # pyright: ignore[reportUnknownArgumentType]
    return ToolCall(
        id=sent.id,
        name=sent.function.name,
        arguments=arguments,
        malformed=malformed,
        signature=sent.encrypted_value,
    )


def _arguments(text: str) -> tuple[dict[str, Any], str | None]:
    try:
        return json.decode(text or "{}", type=dict[str, Any]), None
    except (DecodeError, RecursionError):  # incomplete, or not an object
        return {}, text


def _parts(content: SentContent, field: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return tuple(_part(part, f"{field}[{index}]") for index, part in enumerate(content))


def _part(part: "SentText | SentImage | SentAudio | SentVideo | SentDocument", field: str) -> Part:
    if isinstance(part, SentText):
        return TextPart(part.text)
    source, where = part.source, f"{field}.source.value"
    match source.type:
        case "url":
            url, data = url_and_data(source.value, where)
        case "data":
            url, data = None, check_base64(source.value, where)
        case other:
            raise ClientInputError(
                f"{field}.source.type: {other!r:.80} is not supported; send a url or the data"
            )
    if isinstance(part, SentImage):
        return ImagePart(url=url, data=data, media_type=source.mime_type)
    name = (part.metadata or {}).get("name")
    named = name if isinstance(name, str) else None
    return FilePart(url=url, data=data, media_type=source.mime_type, name=named)

"""Messages as the slim format shows them: which of them, and what of each."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec.structs import replace

from stepwell.messages import FilePart, ImagePart, Message, TextPart, ToolCall, ToolResult
from stepwell.serialization.slim_config import SlimSerializationConfig
from stepwell.serialization.slim_values import clip, clip_name, mapping_to_json, value_to_json
from stepwell.text import replace_half_characters

OMITTED = "[tool result omitted]"
REDACTED = "[redacted]"
UNKNOWN_TOOL = "unknown"


def message_entries(
    messages: Sequence[Message], config: SlimSerializationConfig, waiting: Collection[str] = ()
) -> list[dict[str, Any]]:
    """The newest messages, as the configuration wants them shown; ``waiting`` are the calls that
    wait for a person, whose results only say so."""
    each = [single for message in messages for single in _split_results(message)]
    first = first_shown(each, config.max_messages)
    entries = [_entry(message, config) for message in each[first:]]
    left = set(waiting)
    for message, entry in zip(reversed(each[first:]), reversed(entries), strict=True):
        result = message.tool_result
        if left and message.is_tool() and result is not None and result.call_id in left:
            left.remove(result.call_id)  # older calls may have had the same id
            entry["metadata"]["waiting"] = True
    return entries


def first_shown(messages: Sequence[Message], most: int) -> int:
    """How many of the oldest messages to leave out, so that at most ``most`` remain and no call is
    parted from its results. Where even the newest group is larger, that group remains.

    >>> asks = Message.assistant("", [ToolCall(id="c", name="read")])
    >>> result = Message.tool(ToolResult(call_id="c", tool_name="read", content="text"))
    >>> first_shown([Message.user("Go"), asks, result, Message.assistant("Done")], 2)
    3
    """
    if not most:
        return len(messages)
    last_results = _last_results(messages)
    newest_group, bound_until = 0, -1
    for place in range(len(messages)):
        if bound_until < place:
            newest_group = place
            if len(messages) - place <= most:
                break
        bound_until = max(bound_until, last_results.get(place, place))
    return newest_group


def _last_results(messages: Sequence[Message]) -> dict[int, int]:
    """For each place of a message with calls, the place of the last result of these."""
    made_at: dict[str, int] = {}
    last: dict[int, int] = {}
    for place, message in enumerate(messages):
        result = message.tool_result
        if result is not None and result.call_id in made_at:
            last[made_at[result.call_id]] = place
        # Some providers use an id again; a result belongs to the newest call of that id.
        made_at.update((call.id, place) for call in message.tool_calls)
    return last


def _split_results(message: Message) -> Iterator[Message]:
    """The schema knows one result per message."""
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if len(results) < 2:
        yield message
        return
    for number, result in enumerate(results, start=1):
        own_id = message.id if number == 1 else f"{message.id}.{number}"
        yield replace(message, parts=(result,), id=own_id)


def _entry(message: Message, config: SlimSerializationConfig) -> dict[str, Any]:
    limit = config.max_content_length
    calls, result = message.tool_calls, message.tool_result
    noted_calls = message.metadata.get("tool_calls")
    metadata = mapping_to_json(message.metadata, limit)
    content = clip(_content(message), limit)
    if calls:
        metadata["tool_calls"] = [_call(call, config) for call in calls]
    elif noted_calls is not None and config.redact_tool_args:
        metadata["tool_calls"] = _redact_calls(noted_calls)
    if message.is_tool() and result is not None:
        metadata |= {
            "tool_call_id": replace_half_characters(result.call_id),
            "tool_name": clip_name(result.tool_name),
            "is_error": result.is_error,
        }
    if not config.include_tool_results and (message.is_tool() or result is not None):
        content = OMITTED
    entry = {
        "id": replace_half_characters(message.id),
        "role": message.role.value,
        "content": content,
        "metadata": metadata,
    }
    # An application's own note of calls must not be restored as calls, which no result follows.
    return {**entry, "has_calls": False} if noted_calls is not None and not calls else entry


def _content(message: Message) -> str:
    """Its text; what is not text stands on a line of its own."""
    lines: list[str] = []
    text = ""
    for part in message.parts:
        if isinstance(part, TextPart):
            text += part.text
        elif isinstance(part, ToolResult):
            text += part.content
        elif isinstance(part, ImagePart | FilePart):
            lines += [text, _placeholder(part)] if text else [_placeholder(part)]
            text = ""
    return "\n".join([*lines, text] if text else lines)


def _placeholder(part: ImagePart | FilePart) -> str:
    """No address: it may be the data itself, or signed."""
    kind, title = ("image", None) if isinstance(part, ImagePart) else ("file", part.name)
    described = [kind, *(clip_name(text) for text in (title, part.media_type) if text)]
    return f"[{' '.join(described)}]"


def _call(call: ToolCall, config: SlimSerializationConfig) -> dict[str, Any]:
    who = {"id": replace_half_characters(call.id), "name": clip_name(call.name)}
    if config.redact_tool_args:
        return who
    limit = config.max_content_length
    made = {**who, "arguments": mapping_to_json(call.arguments, limit)}
    return (
        made
        if call.malformed is None
        else {**made, "malformed": value_to_json(call.malformed, limit)}
    )


def _redact_calls(noted: Any) -> Any:
    """Calls that an application noted, in whatever shape, without their arguments."""
    if not isinstance(noted, list | tuple):
        return REDACTED
    return [
        {
            "id": _text_or_none(_mapping(call).get("id")),
            "name": clip_name(tool_name(_mapping(call))),
        }
        for call in cast("Sequence[Any]", noted)
    ]


def tool_name(call: Mapping[str, Any]) -> str:
    """The name in a call, or in its nested function object.

    >>> tool_name({"function": {"name": "read"}}), tool_name({})
    ('read', 'unknown')
    """
    for found in (call.get("name"), _mapping(call.get("function")).get("name")):
        if isinstance(found, str) and found:
            return found
    return UNKNOWN_TOOL


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _text_or_none(value: Any) -> str | None:
    return clip_name(value) if isinstance(value, str) else None

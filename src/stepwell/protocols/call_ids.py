"""Ids of tool calls that are unique in a conversation, for protocols whose clients need that.

Used by ``ag_ui`` and ``ai_sdk`` for what they send and for the history of a client.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from stepwell.messages import Message, Part, ToolCall, ToolResult


class CallIds:
    """Names of tool calls on the wire. Some providers reuse an id in a later response, which a
    client would take for the same call; the name of the later one includes its message.

    >>> ids = CallIds()
    >>> ids.of_call("call_1", "m1"), ids.of_call("call_1", "m2"), ids.newest("call_1")
    ('call_1', 'call_1@m2', 'call_1@m2')
    """

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._first_in: dict[str, str] = {}
        self._newest: dict[str, str] = {}

    def of_call(self, call_id: str, message_id: str) -> str:
        """Return the name of the call of this message; always the same."""
        is_first = self._first_in.setdefault(call_id, message_id) == message_id
        name = f"{self._prefix}{call_id}" if is_first else f"{self._prefix}{call_id}@{message_id}"
        self._newest[call_id] = name
        return name

    def newest(self, call_id: str) -> str:
        """Return the name of the newest call with that id."""
        return self._newest.get(call_id, f"{self._prefix}{call_id}")

    def learn(self, messages: Iterable[Message]) -> None:
        """Name the calls of these messages."""
        for message in messages:
            for call in message.tool_calls:
                self.of_call(call.id, message.id)


def restore_call_ids(messages: Iterable[Message]) -> list[Message]:
    """Return the history of a client with the ids that the model gave to its calls.

    An id is a name of ``CallIds`` only if an earlier message has a call with its first part.

    >>> first = Message.assistant("", [ToolCall(id="c1", name="add")], id="m1")
    >>> second = Message.assistant("", [ToolCall(id="c1@m2", name="add")], id="m2")
    >>> [message.tool_calls[0].id for message in restore_call_ids([first, second])]
    ['c1', 'c1']
    """
    known: set[str] = set()
    originals: dict[str, str] = {}
    restored: list[Message] = []
    for message in messages:
        own = {call.id for call in message.tool_calls}
        for call in message.tool_calls:
            original = call.id.rpartition("@")[0]
            is_repeated = original in known and original not in own
            originals[call.id] = original if is_repeated else call.id
            own.add(originals[call.id])
        known |= own
        parts = tuple(_restore_part(part, originals) for part in message.parts)
        restored.append(replace(message, parts=parts))
    return restored


def _restore_part(part: Part, originals: dict[str, str]) -> Part:
    match part:
        case ToolCall():
            return replace(part, id=originals[part.id])
        case ToolResult():
            return replace(part, call_id=originals.get(part.call_id, part.call_id))
        case _:
            return part

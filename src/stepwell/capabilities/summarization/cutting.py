"""Where a history may be cut, and how large its newest part is. Each message is counted once."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from msgspec import json

from stepwell.errors import ConfigurationError
from stepwell.messages import FilePart, ImagePart, Message, TextPart, ThinkingPart, ToolCall
from stepwell.messages.parts import Part

TokenCounter = Callable[[Message], int]

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_MESSAGE = 4
TOKENS_PER_ATTACHMENT = 1000
"""An image or file costs by its size in pixels or pages, which only the provider knows."""


def roughly_counted(message: Message) -> int:
    """A quarter of a message's characters: text, thinking, arguments and results.

    >>> roughly_counted(Message.user("a" * 40))
    14
    """
    return TOKENS_PER_MESSAGE + sum(_tokens(part) for part in message.parts)


def _tokens(part: Part) -> int:
    match part:
        case TextPart() | ThinkingPart():
            characters = len(part.text)
        case ToolCall():
            arguments = json.encode(part.arguments, enc_hook=str).decode()
            characters = len(part.name) + len(part.malformed or arguments)
        case ImagePart() | FilePart():
            return TOKENS_PER_ATTACHMENT
        case _:
            characters = len(part.content)
    return -(-characters // CHARACTERS_PER_TOKEN)


class Tally:
    """The sizes of the messages behind a cut, as far as they were counted."""

    __slots__ = ("_count", "_last", "_start", "sizes", "total")

    def __init__(self, count: TokenCounter) -> None:
        self._count = count
        self._start = 0
        self._last: Message | None = None
        self.sizes: list[int] = []
        self.total = 0

    def follow(self, messages: Sequence[Message], start: int) -> None:
        """Count what was added to the messages behind ``start``; all of them if it is not known
        that they are the same as before."""
        end = self._start + len(self.sizes)
        knows_it = self._start <= start <= end <= len(messages)
        if not knows_it or (self.sizes and messages[end - 1] is not self._last):
            self._start, self.sizes, self.total = start, [], 0
        moved = start - self._start
        if moved:
            self.total -= sum(self.sizes[:moved])
            del self.sizes[:moved]
            self._start = start
        for index in range(start + len(self.sizes), len(messages)):
            self._last = messages[index]
            size = self.size_of(self._last)
            self.sizes.append(size)
            self.total += size

    def size_of(self, message: Message) -> int:
        """What the counter says, if that is a size."""
        size: Any = self._count(message)
        if type(size) is not int or size < 0:
            raise ConfigurationError(
                f"count_tokens returned {size!r:.80} for a message; return its tokens as an int, "
                "0 or more"
            )
        return size


def best_cut(
    messages: Sequence[Message],
    sizes: Sequence[int],
    *,
    keep_tokens: int,
    keep_messages: int | None = None,
    waiting: Collection[str] = (),
) -> int:
    """How many of these messages to move away so that what is kept is small enough, or as small as
    it can be; 0 if none can go.

    A call and its results are never parted, and the newest message stays. ``waiting`` are ids of
    calls that still wait for their result, whatever stands in its place.

    >>> said = [Message.user("a"), Message.assistant("b"), Message.user("c")]
    >>> best_cut(said, [5, 5, 5], keep_tokens=10)
    1
    """
    most = len(messages) if keep_messages is None else keep_messages
    kept, cut = sum(sizes), 0
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        may_cut = index > 0 and not open_calls and not message.is_tool()
        if may_cut:
            cut = index
            if kept <= keep_tokens and len(messages) - index <= most:
                break
        open_calls.update(call.id for call in message.tool_calls)
        result = message.tool_result
        if result is not None and result.call_id not in waiting:
            open_calls.discard(result.call_id)
        kept -= sizes[index]
    return cut

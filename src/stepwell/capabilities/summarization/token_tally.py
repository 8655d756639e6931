"""Counts the tokens of messages, once each, and finds where a history may be cut."""

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
"""The real cost depends on pixels or pages, which only the provider knows."""


def estimate_tokens(message: Message) -> int:
    """Estimate a message's tokens: a quarter of the characters of its text, calls and results.

    >>> estimate_tokens(Message.user("a" * 40))
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
    """The sizes of the messages after a cut."""

    __slots__ = ("_count", "_last", "_start", "sizes", "total")

    def __init__(self, count: TokenCounter) -> None:
        self._count = count
        self._start = 0
        self._last: Message | None = None
        self.sizes: list[int] = []
        self.total = 0

    def follow(self, messages: Sequence[Message], start: int) -> None:
        """Count the messages added after ``start``; all of them if the history is not known to be
        the same as before."""
        end = self._start + len(self.sizes)
        is_continuation = self._start <= start <= end <= len(messages)
        if not is_continuation or (self.sizes and messages[end - 1] is not self._last):
            self._start, self.sizes, self.total = start, [], 0
        dropped = start - self._start
        if dropped:
            self.total -= sum(self.sizes[:dropped])
            del self.sizes[:dropped]
            self._start = start
        for index in range(start + len(self.sizes), len(messages)):
            self._last = messages[index]
            size = self.size_of(self._last)
            self.sizes.append(size)
            self.total += size

    def size_of(self, message: Message) -> int:
        """Return the size of a message. Raises if the counter returns no valid size."""
        size: Any = self._count(message)
        if type(size) is not int or size < 0:
            raise ConfigurationError(
                f"count_tokens returned {size!r:.80} for a message; it must return an int of 0 or "
                "more"
            )
        return size


def best_cut(
    messages: Sequence[Message],
    sizes: Sequence[int],
    *,
    keep_tokens: int,
    keep_messages: int | None = None,
    pending_calls: Collection[str] = (),
) -> int:
    """Return how many messages to drop so that the rest is small enough, or as small as possible.

    A call is never separated from its results, and the newest message stays. ``pending_calls`` are
    the ids of calls that still wait for their result, even if a placeholder stands for it.

    >>> messages = [Message.user("a"), Message.assistant("b"), Message.user("c")]
    >>> best_cut(messages, [5, 5, 5], keep_tokens=10)
    1
    """
    limit = len(messages) if keep_messages is None else keep_messages
    kept_tokens, cut = sum(sizes), 0
    open_calls: set[str] = set()
    for index, message in enumerate(messages):
        may_cut = index > 0 and not open_calls and not message.is_tool()
        if may_cut:
            cut = index
            if kept_tokens <= keep_tokens and len(messages) - index <= limit:
                break
        open_calls.update(call.id for call in message.tool_calls)
        result = message.tool_result
        if result is not None and result.call_id not in pending_calls:
            open_calls.discard(result.call_id)
        kept_tokens -= sizes[index]
    return cut

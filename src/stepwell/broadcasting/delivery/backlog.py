"""The bounded queue of one delivery, which drops what is needed least. It takes no lock."""

import asyncio
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from stepwell.journal.envelope import EnvelopeType


class Queued:
    """An envelope that waits to be sent."""

    __slots__ = ("channel", "envelope", "number", "type")

    def __init__(self, channel: str, envelope: Mapping[str, Any]) -> None:
        self.channel = channel
        self.envelope = envelope
        self.type = str(envelope.get("type"))
        self.number = 0


class Mark:
    """A place in the queue that somebody waits for, perhaps on another event loop."""

    __slots__ = ("number", "reached")

    def __init__(self, reached: "asyncio.Future[None]") -> None:
        self.reached = reached
        self.number = 0

    def release(self) -> None:
        """Wake whoever waits: everything before the mark is settled."""
        with suppress(RuntimeError):  # the loop of the one who waited is closed
            self.reached.get_loop().call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        if not self.reached.done():
            self.reached.set_result(None)


class Backlog:
    """Envelopes in order, at most ``size``, and marks between them.

    They are numbered, and queued by how much they are needed, so that finding the next one or the
    one to drop takes constant time.

    >>> backlog = Backlog(2)
    >>> for kind in ("agent.status", "agent.stream.chunk", "agent.tool.started"):
    ...     full = backlog.add(Queued("agent.42", {"type": kind}))
    >>> full, [backlog.take().type for _ in range(2)]
    (True, ['agent.status', 'agent.tool.started'])
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._numbered = 0
        self._chunks: deque[Queued] = deque()
        self._others: deque[Queued] = deque()
        self._statuses: deque[Queued] = deque()
        self._marks: deque[Mark] = deque()

    def __len__(self) -> int:
        """The number of envelopes that wait."""
        return len(self._chunks) + len(self._others) + len(self._statuses)

    @property
    def is_empty(self) -> bool:
        """Whether there is neither an envelope nor a mark."""
        return not (self._chunks or self._others or self._statuses or self._marks)

    def add(self, item: Queued) -> bool:
        """Queue it. Return whether one was dropped to make room, which may be the new one.

        The oldest chunk is dropped first, then the oldest that is not a status, then the oldest
        status."""
        item.number = self._next_number()
        self._kind(item).append(item)
        if len(self) <= self._size:
            return False
        (self._chunks or self._others or self._statuses).popleft()
        return True

    def put_back(self, item: Queued) -> None:
        """Put it back as the next one, even if the queue is full."""
        self._kind(item).appendleft(item)

    def mark(self, mark: Mark) -> None:
        """Add a mark at the end of the queue."""
        mark.number = self._next_number()
        self._marks.append(mark)

    def take(self) -> Queued | Mark | None:
        """Remove and return the next item, if there is one."""
        waiting = [
            line for line in (self._chunks, self._others, self._statuses, self._marks) if line
        ]
        return min(waiting, key=lambda line: line[0].number).popleft() if waiting else None

    def take_marks(self) -> list[Mark]:
        """Remove and return the marks; the envelopes stay."""
        marks = list(self._marks)
        self._marks.clear()
        return marks

    def _next_number(self) -> int:
        self._numbered += 1
        return self._numbered

    def _kind(self, item: Queued) -> "deque[Queued]":
        if item.type == _CHUNK:
            return self._chunks
        return self._statuses if item.type == _STATUS else self._others


_CHUNK, _STATUS = EnvelopeType.AGENT_STREAM_CHUNK.value, EnvelopeType.AGENT_STATUS.value

"""What sessions need of a bus: words of news, and streamed text. ``stores.bus`` implements it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Protocol

from msgspec import Struct


class Delta(Struct, frozen=True, array_like=True, gc=False):
    """A piece of text that a model is generating: a growing value that is never a row.

    ``offset`` counts characters from the beginning of the response, so a reader sees what is
    missing and what came twice.
    """

    session_id: str
    execution_id: str
    attempt: int
    step_number: int
    chunk_index: int
    offset: int
    text: str
    is_complete: bool = False
    """Whether the response ends here."""
    response_index: int = 0
    """Which response of the step it is: one that broke off is asked for again."""

    @property
    def end(self) -> int:
        """The offset behind its last character."""
        return self.offset + len(self.text)


class OpenText(Struct, frozen=True, kw_only=True):
    """The text so far of a response that is being generated, as a worker stores it now and then."""

    session_id: str
    execution_id: str
    attempt: int
    step_number: int
    response_index: int
    text: str
    updated_at: datetime


class BusSubscription(Protocol):
    """Waits for a topic."""

    def wake(self) -> None:
        """Note that there is news, for who found out without the bus."""
        ...

    async def wait(self, seconds: float | None) -> bool:
        """Wait for news, at most so long. Return whether there was any since the last call."""
        ...


class Bus(Protocol):
    """Says that something has news; what it is, is in the database. Beside that it carries streamed
    text. May lose and repeat. Every bus passes the suite of ``stepwell.testing.bus``."""

    @property
    def reaches_all(self) -> bool:
        """Whether other processes hear it as well."""
        ...

    def publish(self, topic: str, /) -> None:
        """Wake all subscribers of the topic. Never blocks; news of one topic is merged."""
        ...

    def subscribe(self, topic: str, /) -> AbstractAsyncContextManager[BusSubscription]:
        """Subscribe for the length of a block. After a lost connection there is news of all."""
        ...

    def publish_deltas(self, deltas: Sequence[Delta], /) -> None:
        """Hand streamed text to whoever listens. Never blocks; what can't be sent is dropped."""
        ...

    def listen(
        self, session_id: str, deliver: Callable[[Sequence[Delta]], None], /
    ) -> AbstractContextManager[None]:
        """Call ``deliver`` with the deltas of a session for the length of a block, in the order of
        each execution. It must not block or raise."""
        ...

    async def close(self) -> None:
        """Send what waits, then end the connections."""
        ...

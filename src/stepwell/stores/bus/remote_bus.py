"""A bus over a connection to a server that all processes reach.

Subscribers in this process are reached at once, others with the next frame. After a lost connection
every subscriber is woken, since nobody knows what was missed. Nothing here grows without bound: too
many topics become one frame that says "everything", and the oldest deltas are dropped.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    suppress,
)
from typing import Protocol

from msgspec import DecodeError, json

from stepwell.ids import new_id
from stepwell.sessions.bus import Delta
from stepwell.stores.bus.frames import Frame, encode_frames
from stepwell.stores.bus.local_bus import Deliver, LocalBus, LocalSubscription

logger = logging.getLogger("stepwell.stores")

FRAME_SECONDS = 0.02
RETRY_SECONDS = 0.5
READY_SECONDS = 5.0
CLOSE_SECONDS = 1.0
MAX_TOPICS = 5_000
MAX_DELTA_CHARACTERS = 1024 * 1024

SendFrames = Callable[[Sequence[bytes]], Awaitable[None]]


class Link(Protocol):
    """A server that passes frames on. Its connections raise one of ``faults`` when they break."""

    @property
    def name(self) -> str:
        """Which server it is, for logs."""
        ...

    @property
    def max_frame_bytes(self) -> int:
        """How large one frame may be."""
        ...

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """What a broken connection raises."""
        ...

    def open_sender(self) -> AbstractAsyncContextManager[SendFrames]:
        """Connect to send frames."""
        ...

    def open_receiver(self) -> AbstractAsyncContextManager[AsyncIterator[bytes | str]]:
        """Connect to receive frames; the block begins once none is missed."""
        ...


class RemoteBus:
    """See ``sessions.ports.Bus``."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._local = LocalBus()
        self._id = new_id()
        self._topics: dict[str, None] = {}
        self._everything = False
        self._deltas: deque[Delta] = deque()
        self._delta_characters = 0
        self._unsent = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._receiving = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._receiver: asyncio.Task[None] | None = None

    @property
    def reaches_all(self) -> bool:
        """Every process hears it."""
        return True

    def publish(self, topic: str, /) -> None:
        """Wake all subscribers of the topic: here at once, elsewhere with the next frame."""
        self._local.publish(topic)
        self._topics[topic] = None
        if len(self._topics) > MAX_TOPICS:
            self._topics.clear()
            self._everything = True
        self._send_soon()

    def publish_deltas(self, deltas: Sequence[Delta], /) -> None:
        """Deliver here at once, elsewhere with the next frame."""
        self._local.publish_deltas(deltas)
        self._deltas.extend(deltas)
        self._delta_characters += sum(len(delta.text) for delta in deltas)
        while self._delta_characters > MAX_DELTA_CHARACTERS:
            self._delta_characters -= len(self._deltas.popleft().text)
        self._send_soon()

    @asynccontextmanager
    async def subscribe(self, topic: str, /) -> AsyncGenerator[LocalSubscription]:
        """Subscribe for the length of a block."""
        async with self._local.subscribe(topic) as subscription:
            self._receive_from_now_on()
            # If the server does not answer, the block begins all the same: every subscriber is
            # woken once the connection stands.
            with suppress(TimeoutError):
                async with asyncio.timeout(READY_SECONDS):
                    await self._receiving.wait()
            yield subscription

    def listen(self, session_id: str, deliver: Deliver, /) -> AbstractContextManager[None]:
        """Deliver the deltas of a session for the length of a block."""
        self._receive_from_now_on()
        return self._local.listen(session_id, deliver)

    async def close(self) -> None:
        """Send what waits, for a second at most, then end both connections."""
        if self._sender is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._all_sent.wait()
        for task in (self._sender, self._receiver):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    # Sending

    def _send_soon(self) -> None:
        self._all_sent.clear()
        self._unsent.set()
        if self._sender is None:
            self._sender = asyncio.create_task(self._keep_sending(), name="stepwell-bus-sender")

    async def _keep_sending(self) -> None:
        while True:
            try:
                async with self._link.open_sender() as send:
                    await self._send_on(send)
            except self._link.faults as error:
                logger.info("bus %s: sending failed: %s", self._link.name, type(error).__name__)
                self._drop_deltas()
            await asyncio.sleep(RETRY_SECONDS)

    async def _send_on(self, send: SendFrames) -> None:
        while True:
            await self._unsent.wait()
            self._unsent.clear()
            topics, everything = tuple(self._topics), self._everything
            deltas = tuple(self._deltas)
            self._drop_deltas()
            frame = Frame(self._id, topics, deltas, everything)
            await send(encode_frames(frame, self._link.max_frame_bytes))
            # Forgotten only now: what a lost connection swallowed is sent again.
            for topic in topics:
                self._topics.pop(topic, None)
            self._everything = self._everything and not everything
            if not self._has_unsent():
                self._all_sent.set()
            else:
                self._unsent.set()
            await asyncio.sleep(FRAME_SECONDS)

    def _has_unsent(self) -> bool:
        return bool(self._topics or self._deltas or self._everything)

    def _drop_deltas(self) -> None:
        self._deltas.clear()
        self._delta_characters = 0

    # Receiving

    def _receive_from_now_on(self) -> None:
        if self._receiver is None:
            self._receiver = asyncio.create_task(
                self._keep_receiving(), name="stepwell-bus-receiver"
            )

    async def _keep_receiving(self) -> None:
        while True:
            try:
                async with self._link.open_receiver() as frames:
                    self._receiving.set()
                    self._local.wake_all()
                    async for frame in frames:
                        self._receive(frame)
            except self._link.faults as error:
                logger.info("bus %s: receiving failed: %s", self._link.name, type(error).__name__)
            self._receiving.clear()
            await asyncio.sleep(RETRY_SECONDS)

    def _receive(self, encoded: bytes | str) -> None:
        try:
            frame = json.decode(encoded, type=Frame)
        except DecodeError:
            logger.warning("bus %s: a message of somebody else is ignored", self._link.name)
            return
        if frame.sender == self._id:
            return
        if frame.everything:
            self._local.wake_all()
        for topic in frame.topics:
            self._local.publish(topic)
        self._local.publish_deltas(frame.deltas)

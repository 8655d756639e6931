"""Gives envelopes their ids and numbers, and queues each for every broadcaster."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.broadcasters.composite import members_of
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.broadcasting.delivery.delivery import Delivery
from stepwell.ids import IdFactory
from stepwell.journal.entry import Entry, payload_data
from stepwell.journal.envelope import timestamp


class Outbox:
    """The outgoing side of one adapter: one channel, one counter, one queue per broadcaster."""

    def __init__(
        self,
        broadcaster: CanBroadcastAgentEvents,
        config: BroadcastConfig,
        *,
        session_id: str,
        channel: str,
        first_seq: int,
        new_id: IdFactory,
    ) -> None:
        self.session_id = session_id
        self.channel = channel
        self.deliveries = tuple(
            Delivery(member, max_queued=config.max_queued, send_timeout=config.send_timeout)
            for member in members_of(broadcaster)
        )
        self.next_seq = first_seq
        self._new_id = new_id

    def put(self, *entries: Entry) -> None:
        """Queue the envelope of each entry."""
        for entry in entries:
            if not entry.is_stored:
                continue
            envelope = {
                "id": self._new_id(),
                "seq": self.next_seq,
                "type": entry.type.value,
                "session_id": self.session_id,
                "execution_id": entry.execution_id,
                "timestamp": timestamp(entry.at),
                "payload": payload_data(entry.payload),
            }
            self.next_seq += 1
            for delivery in self.deliveries:
                delivery.put(self.channel, envelope)

    async def flush(self) -> None:
        """Wait until every envelope so far is settled, except those of a broadcaster that hangs
        past its time limit."""
        await asyncio.gather(*(delivery.flush() for delivery in self.deliveries))


class Flush:
    """Flushes when awaited. Unlike a coroutine, it raises no warning if nobody awaits it."""

    def __init__(self, flush: Callable[[], Awaitable[None]]) -> None:
        self._flush = flush

    def __await__(self) -> Generator[Any, Any, None]:
        return self._flush().__await__()

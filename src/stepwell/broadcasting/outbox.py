"""Gives envelopes their ids and numbers, and puts each into the queue of every broadcaster."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Any

from msgspec import json, to_builtins

from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.broadcasters.composite import members_of
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.broadcasting.delivery.delivery import Delivery
from stepwell.broadcasting.envelope import Envelope, EnvelopeType, Payload, timestamp
from stepwell.broadcasting.json_text import json_text
from stepwell.ids import IdFactory


class Outbox:
    """The way out of one adapter: one channel, one count, one queue for each broadcaster."""

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
        self._lock = threading.Lock()

    def put(self, execution_id: str, type: EnvelopeType, payload: Payload, at: datetime) -> None:
        """Queue an envelope with this payload."""
        with self._lock:  # a status by hand may come from another thread
            envelope = Envelope(
                id=self._new_id(),
                seq=self.next_seq,
                type=type,
                session_id=self.session_id,
                execution_id=execution_id,
                timestamp=timestamp(at),
                payload=payload,
            )
            self.next_seq += 1
            data = _as_data(envelope)
            for delivery in self.deliveries:
                delivery.put(self.channel, data)

    async def flush(self) -> None:
        """Wait until every envelope so far is settled, but for those of a broadcaster that hangs
        past its time limit."""
        await asyncio.gather(*(delivery.flush() for delivery in self.deliveries))

    def flushing(self) -> Awaitable[None]:
        """What flushes once somebody awaits it, and does not complain if nobody does."""
        return Flush(self.flush)


class Flush:
    """Flushes when it is awaited. A coroutine would complain if nobody awaits it."""

    def __init__(self, flush: Callable[[], Awaitable[None]]) -> None:
        self._flush = flush

    def __await__(self) -> Generator[Any, Any, None]:
        return self._flush().__await__()


def _as_data(envelope: Envelope) -> dict[str, Any]:
    """As a client will read it, whatever the model, a tool or a file name put into a text."""
    try:
        return envelope.to_dict()
    except UnicodeEncodeError:
        return json.decode(json_text(to_builtins(envelope)))

"""The event log of a session as a runner fills it: what a run told, put in order, with streamed
text in few pieces, until a transaction takes it along. Nothing is told before it is logged.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.broadcasting.envelope import BroadcastStatus, EnvelopeType, timestamp
from stepwell.clock import Clock
from stepwell.events import AgentEvent
from stepwell.ids import IdFactory
from stepwell.sessions.ids import derived_id
from stepwell.sessions.ports import NewEvent, Transaction
from stepwell.sessions.records import EventType, Execution, LoggedEvent, Session, SessionMessage


def envelope_of(event: LoggedEvent) -> dict[str, Any]:
    """The envelope that clients see."""
    return {
        "id": event.id,
        "seq": event.seq,
        "type": event.type,
        "session_id": event.session_id,
        "execution_id": event.execution_id,
        "timestamp": timestamp(event.created_at),
        "payload": dict(event.payload),
    }


_NOT_TOLD = ("fingerprint",)
"""Of a message's metadata: by which intake knows a send that is repeated."""


def message_event(message: SessionMessage, type: EventType) -> NewEvent:
    """What is logged with a session message. Its id follows from the message's."""
    return NewEvent(
        id=derived_id(message.id, "event"),
        type=type,
        execution_id=message.agent_execution_id,
        created_at=message.created_at,
        payload={
            "message_id": message.id,
            "event_type": str(type),
            "role": str(message.role),
            "content": message.content,
            "metadata": {k: v for k, v in message.metadata.items() if k not in _NOT_TOLD},
            "agent_execution_id": message.agent_execution_id,
            "created_at": _exact(message.created_at),
        },
    )


class Told(Struct, frozen=True):
    """Messages and events in the order in which they happened."""

    messages: Sequence[SessionMessage] = ()
    events: Sequence[NewEvent] = ()


async def append(tx: Transaction, session: Session, told: Told) -> None:
    """Log these of a locked session; each message with the time that the store gave it."""
    if told.messages:
        stored = {message.id: message for message in await tx.add_messages(session, told.messages)}
        told = Told(told.messages, [_timed(event, stored) for event in told.events])
    if told.events:
        await tx.append_events(session, told.events)


def _timed(event: NewEvent, stored: Mapping[str, SessionMessage]) -> NewEvent:
    message = stored.get(event.payload.get("message_id", ""))
    if message is None or message.created_at == event.created_at:
        return event
    payload = {**event.payload, "created_at": _exact(message.created_at)}
    return replace(event, payload=payload, created_at=message.created_at)


class LogBuffer:
    """What a run told and no transaction has logged yet.

    Envelopes come out of an adapter, which numbers them; a message stands behind the envelopes that
    were there before it. From the end of a step on, everything is held back for the transaction
    that stores the step: clients never hear of a step that could still be lost.
    """

    def __init__(
        self,
        execution: Execution,
        agent_id: str,
        config: BroadcastConfig,
        *,
        told_status: str | None,
        clock: Clock,
        new_id: IdFactory,
    ) -> None:
        session_id = execution.session_id or execution.id
        self.news = asyncio.Event()
        """Set while there is something to take."""
        self._adapter = AgentEventEnvelopeAdapter(
            self,
            session_id,
            execution.id,
            config,
            channel=f"agent.session.{session_id}",
            new_id=new_id,
            clock=clock,
        )
        self._execution = execution
        self._tells_statuses = config.auto_status_tracking
        self._agent_id = agent_id
        self._envelopes: list[Mapping[str, Any]] = []
        self._messages: list[_Said] = []
        self._known: set[str] = set()
        self._held_from: int | None = None
        self._ends_from: int | None = None
        self._chunks = ChunkCount()
        self.told_status = told_status
        """The status of the execution that clients heard last, also from an earlier attempt."""

    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        """The adapter delivers here; the channel is always the session's."""
        del channel
        self._envelopes.append(envelope)

    # What is told

    def hear(self, event: AgentEvent) -> None:
        """An event of the run."""
        before = self._adapter.next_seq
        self._adapter(event)
        if self._adapter.next_seq != before:
            self.news.set()

    def say(self, message: SessionMessage, type: EventType) -> None:
        """A message for people, behind what was told so far; told once, however often it comes."""
        if message.id in self._known:
            return
        self._known.add(message.id)
        end = self._adapter.next_seq if self._ends_from is None else self._ends_from
        self._messages.append(_Said(end - 1, message, type, self._held_from is not None))
        self.news.set()

    def add_to(self, message_id: str, metadata: Mapping[str, Any]) -> None:
        """More metadata for a message that nobody has taken yet; of others nothing is known."""
        for place, it in enumerate(self._messages):
            if metadata and it.message.id == message_id:
                message = replace(it.message, metadata={**it.message.metadata, **metadata})
                self._messages[place] = it._replace(message=message)

    def begin(self) -> None:
        """The execution is being processed; clients who know that are not told again."""
        if self._tells_statuses:
            self._adapter.on_agent_status_changed(BroadcastStatus.PROCESSING)
            self.news.set()

    def hold(self, *, ends: bool) -> None:
        """What comes from now on is for the transaction that stores the step. Where the run
        ``ends``, what is still said comes before its last status."""
        if self._held_from is None:
            self._held_from = self._adapter.next_seq
        if ends and self._ends_from is None:
            self._ends_from = self._adapter.next_seq

    async def drop_held(self) -> None:
        """What was held back did not come true."""
        await self._adapter.flush()
        end, self._held_from, self._ends_from = self._held_from, None, None
        if end is not None:
            self._envelopes = [e for e in self._envelopes if e["seq"] < end]
            self._messages = [said for said in self._messages if not said.is_held]

    # What is taken

    async def take(self, *, held: bool = False) -> Told:
        """All that was told so far; what is held back only if it is asked for."""
        end = self._adapter.next_seq
        if self._held_from is not None and not held:
            end = self._held_from
        self.news.clear()
        await self._adapter.flush()
        if held:
            self._held_from = self._ends_from = None
        taken = [e for e in self._envelopes if e["seq"] < end]
        self._envelopes = [e for e in self._envelopes if e["seq"] >= end]
        said, left = list[_Said](), list[_Said]()
        for it in self._messages:
            (said if held or (it.place < end and not it.is_held) else left).append(it)
        self._messages = left
        return self._ordered(taken, said)

    async def settled(self) -> None:
        """Wait until nothing is on its way here."""
        await self._adapter.flush()

    def _ordered(self, envelopes: Sequence[Mapping[str, Any]], said: Sequence["_Said"]) -> Told:
        entries: list[tuple[int, int, Mapping[str, Any] | NewEvent]] = [
            (envelope["seq"], 0, envelope) for envelope in envelopes
        ]
        entries += [(it.place, 1, message_event(it.message, it.type)) for it in said]
        entries.sort(key=lambda entry: entry[:2])
        events: list[NewEvent] = []
        for entry in self._chunks.coalesced(entry[2] for entry in entries):
            event = entry if isinstance(entry, NewEvent) else self._as_event(entry)
            if event is not None:
                events.append(event)
        return Told([it.message for it in said], events)

    def _as_event(self, envelope: Mapping[str, Any]) -> NewEvent | None:
        payload: Mapping[str, Any] | None = envelope["payload"]
        is_root = envelope["execution_id"] == self._execution.id
        if is_root and envelope["type"] == EnvelopeType.STATUS:
            payload = self._status(envelope["payload"])
        if payload is None:
            return None
        id = envelope["id"]
        if not is_root and envelope["type"] == EnvelopeType.STATUS:
            # A subagent's last one: whoever takes over tells it too, and it is told once.
            status = BroadcastStatus(payload["status"])
            id = status_event_id(envelope["execution_id"], status) if status.is_terminal else id
        return NewEvent(
            id=id,
            type=envelope["type"],
            payload=payload,
            created_at=datetime.fromisoformat(envelope["timestamp"]),
            execution_id=envelope["execution_id"],
        )

    def _status(self, payload: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The status as it follows what clients heard last; None if they know it already: each
        attempt has an adapter of its own, which begins as idle."""
        status, before = payload["status"], self.told_status
        if status == before and not payload["reason"]:
            return None
        self.told_status = status
        changes: dict[str, Any] = {} if before is None else {"previous_status": before}
        if not payload["agent_id"]:  # said by hand, before the run told whose it is
            changes |= {"agent_id": self._agent_id, "step_count": self._execution.step_count}
        return {**payload, **changes}


class _Said(NamedTuple):
    place: int
    """The number of the envelope that it stands behind."""
    message: SessionMessage
    type: EventType
    is_held: bool


class ChunkCount:
    """Puts the pieces of streamed text that follow one another into one, and numbers what is left
    without gaps within each response."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def coalesced(self, entries: Any) -> "list[Mapping[str, Any] | NewEvent]":
        """The same entries with fewer chunks; the text is the same."""
        result: list[Mapping[str, Any] | NewEvent] = []
        open_chunk: dict[str, Any] | None = None
        for entry in entries:
            if isinstance(entry, NewEvent) or entry["type"] != EnvelopeType.STREAM_CHUNK:
                open_chunk = None
                result.append(entry)
                continue
            payload = entry["payload"]
            if open_chunk is None or not _goes_on(open_chunk, entry):
                if payload["chunk_index"] == 0:
                    self._next[entry["execution_id"]] = 0
                number = self._next.get(entry["execution_id"], 0)
                self._next[entry["execution_id"]] = number + 1
                open_chunk = {**entry, "payload": {**payload, "chunk_index": number}}
                result.append(open_chunk)
            else:
                kept = open_chunk["payload"]
                kept["content"] += payload["content"]
                kept["is_complete"] = payload["is_complete"]
        return result


def _goes_on(open_chunk: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    kept, payload = open_chunk["payload"], entry["payload"]
    return (
        not kept["is_complete"]
        and payload["chunk_index"] != 0
        and open_chunk["execution_id"] == entry["execution_id"]
    )


def status_event_id(execution_id: str, status: str, attempt: int = 0) -> str:
    """The same for the same end of an execution; subagents have no attempts of their own."""
    return derived_id(execution_id, "status", status, attempt)


def _exact(at: datetime) -> str:
    """UTC with microseconds, by which messages are ordered."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

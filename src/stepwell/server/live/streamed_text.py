"""The text that is being generated in one session, from the journal, the bus and stored text.

A delta counts only while its step is open in the journal: an early one is held, a late one is
dropped. Offsets show duplicates and gaps.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from stepwell.journal.envelope import EnvelopeType
from stepwell.journal.status import BroadcastStatus
from stepwell.server.live.live_event import LiveEvent
from stepwell.sessions.bus import Delta, OpenText
from stepwell.sessions.records import StoredEntry

MAX_HELD_CHARACTERS = 256 * 1024
_WHOSE = ("agent_id", "agent_name", "parent_execution_id", "parent_tool_call_id", "truncated")

_Place = tuple[int, int, int]
"""Attempt, step and response; a later response of an execution has a higher one."""


class StreamedText:
    """A response that is being generated, up to the first gap."""

    def __init__(self, started: StoredEntry) -> None:
        payload = started.payload
        self.start = started.seq
        """The number of the event that started its step."""
        self.execution_id = started.execution_id or ""
        self.place: _Place = (payload.get("attempt", 1), payload["step_number"], 0)
        self.text = ""
        self._started = started
        self._whose = {name: payload.get(name) for name in _WHOSE}
        self._chunks: dict[tuple[int, int, int], LiveEvent] = {}

    def begin_next(self) -> None:
        """Begin the next response of the same step."""
        attempt, step, response = self.place
        self.place, self.text = (attempt, step, response + 1), ""
        self._chunks.clear()

    def append(self, offset: int, text: str) -> bool:
        """Append the new part of a piece. Return False if there is a gap before it."""
        if offset > len(self.text):
            return False
        if new := text[len(self.text) - offset :]:
            self.text += new
            self._chunks.clear()
        return True

    def chunk(self, seq: int, offset: int, index: int, at: datetime) -> LiveEvent:
        """Return the text after an offset as chunk number ``index``, encoded once for all followers
        at the same position."""
        known = self._chunks.get((seq, offset, index))
        if known is None:
            known = self._chunks[seq, offset, index] = self._new_chunk(seq, offset, index, at)
        return known

    def _new_chunk(self, seq: int, offset: int, index: int, at: datetime) -> LiveEvent:
        end, (attempt, step, response) = len(self.text), self.place
        payload: dict[str, Any] = {
            **self._whose,
            "step_number": step,
            "content": self.text[offset:],
            "is_complete": False,
            "chunk_index": index,
            "offset": offset,
            "attempt": attempt,
        }
        return LiveEvent(
            StoredEntry(
                tenant_id=self._started.tenant_id,
                session_id=self._started.session_id,
                seq=seq,
                type=EnvelopeType.AGENT_STREAM_CHUNK,
                payload=payload,
                created_at=at,
                execution_id=self.execution_id,
            ),
            # Clients order by number and id: after the entry with that number, a longer text after
            # a shorter one, and one that starts over after its last piece.
            text_id=f"~{self.start}.{response:06}.{end:012}.{end - offset:012}",
        )


class StreamedTexts:
    """The open responses of a session."""

    def __init__(self) -> None:
        self._open: dict[str, StreamedText] = {}
        self._held: dict[str, list[Delta]] = {}
        self._held_characters = 0

    @property
    def open(self) -> Iterable[StreamedText]:
        """The responses that may grow, in the order of their steps."""
        return self._open.values()

    @property
    def has_gap(self) -> bool:
        """Whether an open response has a gap."""
        return any(
            _place_of(delta) == self._open[execution_id].place
            for execution_id, held in self._held.items()
            if execution_id in self._open
            for delta in held
        )

    def apply_event(self, event: StoredEntry) -> None:
        """Apply an event of the journal, which opens and closes responses."""
        execution_id = event.execution_id or ""
        match event.type:
            case EnvelopeType.AGENT_STEP_STARTED:
                self._open.pop(execution_id, None)
                self._open[execution_id] = StreamedText(event)
                self._absorb(execution_id)
            case EnvelopeType.AGENT_STREAM_CHUNK if execution_id in self._open:
                self._open[execution_id].begin_next()
                self._absorb(execution_id)
            case EnvelopeType.AGENT_STEP_COMPLETED:
                early = self._close(execution_id)
                for delta in early:
                    if delta.step_number > event.payload["step_number"]:
                        self._hold(delta)
            case EnvelopeType.AGENT_STATUS if _is_terminal(event):
                self._close(execution_id)
            case _:
                pass

    def apply_deltas(self, deltas: Sequence[Delta]) -> bool:
        """Apply deltas of the bus. Return whether an open response grew."""
        grew = False
        for delta in deltas:
            text = self._open.get(delta.execution_id)
            if text is not None and _place_of(delta) < text.place:
                continue
            before = 0 if text is None else len(text.text)
            is_next = text is not None and _place_of(delta) == text.place
            if not is_next or text is None or not text.append(delta.offset, delta.text):
                self._hold(delta)
            elif len(text.text) > before:
                grew = True
        return grew

    def apply_stored(self, texts: Iterable[OpenText]) -> None:
        """Fill gaps with stored text."""
        for stored in texts:
            text = self._open.get(stored.execution_id)
            place = (stored.attempt, stored.step_number, stored.response_index)
            if text is not None and text.place == place:
                text.append(0, stored.text)
                self._absorb(stored.execution_id)

    def _hold(self, delta: Delta) -> None:
        self._held_characters += len(delta.text) + 1
        if self._held_characters > MAX_HELD_CHARACTERS:
            # The next event of the journal has the whole text.
            self._held.clear()
            self._held_characters = 0
            return
        self._held.setdefault(delta.execution_id, []).append(delta)

    def _absorb(self, execution_id: str) -> None:
        """Append held deltas that follow now, and drop late ones."""
        text = self._open[execution_id]
        for delta in sorted(
            self._take_held(execution_id), key=lambda delta: (_place_of(delta), delta.offset)
        ):
            place = _place_of(delta)
            if place > text.place or (
                place == text.place and not text.append(delta.offset, delta.text)
            ):
                self._hold(delta)

    def _close(self, execution_id: str) -> list[Delta]:
        """End the open response of an execution. Return what was held for it."""
        self._open.pop(execution_id, None)
        return self._take_held(execution_id)

    def _take_held(self, execution_id: str) -> list[Delta]:
        held = self._held.pop(execution_id, [])
        self._held_characters -= sum(len(delta.text) + 1 for delta in held)
        return held


def _place_of(delta: Delta) -> _Place:
    return (delta.attempt, delta.step_number, delta.response_index)


def _is_terminal(event: StoredEntry) -> bool:
    status = event.payload.get("status")
    return isinstance(status, str) and BroadcastStatus(status).is_terminal

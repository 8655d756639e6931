"""One occurrence becomes one entry, which clients see as one envelope."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from stepwell.sessions.occurrence import Note, Occurrence, envelope_of
from stepwell.sessions.records import EventType, MessageRole, SessionMessage, StoredEntry

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


def message(text: str) -> SessionMessage:
    return SessionMessage(
        id=f"m-{text}",
        tenant_id="t",
        session_id="s",
        role=MessageRole.INFO,
        content=text,
        created_at=AT + timedelta(microseconds=5),
        agent_execution_id="e",
    )


def entries_of(*occurrences: Occurrence, there: tuple[str, ...] = ()) -> list[Occurrence]:
    """What is appended, where messages with these ids are there already."""
    messages = [it.note.message for it in occurrences if it.note is not None]
    added = {it.id: it for it in messages if it.id not in there}
    return [it for one in occurrences if (it := one.with_message(added)) is not None]


def test_an_envelope_is_what_clients_see() -> None:
    [told] = entries_of(Occurrence.of_note(message("hello"), EventType.STEP_STARTED))
    entry = StoredEntry(
        tenant_id="t",
        session_id="s",
        seq=7,
        type=told.type,
        payload=told.payload or {},
        created_at=told.at,
        execution_id=told.execution_id,
    )
    assert envelope_of(entry) == {
        "id": entry.id,
        "seq": 7,
        "type": "step.started",
        "session_id": "s",
        "execution_id": "e",
        "timestamp": "2026-01-01T12:00:00.000Z",
        "payload": {
            "message_id": "m-hello",
            "event_type": "step.started",
            "role": "info",
            "content": "hello",
            "metadata": {},
            "agent_execution_id": "e",
            "created_at": "2026-01-01T12:00:00.000005Z",
        },
    }


def test_a_message_that_is_there_is_not_shown_again() -> None:
    """A step that runs again after a crash has the same messages, and is another attempt."""
    note = Note(message("step"), EventType.STEP_STARTED)
    again = Occurrence(
        at=AT, execution_id="e", type="agent.step.started", payload={"attempt": 2}, note=note
    )
    for_people = Occurrence.of_note(message("started"), EventType.EXECUTION_STARTED)
    [entry] = entries_of(for_people, again, there=("m-step", "m-started"))
    assert (entry.type, entry.payload) == ("agent.step.started", {"attempt": 2})
    [both] = entries_of(again)
    assert both.payload is not None
    assert both.payload["attempt"] == 2
    assert (both.payload["event_type"], both.payload["content"]) == ("step.started", "step")


def test_what_a_message_keeps_for_intake_is_not_shown() -> None:
    kept = replace(message("hi"), metadata={"fingerprint": "f00", "steers": True, "own": 1})
    [entry] = entries_of(Occurrence.of_note(kept, EventType.MESSAGE_SENT))
    assert entry.payload is not None
    assert entry.payload["metadata"] == {"steers": True, "own": 1}
    assert kept.metadata["fingerprint"] == "f00"

"""What a journal entry's row leaves out is there again when it is read."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from stepwell.journal.envelope import EnvelopeType, Spawn, StepStartedPayload
from stepwell.sessions.records import StoredEntry
from stepwell.stores.entry_payload import with_whole_payload, without_repetition

AT = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
STARTED: dict[str, Any] = to_builtins(
    StepStartedPayload(agent_id="a", step_number=1, message_count=2, available_tools=())
)
MESSAGE = {
    "message_id": "m",
    "event_type": "step.started",
    "role": "info",
    "content": "Step 1",
    "metadata": {"step_number": 1, "nothing": None, "truncated": False},
    "agent_execution_id": "e",
    "created_at": "2026-01-01T12:00:00.000005Z",
}


def an_entry(payload: dict[str, Any], type: str = EnvelopeType.AGENT_STEP_STARTED) -> StoredEntry:
    return StoredEntry(
        session_id="s",
        seq=1,
        type=str(type),
        payload=payload,
        execution_id="e",
        message_id=payload.get("message_id"),
        created_at=AT,
        tenant_id="t",
    )


@pytest.mark.parametrize(
    "payload",
    [
        STARTED,
        {**STARTED, "attempt": 1},
        {**STARTED, **MESSAGE},
        {**STARTED, **MESSAGE, "agent_execution_id": None},
        {**STARTED, **MESSAGE, "agent_execution_id": "another"},
        {**STARTED, **MESSAGE, "created_at": "2026-01-01T12:00:00.000006Z"},
        {**STARTED, "spawned": to_builtins(Spawn(prompt="Go", depth=1)), "truncated": True},
        {"of": "another program", "spawned": None},
        MESSAGE,
        {},
    ],
)
@pytest.mark.parametrize("type", [EnvelopeType.AGENT_STEP_STARTED, "message.sent"])
def test_an_entry_is_read_as_it_was_appended(payload: dict[str, Any], type: str) -> None:
    entry = an_entry(payload, type)

    assert with_whole_payload(without_repetition(entry)) == entry


def test_the_row_has_neither_unset_fields_nor_what_its_other_columns_say() -> None:
    stored = without_repetition(an_entry({**STARTED, **MESSAGE})).payload

    assert set(stored) == {
        *("agent_id", "step_number", "message_count", "available_tools"),
        *("event_type", "role", "content", "metadata"),
    }
    assert stored["metadata"] == MESSAGE["metadata"]


def test_rows_of_earlier_versions_are_read_as_they_are() -> None:
    entry = an_entry({**STARTED, **MESSAGE})

    assert with_whole_payload(entry) == entry
    assert with_whole_payload(replace(entry, payload={})).payload["message_id"] == "m"

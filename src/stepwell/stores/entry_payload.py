"""The payload of a journal entry as it is stored: without what the row says in other columns, and
without what is not set.

A step adds about four entries, and half of each was the same every time. Whoever reads an entry
through the store gets the whole payload back.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import fields, replace

from stepwell.journal.envelope import PAYLOADS, Payload
from stepwell.sessions.records import StoredEntry
from stepwell.stores.codec import iso_time


def _unset_fields(payload: type[Payload]) -> dict[str, Any]:
    return {
        field.name: field.default for field in fields(payload) if field.default in (None, False)
    }


_UNSET: Mapping[str, Mapping[str, Any]] = {
    type.value: _unset_fields(payload) for type, payload in PAYLOADS.items()
}
"""By type of entry: the fields that may be left out, and what they are then."""
_EVERY_PAYLOAD_HAS = "agent_id"


def without_repetition(entry: StoredEntry) -> StoredEntry:
    """Return the entry as it is stored."""
    payload, unset = entry.payload, _UNSET.get(entry.type)
    has_message = "message_id" in payload
    if unset is None or _EVERY_PAYLOAD_HAS not in payload:
        if not has_message:
            return entry
        unset = {}
    stored = {
        name: value
        for name, value in payload.items()
        if (value is not None and value is not False) or name not in unset
    }
    if has_message:
        for name, value in _said_by_columns(entry).items():
            if name in stored and stored[name] == value:
                del stored[name]
    return replace(entry, payload=stored)


def with_whole_payload(entry: StoredEntry) -> StoredEntry:
    """Return the entry with all that was left out."""
    payload, unset = entry.payload, _UNSET.get(entry.type)
    if unset is None or _EVERY_PAYLOAD_HAS not in payload:
        unset = {}
    if entry.message_id is None:
        return replace(entry, payload={**unset, **payload}) if unset else entry
    return replace(entry, payload={**unset, **_said_by_columns(entry), **payload})


def _said_by_columns(entry: StoredEntry) -> dict[str, Any]:
    """What the payload says of the entry's message, where it is the same as in the entry's row."""
    return {
        "message_id": entry.message_id,
        "agent_execution_id": entry.execution_id,
        "created_at": iso_time(entry.created_at),
    }

"""One occurrence of a run, as it is stored and shown."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, json, to_builtins

from stepwell.journal.envelope import EnvelopeType, Payload, TransientType
from stepwell.journal.json_text import json_text


class CallDetail(Struct, frozen=True, kw_only=True):
    """The full arguments and result of a tool call. It lives in memory only: an entry that is
    stored keeps the summaries of its payload."""

    args: Mapping[str, Any] | None = None
    value: Any = None


class Entry(Struct, frozen=True, kw_only=True):
    """One occurrence in an execution or in one of its subagents.

    It has neither an id nor a number: who stores or sends it gives both.
    """

    type: EnvelopeType | TransientType
    execution_id: str
    at: datetime
    payload: Payload
    detail: CallDetail | None = None

    @property
    def is_stored(self) -> bool:
        """Whether it is kept and broadcast; others are only for who follows the run in memory."""
        return isinstance(self.type, EnvelopeType)


def payload_data(payload: Payload) -> dict[str, Any]:
    """The payload as JSON data, as a client reads it, whatever a model or tool put into a text."""
    try:
        return json.decode(json.encode(payload))
    except UnicodeEncodeError:
        return json.decode(json_text(to_builtins(payload)))

"""One occurrence of a run, as it is stored and shown."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct, json, to_builtins

from stepwell.journal.envelope import EnvelopeType, Payload, TransientType
from stepwell.text import json_bytes


class CallDetail(Struct, frozen=True, kw_only=True):
    """The full arguments and result of a tool call. It lives in memory only: an entry that is
    stored keeps the summaries of its payload."""

    args: Mapping[str, Any] | None = None
    value: Any = None


class Entry(Struct, frozen=True, kw_only=True):
    """One occurrence in an execution or in one of its subagents.

    It has neither id nor number; whoever stores or sends it adds them.
    """

    type: EnvelopeType | TransientType
    execution_id: str
    at: datetime
    payload: Payload
    detail: CallDetail | None = None

    @property
    def is_stored(self) -> bool:
        """Whether it is stored and broadcast; others are only for followers in memory."""
        return isinstance(self.type, EnvelopeType)


def payload_data(payload: Payload) -> dict[str, Any]:
    """Return the payload as JSON data, whatever a model or tool put into a text."""
    return json.decode(json_bytes(payload, default=to_builtins))

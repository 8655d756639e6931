"""What translators read of an entry: the detail of a call if there is one, else its payload.

Entries of the app server have their detail looked up where it is stored.
"""

from collections.abc import Mapping
from typing import Any

from stepwell.journal import Entry
from stepwell.journal.envelope import Spawn, ToolCompletedPayload, ToolStartedPayload


def call_arguments(entry: Entry) -> Mapping[str, Any]:
    """The arguments of the call that the entry begins."""
    if entry.detail is not None and entry.detail.args is not None:
        return entry.detail.args
    args = entry.payload.args if isinstance(entry.payload, ToolStartedPayload) else None
    return args or {}


def call_value(entry: Entry) -> Any:
    """The result of the call that the entry ends."""
    if entry.detail is not None:
        return entry.detail.value
    payload = entry.payload
    return payload.result_summary if isinstance(payload, ToolCompletedPayload) else None


def spawn_of(entry: Entry) -> Spawn:
    """As what the subagent was spawned whose first entry this is."""
    spawn: Spawn | None = getattr(entry.payload, "spawned", None)
    return spawn or Spawn(prompt="", depth=0)

"""Reads the detail of a call from an entry, or else from its payload.

For entries of the app server, the detail is looked up where it is stored.
"""

from collections.abc import Mapping
from typing import Any

from stepwell.journal import Entry
from stepwell.journal.envelope import Spawn, ToolCompletedPayload, ToolStartedPayload


def call_arguments(entry: Entry) -> Mapping[str, Any]:
    """Return the arguments of the call that the entry starts."""
    if entry.detail is not None and entry.detail.args is not None:
        return entry.detail.args
    args = entry.payload.args if isinstance(entry.payload, ToolStartedPayload) else None
    return args or {}


def call_value(entry: Entry) -> Any:
    """Return the result of the call that the entry ends."""
    if entry.detail is not None:
        return entry.detail.value
    payload = entry.payload
    return payload.result_summary if isinstance(payload, ToolCompletedPayload) else None


def spawn_of(entry: Entry) -> Spawn:
    """Return how the subagent was spawned, from its first entry."""
    spawn: Spawn | None = getattr(entry.payload, "spawned", None)
    return spawn or Spawn(prompt="", depth=0)

"""Remembers calls across a crash: consulted before tools run, and gets their outcomes.

The executor asks it behind the before-tool hooks, which simply run again, and before look-up and
validation: a call that ran already needs neither. The app server keeps a ledger in its database;
without one nothing is remembered.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from stepwell.messages import ToolCall
from stepwell.state import AgentState, Answered
from stepwell.tools.results import Finished
from stepwell.tools.tool import Tool


class LedgerEntry(Struct, frozen=True, kw_only=True, eq=False):
    """A call that is about to run; its secret arguments are hidden."""

    call: ToolCall
    tool: Tool | None
    """None if the agent has no such tool, or no longer."""
    state: AgentState
    answered: Answered | None = None
    """What a person answered, if the call waited for one."""


class CallLedger(Protocol):
    """Remembers which calls began and how they ended."""

    def recall(self, entry: LedgerEntry, /) -> Finished | None:
        """Return the result of a call that must not run: it ran already, or its outcome is
        unknown. None if it may run."""
        ...

    async def begin(self, entries: Sequence[LedgerEntry], /) -> None:
        """Record that these calls of one response are about to run."""
        ...

    def end(self, entry: LedgerEntry, finished: Finished, /) -> None:
        """Record what a call came to, without its secret arguments."""
        ...

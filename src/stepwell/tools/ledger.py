"""What remembers calls across a crash: asked before a tool runs and told what came of it.

The executor calls it around the tool itself, behind hooks and validation, which simply run again.
The app server keeps one in its database; without one nothing is remembered.
"""

from typing import Protocol

from msgspec import Struct

from stepwell.messages import ToolCall
from stepwell.state import AgentState, Answered
from stepwell.tools.results import Finished
from stepwell.tools.tool import Tool


class LedgerEntry(Struct, frozen=True, kw_only=True, eq=False):
    """A call that is about to run; its secret arguments are hidden."""

    call: ToolCall
    tool: Tool
    state: AgentState
    answered: Answered | None = None
    """What a person answered, if the call waited for one."""


class CallLedger(Protocol):
    """Remembers which calls began and how they ended."""

    async def begin(self, entry: LedgerEntry, /) -> Finished | None:
        """Note that the call begins. What it came to, if it must not run: it ran already, or
        nobody knows whether it did."""
        ...

    async def end(self, entry: LedgerEntry, finished: Finished, /) -> None:
        """Note what it came to, without its secret arguments."""
        ...

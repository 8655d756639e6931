"""What remembers calls across a crash: asked before tools run and told what came of them.

The executor calls it around the tools themselves, behind hooks and validation, which simply run
again. The app server keeps one in its database; without one nothing is remembered.
"""

from collections.abc import Mapping, Sequence
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

    async def begin(self, entries: Sequence[LedgerEntry], /) -> Mapping[str, Finished]:
        """Record that these calls of one response are about to run. Return, by call id, the results
        of those that must not run: they ran already, or their outcome is unknown."""
        ...

    def end(self, entry: LedgerEntry, finished: Finished, /) -> None:
        """Record what a call came to, without its secret arguments."""
        ...

"""Named points at which a process can be made to die or to freeze.

``before:<name>``, ``in:<name>`` and ``after:<name>`` are around every write of the store and every
tool call. The process tells the witness which point it dies at, then kills itself.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from chaos.witness import WitnessLine
from stepwell.sessions.ports import Bus, Store, Transaction
from stepwell.sessions.records import Execution

Result = TypeVar("Result")


class CrashPoints:
    """Which point is armed in this process, and the gate behind which it may freeze."""

    def __init__(self, witness: WitnessLine) -> None:
        self.witness = witness
        self._seen: set[str] = set()
        self._armed: str | None = None
        self._skip = 0
        self._also: frozenset[str] = frozenset()
        self._open_writes = 0
        self._gate = asyncio.Event()
        self._gate.set()

    def arm(self, point: str | None, skip: int = 0, also: Iterable[str] = ()) -> None:
        """Die the next time but ``skip`` that this point is reached, or as soon as one of the
        others is; None for none."""
        self._armed, self._skip, self._also = point, skip, frozenset(also)

    def reach(self, point: str) -> None:
        """This point is reached."""
        if point not in self._seen:
            self._seen.add(point)
            self.witness.tell("saw", point=point)
        if point == self._armed:
            self._skip -= 1
        if point in self._also or (point == self._armed and self._skip < 0):
            self.witness.tell("crash", point=point, pid=os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)

    def freeze(self) -> None:
        """Stop this process as soon as it has no transaction open: a frozen one would hold up all
        others. What it wanted to write waits, and is tried after the thaw."""
        self._gate.clear()
        self._freeze_if_idle()

    async def enter_write(self) -> None:
        """A write begins."""
        await self._gate.wait()
        self._open_writes += 1

    def leave_write(self) -> None:
        """It has ended."""
        self._open_writes -= 1
        self._freeze_if_idle()

    def _freeze_if_idle(self) -> None:
        if not self._gate.is_set() and self._open_writes == 0:
            self.witness.tell("freeze", pid=os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
            self.witness.tell("thaw", pid=os.getpid())
            self._gate.set()


class CrashingStore:
    """A store with crash points around every write. It also tells the witness of every claim."""

    def __init__(self, store: Store, points: CrashPoints) -> None:
        self._store = store
        self.points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def bus(self) -> Bus:
        """The store's own."""
        return self._store.bus

    async def write(
        self, work: Callable[[Transaction], Awaitable[Result]], /, *, name: str
    ) -> Result:
        """The same write, with its three points."""
        self.points.reach(f"before:{name}")

        async def inside(transaction: Transaction) -> Result:
            result = await work(transaction)
            self.points.reach(f"in:{name}")
            return result

        await self.points.enter_write()
        try:
            result = await self._store.write(inside, name=name)
        finally:
            self.points.leave_write()
        if name == "claim":
            for claimed in result if isinstance(result, list) else [result]:
                if isinstance(claimed, Execution):
                    self.points.witness.tell("claim", execution=claimed.id, attempt=claimed.attempt)
        self.points.reach(f"after:{name}")
        return result

    async def read(self, work: Callable[[Transaction], Awaitable[Result]], /) -> Result:
        """The store's own; a freeze waits for it as well."""
        await self.points.enter_write()
        try:
            return await self._store.read(work)
        finally:
            self.points.leave_write()

    async def close(self) -> None:
        """The store's own."""
        await self._store.close()

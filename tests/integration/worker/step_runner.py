"""A runner of steps that only wait. What it began is in a file that outlives every process.

An execution's input says what to do: ``steps``, ``seconds`` each, ``seconds_again`` for whoever has
it after the first, ``breaks`` to raise, ``blocks`` to hold the event loop for so many seconds in
the first step, and ``blocks_in_write`` to do so inside a transaction on the execution.
"""

import asyncio
import os
import time
from pathlib import Path

from msgspec.structs import replace

from stepwell.clock import SystemClock
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.runner import RunControl
from stepwell.sessions.endings.close import close_execution
from stepwell.sessions.endings.end import EndDeps
from stepwell.sessions.ports import Jobs, Store, Transaction
from stepwell.sessions.records import Execution
from stepwell.sessions.settings import SessionSettings

MAX_CRASHES = 3
LOOK_SECONDS = 0.01


class StepRunner:
    """Each step waits, then is committed under the fence; heeds its control."""

    def __init__(self, store: Store, jobs: Jobs, witness: Path) -> None:
        self._store = store
        self._jobs = jobs
        self._witness = witness
        self._clock = SystemClock()

    @property
    def agents(self) -> tuple[str, ...]:
        """The one that it has."""
        return ("steps",)

    async def run(self, execution: Execution, control: RunControl) -> ExecutionStatus:
        """Wait through the steps that are left."""
        self._note("claim", execution)
        if execution.crashes >= MAX_CRASHES:
            return await self._finish(execution, ExecutionStatus.FAILED)
        if execution.input.get("breaks"):
            raise RuntimeError("secret words of a defect")
        while execution.step_count < execution.input["steps"]:
            self._note("step", execution)
            await self._block(execution)
            if await self._interrupted(_seconds(execution), control):
                return await self._finish(execution, ExecutionStatus.CANCELLED)
            execution = replace(execution, step_count=execution.step_count + 1, crashes=0)
            if execution.step_count == execution.input["steps"]:
                break
            if control.hands_back:
                return await self._handed_back(execution)
            await self._store.write(lambda tx, now=execution: tx.save_execution(now), name="step")
            self._note("stored", execution)
        return await self._finish(execution, ExecutionStatus.COMPLETED)

    async def _block(self, execution: Execution) -> None:
        if execution.step_count > 0:
            return
        if seconds := execution.input.get("blocks"):
            time.sleep(seconds)  # noqa: ASYNC251 - that is the point
            self._note("blocked", execution)
        if seconds := execution.input.get("blocks_in_write"):
            blocking = [seconds]

            async def block(tx: Transaction) -> None:
                await tx.execution(execution.id, lock=True)
                # Only once: the database may end a transaction that stands still.
                time.sleep(blocking.pop() if blocking else 0)  # noqa: ASYNC251

            await self._store.write(block, name="block")
            self._note("blocked", execution)

    async def _interrupted(self, seconds: float, control: RunControl) -> bool:
        until = self._clock.monotonic() + seconds
        while True:
            if control.abandoned_by is not None:
                raise control.abandoned_by
            if control.cancellation.requested:
                return True
            left = until - self._clock.monotonic()
            if left <= 0:
                return False
            await asyncio.sleep(min(left, LOOK_SECONDS))

    async def _handed_back(self, execution: Execution) -> ExecutionStatus:
        waiting = replace(execution, status=ExecutionStatus.PENDING, worker_id=None)

        async def hand_back(tx: Transaction) -> None:
            await tx.save_execution(waiting)
            await self._jobs.enqueue(tx, waiting.id)

        await self._store.write(hand_back, name="hand_back")
        self._note("handed back", execution)
        return ExecutionStatus.PENDING

    async def _finish(self, execution: Execution, status: ExecutionStatus) -> ExecutionStatus:
        now = self._clock.now()
        over = replace(execution, status=status, worker_id=None, completed_at=now)

        async def finished(tx: Transaction) -> None:
            session_id = over.session_id
            session = None if session_id is None else await tx.session(session_id, lock=True)
            deps = EndDeps(jobs=self._jobs, clock=self._clock, settings=SessionSettings())
            await close_execution(tx, over, session, [], deps, unseen=[])

        await self._store.write(finished, name="finish")
        self._note("finished", over)
        return status

    def _note(self, what: str, execution: Execution) -> None:
        """One write to a file opened for appending: lines of several processes do not mix."""
        at = self._clock.monotonic()
        words = [what, execution.id, execution.attempt, execution.step_count, os.getpid(), at]
        line = "\t".join(map(str, words)) + "\n"
        file = os.open(self._witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def _seconds(execution: Execution) -> float:
    """How long each step waits."""
    seconds = execution.input["seconds"]
    return seconds if execution.attempt == 1 else execution.input.get("seconds_again", seconds)

"""The heartbeat of a worker: renews its lease from a thread of its own.

The thread has its own event loop and its own connection, so that whatever blocks the worker's event
loop costs no lease. It ends when it finds that the worker holds nothing, so that a worker with one
short execution after the other does not start a thread for each. What it learns is delivered on the
worker's loop; it never touches a run itself.
"""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from stepwell.clock import Clock
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import Execution
from stepwell.sessions.settings import SessionSettings
from stepwell.worker.lease import WorkerLease

logger = logging.getLogger("stepwell.worker")


class HeartbeatReport(Struct, frozen=True, kw_only=True):
    """The result of one heartbeat."""

    worker_id: str
    is_lost: bool = False
    """Whether another worker removed the record, so that all its executions belong to others."""
    taken: Sequence[Execution] = ()
    """Executions that others have claimed."""
    cancel_requested: Mapping[str, str] = {}
    """Requests to cancel, by execution id."""


Deliver = Callable[[HeartbeatReport], None]


class Heartbeat:
    """Keeps the lease of one worker. All methods, and ``deliver``, are called on the worker's
    loop."""

    def __init__(
        self,
        store: Store,
        lease: WorkerLease,
        deliver: Deliver,
        *,
        settings: SessionSettings,
        clock: Clock,
    ) -> None:
        self._store, self._lease, self._deliver = store, lease, deliver
        self._settings, self._clock = settings, clock
        self._held: dict[tuple[str, int], Execution] = {}
        self._thread: _HeartbeatThread | None = None

    def start(self, execution: Execution) -> None:
        """Renew the lease for that execution from now on. Returns at once: what the loop does next
        may block it."""
        self._held[execution.id, execution.attempt] = execution
        held = tuple(self._held.values())
        if self._thread is None or not self._thread.hold(held):
            self._thread = _HeartbeatThread(
                self._store, self._lease, self._deliver, self._settings, self._clock
            )
            self._thread.hold(held)
            self._thread.start()

    def stop(self, execution: Execution) -> None:
        """Stop renewing the lease for that execution."""
        self._held.pop((execution.id, execution.attempt), None)
        if self._thread is not None:
            self._thread.hold(tuple(self._held.values()))

    async def close(self) -> None:
        """End the thread at once: the worker takes nothing any more."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await thread.end(self._settings.heartbeat_seconds)

    def beat_now(self) -> None:
        """Send a heartbeat at once: somebody requested something of an execution."""
        if self._thread is not None:
            self._thread.beat_now()


class _HeartbeatThread:
    """One life of the thread: from the first execution that is held until it finds none."""

    def __init__(
        self,
        store: Store,
        lease: WorkerLease,
        deliver: Deliver,
        settings: SessionSettings,
        clock: Clock,
    ) -> None:
        self._origin, self._lease, self._deliver = store, lease, deliver
        self._settings, self._clock = settings, clock
        self._worker_loop = asyncio.get_running_loop()
        self._worker_thread = threading.get_ident()
        self._loop = asyncio.new_event_loop()
        self._answered_at = self._loop.time()
        self._store: Store | None = None
        self._held: Sequence[Execution] = ()
        self._wanted = asyncio.Event()
        self._is_ending = False
        self._guard = threading.Lock()
        """Around the decision to end: what is held then is left to another thread."""
        self._thread = threading.Thread(target=self._run, name="stepwell-heartbeat", daemon=True)

    # Called on the worker's loop

    def start(self) -> None:
        self._thread.start()

    def hold(self, executions: Sequence[Execution]) -> bool:
        """Return whether it is still there to renew the lease for them."""
        with self._guard:
            self._held = executions
            return not self._is_ending

    def beat_now(self) -> None:
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._wanted.set)

    async def end(self, within: float) -> None:
        """End the thread without waiting for one that hangs in the database."""
        self._is_ending = True
        self.beat_now()
        await asyncio.to_thread(self._thread.join, within)

    # Runs in the thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._beat_until_the_end())

    async def _beat_until_the_end(self) -> None:
        watching = asyncio.create_task(self._watch_worker_loop())
        try:
            await self._beat_loop()
        finally:
            watching.cancel()
            await asyncio.wait({watching})
            if self._store is not None:
                with suppress(StoreUnavailableError):
                    await self._store.close()

    async def _beat_loop(self) -> None:
        every = self._settings.heartbeat_seconds
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every):
                    await self._wanted.wait()
            took = every
            # Who waited long for the database waits on, to be the next whom it answers.
            while took >= every:
                if self._ends_here():
                    return
                self._wanted.clear()
                began = self._loop.time()
                await self._beat_once()
                took = self._loop.time() - began

    def _ends_here(self) -> bool:
        with self._guard:
            self._is_ending = self._is_ending or not self._held
            return self._is_ending

    async def _beat_once(self) -> None:
        asked_at, worker_id = self._clock.monotonic(), self._lease.worker_id
        whole, every = self._settings.lease_seconds, self._settings.heartbeat_seconds
        # An overdue lease is renewed as well: perhaps nobody took over.
        within = max(self._lease.renewed_at + whole - asked_at, every)
        try:
            async with asyncio.timeout(within):
                if self._store is None:
                    self._store = await self._origin.reopen()
                report = await self._store.write(
                    lambda tx: self._renew(tx, worker_id, self._held), name="heartbeat"
                )
        except (TimeoutError, StoreUnavailableError) as error:
            logger.warning("could not renew the lease of worker %s: %r", worker_id, error)
            return
        except Exception:
            logger.exception("a heartbeat of worker %s failed", worker_id)
            return
        if not report.is_lost:
            self._lease.confirm(worker_id, asked_at)
        with suppress(RuntimeError):  # the worker's loop is closed
            self._worker_loop.call_soon_threadsafe(self._deliver, report)

    async def _renew(
        self, tx: Transaction, worker_id: str, held: Sequence[Execution]
    ) -> HeartbeatReport:
        if not await self._lease.renew(tx, worker_id):
            return HeartbeatReport(worker_id=worker_id, is_lost=True)
        found = {(each.id, each.attempt): each for each in await tx.held_by(worker_id)}
        cancel_requested: dict[str, str] = {}
        taken: list[Execution] = []
        for execution in held:
            row = found.get((execution.id, execution.attempt))
            if row is None:
                # Just ended by its own run, or taken over.
                stored = await tx.execution(execution.id)
                if stored is None or stored.attempt != execution.attempt:
                    taken.append(execution)
            elif row.cancel_requested is not None:
                cancel_requested[execution.id] = row.cancel_requested
        return HeartbeatReport(worker_id=worker_id, taken=taken, cancel_requested=cancel_requested)

    async def _watch_worker_loop(self) -> None:
        """Log the stack of the worker's loop if it is blocked for half a lease."""
        patience, is_logged = self._settings.lease_seconds / 2, False
        while True:
            with suppress(RuntimeError):
                self._worker_loop.call_soon_threadsafe(self._note_answer)
            await asyncio.sleep(patience / 4)
            silent = self._loop.time() - self._answered_at
            if silent > patience and not is_logged:
                logger.error(
                    "the event loop has been blocked for %.1f s; the lease is renewed all the "
                    "same. It is at:\n%s",
                    silent,
                    self._worker_stack(),
                )
            is_logged = silent > patience

    def _note_answer(self) -> None:
        self._answered_at = self._loop.time()

    def _worker_stack(self) -> str:
        frame = sys._current_frames().get(self._worker_thread)  # pyright: ignore[reportPrivateUsage] - its public name
        return "".join(traceback.format_stack(frame)) if frame is not None else "(its thread ended)"

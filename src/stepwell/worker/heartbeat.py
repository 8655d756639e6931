"""The heartbeat of a worker: renews leases from a thread of its own.

The thread has its own event loop and its own connections, so that whatever blocks the worker's
event loop costs no lease. It lives as long as the worker holds an execution. What it learns is
delivered on the worker's loop; it never touches a run itself.
"""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from stepwell.clock import Clock
from stepwell.sessions.errors import LostLeaseError, StoreUnavailableError
from stepwell.sessions.ports import Lease, Store
from stepwell.sessions.records import Execution
from stepwell.sessions.settings import SessionSettings
from stepwell.worker.leases import Leases

logger = logging.getLogger("stepwell.worker")

Deliver = Callable[[Lease | Exception], None]
"""Takes a renewed lease, or why there will be none any more, on the worker's loop."""


class Beat:
    """The heartbeat of one execution."""

    def __init__(self, execution: Execution, deliver: Deliver, renewed_at: float) -> None:
        self.execution = execution
        self.deliver = deliver
        self.renewed_at = renewed_at
        """When the newest lease was asked for, by the monotonic clock."""
        self.wanted = asyncio.Event()
        """Set, in the loop of the thread, for a renewal that does not wait for its time."""


class Heartbeat:
    """Keeps the leases of one worker. All methods are called on the worker's loop."""

    def __init__(
        self, store: Store, leases: Leases, settings: SessionSettings, clock: Clock
    ) -> None:
        self._store, self._leases = store, leases
        self._settings, self._clock = settings, clock
        self._beats: set[Beat] = set()
        self._thread: _HeartbeatThread | None = None

    def start(self, execution: Execution, deliver: Deliver) -> Beat:
        """Renew the lease of that execution from now on. Does not wait for anything: what the loop
        does next may block it."""
        beat = Beat(execution, deliver, self._clock.monotonic())
        if self._thread is None:
            self._thread = _HeartbeatThread(self._store, self._leases, self._settings, self._clock)
            self._thread.start()
        self._beats.add(beat)
        self._thread.add(beat)
        return beat

    async def stop(self, beat: Beat) -> None:
        """Leave the lease as it is."""
        self._beats.discard(beat)
        thread = self._thread
        if thread is None:
            return
        thread.remove(beat)
        if not self._beats:
            self._thread = None
            await thread.end(self._settings.heartbeat_seconds)

    def renew_now(self, beat: Beat) -> None:
        """Somebody wants something of the execution: what it is comes with the lease."""
        if self._thread is not None:
            self._thread.call(beat.wanted.set)


class _HeartbeatThread:
    """One life of the thread: from the first execution that is held to the last."""

    def __init__(
        self, store: Store, leases: Leases, settings: SessionSettings, clock: Clock
    ) -> None:
        self._origin, self._leases = store, leases
        self._settings, self._clock = settings, clock
        self._worker_loop = asyncio.get_running_loop()
        self._worker_thread = threading.get_ident()
        self._loop = asyncio.new_event_loop()
        self._answered_at = self._loop.time()
        self._store: asyncio.Task[Store] | None = None
        self._tasks: dict[Beat, asyncio.Task[None]] = {}
        self._ending = asyncio.Event()
        self._thread = threading.Thread(target=self._live, name="stepwell-heartbeat", daemon=True)

    # Called on the worker's loop

    def start(self) -> None:
        self._thread.start()

    def add(self, beat: Beat) -> None:
        self.call(lambda: self._begin(beat))

    def remove(self, beat: Beat) -> None:
        self.call(lambda: self._stop(beat))

    async def end(self, within: float) -> None:
        """End the thread; one that hangs in the database is left to end by itself."""
        self.call(self._ending.set)
        await asyncio.to_thread(self._thread.join, within)

    def call(self, act: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(act)

    # Runs in the thread

    def _live(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._beat_until_the_end())

    async def _beat_until_the_end(self) -> None:
        watching = asyncio.create_task(self._watch_worker_loop())
        await self._ending.wait()
        watching.cancel()
        for beat in self._tasks:
            self._stop(beat)
        await asyncio.wait({watching, *self._tasks.values()})
        if self._store is not None:
            with suppress(StoreUnavailableError):
                await (await self._store).close()

    def _begin(self, beat: Beat) -> None:
        self._tasks[beat] = task = asyncio.create_task(self._keep(beat))
        task.add_done_callback(lambda _: self._tasks.pop(beat))

    def _stop(self, beat: Beat) -> None:
        task = self._tasks.get(beat)
        if task is not None and not task.cancelling():
            task.cancel()

    async def _keep(self, beat: Beat) -> None:
        every = self._settings.heartbeat_seconds
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(every):
                        await beat.wanted.wait()
                took = every
                # Who waited long for the database waits on, to be the next whom it answers.
                while took >= every:
                    beat.wanted.clear()
                    began = self._loop.time()
                    await _finish(self._renew(beat))
                    took = self._loop.time() - began
        except LostLeaseError as lost:
            self._deliver(beat, lost)
        except Exception as error:
            logger.exception("the heartbeat of execution %s broke", beat.execution.id)
            self._deliver(beat, error)

    async def _renew(self, beat: Beat) -> None:
        asked_at = self._clock.monotonic()
        whole, every = self._settings.lease_seconds, self._settings.heartbeat_seconds
        # Also one that is overdue is asked for: perhaps nobody else wanted it.
        within = max(beat.renewed_at + whole - asked_at, every)
        lease = await self._leases.renew(beat.execution, self._open_store, within=within)
        if lease is not None:
            beat.renewed_at = asked_at
            self._deliver(beat, lease)

    async def _open_store(self) -> Store:
        if self._store is None or (self._store.done() and self._store.exception() is not None):
            self._store = asyncio.create_task(self._origin.reopen())
        return await asyncio.shield(self._store)

    def _deliver(self, beat: Beat, found: Lease | Exception) -> None:
        with suppress(RuntimeError):  # the worker's loop is closed
            self._worker_loop.call_soon_threadsafe(beat.deliver, found)

    async def _watch_worker_loop(self) -> None:
        """Log where the worker's loop stands when it does nothing else for half a lease."""
        patience, is_logged = self._settings.lease_seconds / 2, False
        while True:
            with suppress(RuntimeError):
                self._worker_loop.call_soon_threadsafe(self._note_answer)
            await asyncio.sleep(patience / 4)
            silent = self._loop.time() - self._answered_at
            if silent > patience and not is_logged:
                logger.error(
                    "the event loop has been blocked for %.1f s; leases are renewed all the same. "
                    "It is at:\n%s",
                    silent,
                    self._worker_stack(),
                )
            is_logged = silent > patience

    def _note_answer(self) -> None:
        self._answered_at = self._loop.time()

    def _worker_stack(self) -> str:
        frame = sys._current_frames().get(self._worker_thread)  # pyright: ignore[reportPrivateUsage] - its public name
        return "".join(traceback.format_stack(frame)) if frame is not None else "(its thread ended)"


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end also when the waiting task is cancelled: a statement that is cut off costs
    the connection it runs on."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise

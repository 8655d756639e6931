"""Claims executions, runs them under the worker's heartbeat, and releases them.

Called by ``Worker``. Whatever breaks an execution ends that execution and never the worker; a
cancellation of the surrounding task passes through.
"""

import asyncio
import logging
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct, field

from stepwell.clock import Clock, SystemClock
from stepwell.foreign import abandon
from stepwell.ids import IdFactory, RunIds, new_id, running_as
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.runner import RunControl
from stepwell.sessions.endings.end import EndDeps
from stepwell.sessions.endings.outside import mark_failed
from stepwell.sessions.errors import LostLeaseError, StoreUnavailableError
from stepwell.sessions.ports import Jobs, Store, execution_topic
from stepwell.sessions.records import Execution
from stepwell.sessions.settings import SessionSettings
from stepwell.worker.claims import Claims
from stepwell.worker.heartbeat import Heartbeat, HeartbeatReport
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.lease import WorkerLease

logger = logging.getLogger("stepwell.worker")

_RESERVE = 0.25
"""The share of ``shutdown_seconds`` for abandoning runs that reach no step boundary."""
_LONGEST_RESERVE = 2.5


class ExecutionRunner(Protocol):
    """Runs a claimed execution; implemented by ``sessions.attempt.runner.Runner``."""

    @property
    def agents(self) -> Collection[str]:
        """The agent types that it can run; others are not claimed."""
        ...

    async def run(self, execution: Execution, control: RunControl, /) -> ExecutionStatus:
        """Run it and return the status of its row. Raises ``LostLeaseError``."""
        ...


class HandedOver(Exception):
    """Raised in a run when the process ends; another worker continues the execution."""


class _HeldExecution(Struct, eq=False):
    """An execution that this worker has claimed."""

    execution: Execution
    control: RunControl
    run: asyncio.Task[ExecutionStatus]
    abandoned: bool = False
    is_left_behind: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker ends without waiting for the run."""

    def abandon(self, why: BaseException) -> None:
        self.abandoned = True
        self.control.abandon(why)


class Work:
    """Claims executions and runs them, at most ``settings.concurrency`` at the same time.

    ``jobs`` wakes the workers for executions that this one lets go of. ``sessions``, which may grow
    meanwhile, keeps it to executions of these. ``worker_id`` must be unique to
    this worker: another one under the same id would renew the lease of a dead one.
    """

    def __init__(
        self,
        store: Store,
        runner: ExecutionRunner,
        *,
        settings: SessionSettings | None = None,
        worker_id: str,
        clock: Clock | None = None,
        jobs: Jobs | None = None,
        new_id: IdFactory = new_id,
        sessions: Collection[str] | None = None,
    ) -> None:
        self._store = store
        self._runner = runner
        self._settings = settings or SessionSettings()
        self._clock = clock or SystemClock()
        self._jobs = jobs or PolledJobs()
        self._new_id = new_id
        self._lease = WorkerLease(
            worker_id,
            agents=self._agents,
            seconds=self._settings.lease_seconds,
            clock=self._clock,
            new_id=new_id,
        )
        self._claims = Claims(
            store,
            self._jobs,
            self._lease,
            agents=self._agents,
            on_lost=self._lose_lease,
            settings=self._settings,
            clock=self._clock,
            sessions=sessions,
        )
        self._heartbeat = Heartbeat(
            store, self._lease, self._on_heartbeat, settings=self._settings, clock=self._clock
        )
        self._slots = asyncio.Semaphore(self._settings.concurrency)
        self._held: set[_HeldExecution] = set()
        self._claiming_now = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending = False

    @property
    def worker_id(self) -> str:
        """The id under which it claims; it changes when the lease is lost."""
        return self._lease.worker_id

    @property
    def running(self) -> int:
        """The number of executions that it holds."""
        return len(self._held)

    async def take(self, execution_id: str) -> bool:
        """Claim an execution and run it until it is over, paused or handed back.

        Return False if it is not free: another worker has it, or it is not its turn.
        """
        await self._slots.acquire()
        held = None
        try:
            if not self._ending:
                with self._during_claim():
                    execution = await self._claims.claim(execution_id)
                    held = None if execution is None else self._start(execution)
        finally:
            if held is None:
                self._slots.release()
        if held is None:
            return False
        await self._run_claimed(held)
        return True

    async def take_some(self) -> list[asyncio.Task[None]]:
        """Claim as many as there are free slots, in one transaction.

        Each task ends when its execution is over, paused or handed back.
        """
        free, held = 0, list[_HeldExecution]()
        while not self._ending and not self._slots.locked():
            await self._slots.acquire()  # at once
            free += 1
        try:
            if free:
                with self._during_claim():
                    claimed = await self._claims.claim_some(free)
                    held = [self._start(execution) for execution in claimed]
        finally:
            for _ in range(free - len(held)):
                self._slots.release()
        return [
            asyncio.create_task(self._run_claimed(one), name=f"take {one.execution.id}")
            for one in held
        ]

    def hand_back_all(self) -> None:
        """Stop claiming, and hand each execution back at its next step boundary."""
        self._ending = True
        for held in self._held:
            held.control.hand_back()

    async def abandon_all(self, *, within: float | None = None) -> None:
        """Stop what is still running at once, and leave it to others.

        That does not count as a crash. A run that does not end in that time is left behind; it can
        write nothing more.
        """
        self._ending = True
        left = [held for held in self._held if not held.run.done()]
        if not left:
            return
        pause = self._settings.heartbeat_seconds
        pause = pause if within is None else min(pause, within / 2)
        for held in left:
            held.abandon(HandedOver("the worker ends"))
        if deaf := await _still_running(left, pause):
            for held in deaf:
                held.run.cancel()
            deaf = await _still_running(deaf, pause)
        for held in deaf:
            logger.warning(
                "execution %s did not end within %g s and is left behind",
                held.execution.id,
                2 * pause,
            )
        await self._claims.release([held.execution for held in left])
        for held in deaf:
            held.is_left_behind.set()

    async def shut_down(self) -> None:
        """Hand everything back, and abandon what reaches no step boundary in time. All of it takes
        no longer than ``settings.shutdown_seconds``, whatever the tools do."""
        self.hand_back_all()
        whole = self._settings.shutdown_seconds
        reserve = min(whole * _RESERVE, _LONGEST_RESERVE)
        try:
            async with asyncio.timeout(whole - reserve):
                await self._idle.wait()
        except TimeoutError:
            logger.warning(
                "worker %s: %d executions reached no step boundary in %g s and are abandoned",
                self.worker_id,
                self.running,
                whole - reserve,
            )
        await self.abandon_all(within=reserve * 0.5)
        await self._heartbeat.close()
        if self._lease.is_held:
            await self._claims.leave()

    @contextmanager
    def _during_claim(self) -> Generator[None]:
        """Make the end wait for claims in progress: nobody else would know of them."""
        self._claiming_now += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._claiming_now -= 1
            self._notice_idle()

    def _notice_idle(self) -> None:
        if not self._claiming_now and not self._held:
            self._idle.set()

    def _agents(self) -> Collection[str]:
        return self._runner.agents

    def _start(self, execution: Execution) -> _HeldExecution:
        control = RunControl()
        if execution.cancel_requested is not None:
            control.cancellation.request(execution.cancel_requested)
        if self._ending:
            control.hand_back()

        # Before the run, whose first step may block the loop.
        self._heartbeat.start(execution)
        run = asyncio.create_task(
            self._runner.run(execution, control), name=f"execution {execution.id}"
        )
        held = _HeldExecution(execution, control, run)
        self._held.add(held)
        return held

    def _on_heartbeat(self, report: HeartbeatReport) -> None:
        if report.is_lost:
            self._lose_lease(report.worker_id)
        taken = {(each.id, each.attempt) for each in report.taken}
        for held in self._held:
            execution = held.execution
            if (execution.id, execution.attempt) in taken:
                held.abandon(LostLeaseError(execution.id, execution.attempt))
            elif (why := report.cancel_requested.get(execution.id)) is not None:
                held.control.cancellation.request(why)

    def _lose_lease(self, worker_id: str) -> None:
        """Abandon all runs of that id, whose lease another worker took over."""
        logger.warning("worker %s lost its lease and continues under a new id", worker_id)
        self._lease.replace(worker_id)
        for held in self._held:
            execution = held.execution
            if execution.worker_id == worker_id:
                held.abandon(LostLeaseError(execution.id, execution.attempt))

    async def _run_claimed(self, held: _HeldExecution) -> None:
        execution = held.execution
        ids = RunIds(execution.id, execution.session_id, execution.attempt)
        with running_as(ids):
            await self._run_with_heartbeat(held)

    async def _run_with_heartbeat(self, held: _HeldExecution) -> None:
        watching = asyncio.create_task(self._watch(held), name=f"watch {held.execution.id}")
        left_behind = asyncio.create_task(held.is_left_behind.wait())
        try:
            await asyncio.wait({held.run, left_behind}, return_when=asyncio.FIRST_COMPLETED)
            if held.run.done():
                await self._handle_result(held)
        finally:
            await _end(watching, left_behind)
            await _end(held.run, within=self._settings.heartbeat_seconds)
            if not _has_result(held.run):
                self._lease.disown(held.execution)
            self._heartbeat.stop(held.execution)
            self._held.discard(held)
            if not self._held:
                self._lease.rest()
            self._slots.release()
            self._notice_idle()

    async def _handle_result(self, held: _HeldExecution) -> None:
        """Handle the end of a run; an unexpected exception fails its execution."""
        execution = held.execution
        if held.run.cancelled():
            return
        error = held.run.exception()
        if error is None:
            logger.debug("execution %s: %s", execution.id, held.run.result())
        elif held.abandoned or isinstance(error, LostLeaseError):
            logger.info("execution %s is left to others: %s", execution.id, error)
        elif isinstance(error, StoreUnavailableError):
            logger.warning("execution %s is interrupted: %s", execution.id, error)
        else:
            await self._fail(execution, error)

    async def _fail(self, execution: Execution, error: BaseException) -> None:
        error_id = self._new_id()
        logger.error(
            "execution %s (session %s, agent %s, attempt %d) failed; error id %s",
            execution.id,
            execution.session_id,
            execution.agent_type,
            execution.attempt,
            error_id,
            exc_info=error,
        )
        deps = EndDeps(jobs=self._jobs, clock=self._clock, settings=self._settings)
        try:
            await self._store.write(
                lambda tx: mark_failed(tx, execution, error_id, deps), name="fail"
            )
        except Exception:
            # It is released, another worker tries, and three crashes are the limit.
            logger.exception("could not mark execution %s as failed", execution.id)

    async def _watch(self, held: _HeldExecution) -> None:
        """Send a heartbeat when somebody requests something of the execution, and abandon its run
        if the lease was not renewed in time."""
        execution, loop = held.execution, asyncio.get_running_loop()
        every, whole = self._settings.heartbeat_seconds, self._settings.lease_seconds
        async with self._store.bus.subscribe(execution_topic(execution.id)) as news:
            while True:
                waited_since = loop.time()
                if await news.wait(every):
                    self._heartbeat.beat_now()
                # Who stood still, this loop or the whole process, judges only after a heartbeat
                # had its chance: perhaps nobody else wanted the execution.
                stood_still = loop.time() - waited_since > every * 2
                if not stood_still and self._clock.monotonic() - self._lease.renewed_at >= whole:
                    held.abandon(LostLeaseError(execution.id, execution.attempt))
                    return


def _has_result(run: asyncio.Task[ExecutionStatus]) -> bool:
    return run.done() and not run.cancelled() and run.exception() is None


async def _still_running(some: list[_HeldExecution], seconds: float) -> list[_HeldExecution]:
    """Return the tasks that have not stopped after that time."""
    await asyncio.wait({held.run for held in some}, timeout=seconds)
    return [held for held in some if not held.run.done()]


async def _end(*tasks: asyncio.Task[Any], within: float | None = None) -> None:
    """Cancel these and wait until they have ended; what they raise was handled already. A task that
    does not end in that time is abandoned."""
    for task in tasks:
        task.cancel()
    done, deaf = await asyncio.wait(tasks, timeout=within)
    for task in done:
        if not task.cancelled():
            task.exception()
    for task in deaf:
        abandon(task, task.get_name(), within or 0.0)

"""Executions in the hands of this worker: claim, heartbeat, and how they are let go of again.

Called by the embedded worker and by Procrastinate's. Whatever breaks an execution ends that
execution and never the worker; a cancellation of the surrounding task passes through.
"""

import asyncio
import logging
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from msgspec import Struct, field

from stepwell.clock import Clock, SystemClock
from stepwell.foreign import abandon
from stepwell.ids import IdFactory, RunIds, new_id, running_as
from stepwell.sessions.ending import Means
from stepwell.sessions.errors import LostLeaseError, StoreUnavailableError
from stepwell.sessions.ports import Jobs, Lease, Store, Transaction, execution_topic
from stepwell.sessions.records import Execution, ExecutionStatus
from stepwell.sessions.runner import RunControl
from stepwell.sessions.settings import SessionSettings
from stepwell.worker.failing import failed
from stepwell.worker.heartbeat import Beat, Heartbeat
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.leases import Leases

logger = logging.getLogger("stepwell.worker")

_RESERVE = 0.25
"""The share of ``shutdown_seconds`` that is kept for abandoning what reaches no step boundary."""
_LONGEST_RESERVE = 2.5


class ExecutionRunner(Protocol):
    """Runs a claimed execution; ``sessions.runner.Runner`` is the one there is."""

    def knows(self, agent_type: str, /) -> bool:
        """Whether it has that agent; executions of others are not claimed."""
        ...

    async def run(self, execution: Execution, control: RunControl, /) -> ExecutionStatus:
        """Run it; the status that it left the row in. Raises ``LostLeaseError``."""
        ...


class HandedOver(Exception):
    """The process ends, so the execution is left for another worker to go on with."""


class _Held(Struct, eq=False):
    """An execution that this worker has the lease of."""

    execution: Execution
    control: RunControl
    run: asyncio.Task[ExecutionStatus]
    beat: Beat
    abandoned: bool = False
    is_left_behind: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the worker ends and does not wait for the run any longer."""

    def abandon(self, why: BaseException) -> None:
        self.abandoned = True
        self.control.abandon(why)


class Work:
    """Claims executions and runs them, ``settings.concurrency`` at most at the same time.

    ``jobs`` is told of executions that this worker lets go of; without it the workers find them by
    looking. ``sessions``, which may grow meanwhile, keeps it to executions of these.
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
        self.worker_id = worker_id
        self._leases = Leases(
            store,
            self._jobs,
            knows=runner.knows,
            worker_id=worker_id,
            seconds=self._settings.lease_seconds,
            clock=self._clock,
            sessions=sessions,
        )
        self._heartbeat = Heartbeat(store, self._leases, self._settings, self._clock)
        self._slots = asyncio.Semaphore(self._settings.concurrency)
        self._held: set[_Held] = set()
        self._claims = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._ending = False

    @property
    def running(self) -> int:
        """How many executions it holds."""
        return len(self._held)

    async def take(self, execution_id: str) -> bool:
        """Claim it and run it until it is over, paused or handed back.

        False if there was nothing to claim: another worker has it, or its turn has not come.
        """
        await self._slots.acquire()
        held = None
        try:
            if not self._ending and execution_id not in self._at_work:
                with self._claiming():
                    execution = await self._leases.claim(execution_id)
                    held = None if execution is None else self._begun(execution)
        finally:
            if held is None:
                self._slots.release()
        if held is None:
            return False
        await self._seen_through(held)
        return True

    async def take_some(self) -> list[asyncio.Task[None]]:
        """Claim the oldest there are, as many as it has free hands, in one transaction.

        Each task ends when its execution is over, paused or handed back.
        """
        free, held = 0, list[_Held]()
        while not self._ending and not self._slots.locked():
            await self._slots.acquire()  # at once
            free += 1
        try:
            if free:
                with self._claiming():
                    claims = await self._leases.claim_some(free, but=self._at_work)
                    held = [self._begun(execution) for execution in claims]
        finally:
            for _ in range(free - len(held)):
                self._slots.release()
        return [
            asyncio.create_task(self._seen_through(one), name=f"take {one.execution.id}")
            for one in held
        ]

    async def claimable(self, tx: Transaction, limit: int) -> Sequence[str]:
        """The oldest executions of its agents that are there to be had."""
        return await self._leases.free(tx, limit)

    @property
    def _at_work(self) -> set[str]:
        """What it must not claim, even if the lease ran out because the process stood still: it
        would take its own executions away from itself."""
        return {held.execution.id for held in self._held if not held.run.done()}

    def hand_back_all(self) -> None:
        """Take nothing any more, and give each execution back at its next step boundary."""
        self._ending = True
        for held in self._held:
            held.control.hand_back()

    async def abandon_all(self, *, within: float | None = None) -> None:
        """Stop what is still running, at once, and leave it for others to go on with.

        It is no crash of theirs, so it does not count as one. A run that does not end in that time
        is left behind: it was told to write nothing more.
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
            await self._heartbeat.stop(held.beat)
        await self._leases.release([held.execution for held in left])
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

    @contextmanager
    def _claiming(self) -> Generator[None]:
        """Ending waits for claims that are under way: nobody else would know of them."""
        self._claims += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._claims -= 1
            self._notice_idle()

    def _notice_idle(self) -> None:
        if not self._claims and not self._held:
            self._idle.set()

    def _begun(self, execution: Execution) -> _Held:
        control = RunControl()
        if execution.cancel_requested is not None:
            control.cancellation.request(execution.cancel_requested)
        if self._ending:
            control.hand_back()

        def hear(found: Lease | Exception) -> None:
            if isinstance(found, Exception):
                held.abandon(found)
            elif (wish := found.execution.cancel_requested) is not None:
                control.cancellation.request(wish)

        # Before the run, which may block the loop with its first step.
        beat = self._heartbeat.start(execution, hear)
        run = asyncio.create_task(
            self._runner.run(execution, control), name=f"execution {execution.id}"
        )
        held = _Held(execution, control, run, beat)
        self._held.add(held)
        return held

    async def _seen_through(self, held: _Held) -> None:
        execution = held.execution
        ids = RunIds(execution.id, execution.session_id, execution.attempt)
        with running_as(ids):
            await self._watched_over(held)

    async def _watched_over(self, held: _Held) -> None:
        beating = asyncio.create_task(self._kept(held), name=f"heartbeat {held.execution.id}")
        left_behind = asyncio.create_task(held.is_left_behind.wait())
        try:
            await asyncio.wait({held.run, left_behind}, return_when=asyncio.FIRST_COMPLETED)
            if held.run.done():
                await self._settled(held)
        finally:
            await _end(beating, left_behind)
            await _end(held.run, within=self._settings.heartbeat_seconds)
            await self._heartbeat.stop(held.beat)
            self._held.discard(held)
            self._slots.release()
            self._notice_idle()

    async def _settled(self, held: _Held) -> None:
        """Look at how a run ended; what it should not have raised fails its execution."""
        execution = held.execution
        if held.run.cancelled():
            return
        error = held.run.exception()
        if error is None:
            logger.debug("execution %s: %s", execution.id, held.run.result())
        elif held.abandoned or isinstance(error, LostLeaseError):
            logger.info("execution %s is left to others: %s", execution.id, error)
        elif isinstance(error, StoreUnavailableError):
            # Not given back: until its lease runs out the database has time to recover.
            logger.warning("execution %s is interrupted: %s", execution.id, error)
        else:
            await self._fail(execution, error)

    async def _fail(self, execution: Execution, error: BaseException) -> None:
        error_id = self._new_id()
        logger.error(
            "execution %s (session %s, agent %s, attempt %d) broke; error id %s",
            execution.id,
            execution.session_id,
            execution.agent_type,
            execution.attempt,
            error_id,
            exc_info=error,
        )
        means = Means(jobs=self._jobs, clock=self._clock, settings=self._settings)
        try:
            await self._store.write(lambda tx: failed(tx, means, execution, error_id), name="fail")
        except Exception:
            # Its lease runs out, another worker tries, and three times is the limit.
            logger.exception("execution %s can't be finished as failed", execution.id)

    async def _kept(self, held: _Held) -> None:
        """See that the lease is renewed until the run has ended, or is not ours any more."""
        try:
            await self._beat(held)
        except LostLeaseError as lost:
            held.abandon(lost)
        except Exception as error:
            logger.exception("the heartbeat of execution %s broke", held.execution.id)
            held.abandon(error)

    async def _beat(self, held: _Held) -> None:
        execution, loop = held.execution, asyncio.get_running_loop()
        every, whole = self._settings.heartbeat_seconds, self._settings.lease_seconds
        async with self._store.bus.subscribe(execution_topic(execution.id)) as news:
            while True:
                waited_since = loop.time()
                if await news.wait(every):
                    self._heartbeat.renew_now(held.beat)
                # Who stood still, this loop or the whole process, judges only after a heartbeat
                # had its chance: perhaps nobody else wanted the execution.
                stood_still = loop.time() - waited_since > every * 2
                if not stood_still and self._clock.monotonic() - held.beat.renewed_at >= whole:
                    raise LostLeaseError(execution.id, execution.attempt)


async def _still_running(some: list[_Held], seconds: float) -> list[_Held]:
    """Return those that have not stopped after that time."""
    await asyncio.wait({held.run for held in some}, timeout=seconds)
    return [held for held in some if not held.run.done()]


async def _end(*tasks: asyncio.Task[Any], within: float | None = None) -> None:
    """Cancel these and wait until they have ended; what they raise was looked at already. One that
    does not end in that time is abandoned."""
    for task in tasks:
        task.cancel()
    done, deaf = await asyncio.wait(tasks, timeout=within)
    for task in done:
        if not task.cancelled():
            task.exception()
    for task in deaf:
        abandon(task, task.get_name(), within or 0.0)

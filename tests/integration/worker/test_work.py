"""One execution in the hands of a worker: lease, cancellation, defects, endings."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store, Transaction, execution_topic
from stepwell.sessions.records import Execution
from stepwell.testing import FakeClock
from stepwell.worker.work import Work
from stepwell.worker.worker import Worker
from tests.integration.worker.bench_of_workers import CLOCK, ENOUGH_SECONDS, Place, settings_of
from tests.integration.worker.step_runner import StepRunner


def work_at(
    place: Place,
    store: Any = None,
    name: str = "worker-1",
    clock: Clock = CLOCK,
    **settings: object,
) -> Work:
    return Work(
        store or place.store,
        StepRunner(place.store, place.jobs, place.witness),
        settings=settings_of(**settings),
        worker_id=name,
        clock=clock,
        jobs=place.jobs,
    )


class StoreThatGoesAway:
    """A store whose writes of one name fail from some moment on, also those of its heartbeat."""

    def __init__(self, place: Place, name: str) -> None:
        self._store = place.store
        self._name = name
        self.is_away = False
        self.hangs = False
        self.failed = 0

    @property
    def bus(self) -> Any:
        return self._store.bus

    async def write(self, work: Callable[[Transaction], Awaitable[Any]], /, *, name: str) -> Any:
        await self.fail(name)
        return await self._store.write(work, name=name)

    async def fail(self, name: str) -> None:
        if self.is_away and name == self._name:
            self.failed += 1
            if self.hangs:
                await asyncio.Event().wait()
            raise StoreUnavailableError("gone")

    async def read(self, work: Callable[[Transaction], Awaitable[Any]], /) -> Any:
        return await self._store.read(work)

    async def reopen(self) -> "Reopened":
        return Reopened(self, await self._store.reopen())


class Reopened:
    """A copy of such a store for the heartbeat."""

    def __init__(self, origin: StoreThatGoesAway, store: Store) -> None:
        self._origin, self._store = origin, store

    async def write(self, work: Callable[[Transaction], Awaitable[Any]], /, *, name: str) -> Any:
        await self._origin.fail(name)
        return await self._store.write(work, name=name)

    async def close(self) -> None:
        await self._store.close()


async def wish_for_the_end(place: Place, id: str, *, tells: bool) -> None:
    async def wish(tx: Transaction) -> None:
        found = await tx.execution(id, lock=True)
        assert found is not None
        await tx.save_execution(replace(found, cancel_requested="enough"))
        if tells:
            tx.tell(execution_topic(id))

    await place.store.write(wish, name="cancel")


async def test_an_execution_is_claimed_and_run_to_its_end(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(steps=2)

    assert await work_at(sqlite_place).take(id)

    found = await sqlite_place.get(id)
    assert (found.status, found.step_count, found.attempt) == (ExecutionStatus.COMPLETED, 2, 1)
    assert found.worker_id is None


async def test_what_is_over_or_not_the_head_can_not_be_taken(sqlite_place: Place) -> None:
    first, second = await sqlite_place.send(2)
    work = work_at(sqlite_place)

    assert not await work.take(second)
    assert await work.take(first)
    assert not await work.take(first)
    assert await work.take(second)


async def test_a_run_longer_than_its_lease_keeps_it(sqlite_place: Place) -> None:
    # Leases run out by this clock alone, and only the test moves it.
    clock = FakeClock(CLOCK.now())
    [id] = await sqlite_place.send(steps=1, seconds=300)
    work = work_at(sqlite_place, clock=clock, lease_seconds=0.6, heartbeat_seconds=0.1)
    taking = asyncio.create_task(work.take(id))
    other = work_at(sqlite_place, name="worker-2", clock=clock)
    await sqlite_place.noted_soon("step", id)

    for _ in range(4):
        clock.advance(0.4)
        # A heartbeat that was under way still has the time before: that renewal is not enough.
        await sqlite_place.until_leased(id, clock.now() + timedelta(seconds=0.6))
        assert not await other.take(id)
    await wish_for_the_end(sqlite_place, id, tells=True)
    await taking

    found = await sqlite_place.get(id)
    assert (found.status, found.attempt) == (ExecutionStatus.CANCELLED, 1)


async def test_cancel_reaches_a_run_at_once_when_it_is_told(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(steps=1, seconds=300)
    taking = asyncio.create_task(
        work_at(sqlite_place, lease_seconds=1200, heartbeat_seconds=600).take(id)
    )
    await sqlite_place.noted_soon("step", id)

    await wish_for_the_end(sqlite_place, id, tells=True)
    await asyncio.wait_for(taking, ENOUGH_SECONDS)

    assert (await sqlite_place.get(id)).status is ExecutionStatus.CANCELLED


async def test_cancel_reaches_a_run_with_the_heartbeat_when_nobody_tells(
    sqlite_place: Place,
) -> None:
    [id] = await sqlite_place.send(steps=1, seconds=300)
    taking = asyncio.create_task(work_at(sqlite_place).take(id))
    await sqlite_place.noted_soon("step", id)

    await wish_for_the_end(sqlite_place, id, tells=False)
    async with asyncio.timeout(ENOUGH_SECONDS):
        await taking

    assert (await sqlite_place.get(id)).status is ExecutionStatus.CANCELLED


async def test_a_wish_from_before_the_claim_is_heeded(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(steps=1, seconds=300)
    await wish_for_the_end(sqlite_place, id, tells=False)

    async with asyncio.timeout(ENOUGH_SECONDS):
        await work_at(sqlite_place).take(id)

    assert (await sqlite_place.get(id)).status is ExecutionStatus.CANCELLED


async def test_a_defect_fails_its_execution_and_not_the_worker(
    sqlite_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    broken, waiting = await sqlite_place.send(2, breaks=True)
    [fine] = await sqlite_place.send()
    work = work_at(sqlite_place)

    assert await work.take(broken)

    found = await sqlite_place.get(broken)
    assert found.status is ExecutionStatus.FAILED
    assert found.error_message is not None
    assert "secret words" not in found.error_message
    error_id = found.error_message.split()[-1].rstrip(".")
    logged = [record for record in caplog.records if error_id in record.getMessage()]
    assert len(logged) == 1
    assert logged[0].levelno == logging.ERROR
    assert broken in logged[0].getMessage()
    assert "secret words" in str(logged[0].exc_info)
    assert work.running == 0
    assert await work.take(waiting)
    assert await work.take(fine)


async def test_b121_people_are_told_of_a_defect_once(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(breaks=True)
    await work_at(sqlite_place).take(id)
    session_id = (await sqlite_place.get(id)).session_id
    assert session_id is not None

    messages = await sqlite_place.store.read(lambda tx: tx.messages(session_id, limit=10))
    events = await sqlite_place.store.read(lambda tx: tx.entries_after(session_id, 0, limit=10))

    assert [m.metadata["event_type"] for m in messages] == ["execution.failed"]
    [end] = events
    assert (end.type, end.payload["event_type"]) == ("agent.status", "execution.failed")
    assert end.payload["status"] == "failed"


async def test_b121_what_was_written_before_a_defect_is_not_there(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send()

    class BreaksWhileWriting(StepRunner):
        async def run(self, execution: Execution, control: Any) -> ExecutionStatus:
            async def write(tx: Transaction) -> ExecutionStatus:
                await tx.save_execution(replace(execution, step_count=7, output="half"))
                raise RuntimeError("a defect")

            return await sqlite_place.store.write(write, name="step")

    runner = BreaksWhileWriting(sqlite_place.store, sqlite_place.jobs, sqlite_place.witness)
    await Work(
        sqlite_place.store, runner, settings=settings_of(), worker_id="w", jobs=sqlite_place.jobs
    ).take(id)

    found = await sqlite_place.get(id)
    assert (found.status, found.step_count, found.output) == (ExecutionStatus.FAILED, 0, None)
    events = await sqlite_place.store.read(
        lambda tx: tx.entries_after(found.session_id or "", 0, limit=10)
    )
    assert [event.payload["event_type"] for event in events] == ["execution.failed"]


async def test_a_defect_after_the_takeover_changes_nothing(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(breaks=True)

    class TakenOver(StepRunner):
        async def run(self, execution: Execution, control: Any) -> ExecutionStatus:
            await stolen(sqlite_place, id)
            return await super().run(execution, control)

    work = Work(
        sqlite_place.store,
        TakenOver(sqlite_place.store, sqlite_place.jobs, sqlite_place.witness),
        settings=settings_of(),
        worker_id="worker-1",
    )
    await work.take(id)

    found = await sqlite_place.get(id)
    assert (found.status, found.worker_id) == (ExecutionStatus.RUNNING, "thief")


async def stolen(place: Place, id: str) -> None:
    """Claim it as if its worker had disowned it."""
    row = await place.get(id)

    async def steal(tx: Transaction) -> int:
        await tx.disown(row)
        return len(await tx.claim([id], worker_id="thief", now=CLOCK.now()))

    assert await place.store.write(steal, name="claim") == 1


async def test_a_run_whose_lease_was_lost_is_abandoned(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(steps=1, seconds=300)
    taking = asyncio.create_task(work_at(sqlite_place).take(id))
    await sqlite_place.noted_soon("step", id)

    await stolen(sqlite_place, id)
    async with asyncio.timeout(ENOUGH_SECONDS):
        await taking

    found = await sqlite_place.get(id)
    assert (found.status, found.worker_id, found.crashes) == (ExecutionStatus.RUNNING, "thief", 1)


@pytest.mark.parametrize("hangs", [False, True], ids=["that fails", "that hangs"])
async def test_without_a_database_for_longer_than_the_lease_the_run_is_abandoned(
    sqlite_place: Place, hangs: bool
) -> None:
    [id] = await sqlite_place.send(steps=1, seconds=300)
    store = StoreThatGoesAway(sqlite_place, "heartbeat")
    work = work_at(sqlite_place, store, lease_seconds=3.0, heartbeat_seconds=1.0)
    taking = asyncio.create_task(work.take(id))
    claimed_at = (await sqlite_place.noted_soon("claim", id)).at

    store.is_away, store.hangs = True, hangs
    async with asyncio.timeout(ENOUGH_SECONDS):
        await taking

    # Neither sooner nor later, in a way that a slow machine does not change: there is a heartbeat
    # between two tries.
    assert CLOCK.monotonic() - claimed_at >= 3.0
    assert 1 <= store.failed <= (2 if hangs else 4)
    assert (await sqlite_place.get(id)).status is ExecutionStatus.RUNNING


async def test_a_database_that_is_back_in_time_changes_nothing(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(steps=1, seconds=300)
    store = StoreThatGoesAway(sqlite_place, "heartbeat")
    taking = asyncio.create_task(work_at(sqlite_place, store, heartbeat_seconds=0.1).take(id))
    await sqlite_place.noted_soon("step", id)

    store.is_away = True
    async with asyncio.timeout(ENOUGH_SECONDS):
        while store.failed < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    store.is_away = False
    await sqlite_place.until_renewed(id)
    await wish_for_the_end(sqlite_place, id, tells=True)
    await taking

    found = await sqlite_place.get(id)
    assert (found.status, found.attempt) == (ExecutionStatus.CANCELLED, 1)


async def test_a_claim_without_a_database_takes_nothing(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send()
    store = StoreThatGoesAway(sqlite_place, "claim")
    store.is_away = True

    assert not await work_at(sqlite_place, store).take(id)
    assert await work_at(sqlite_place, store).take_some() == []


async def test_cancelling_the_surrounding_task_passes_through(sqlite_place: Place) -> None:
    [id] = await sqlite_place.send(steps=1, seconds=300)
    work = work_at(sqlite_place)
    taking = asyncio.create_task(work.take(id))
    await sqlite_place.noted_soon("step", id)

    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking

    assert work.running == 0
    assert (await sqlite_place.get(id)).status is ExecutionStatus.RUNNING


async def test_it_runs_no_more_at_once_than_it_may(sqlite_place: Place) -> None:
    ids = [(await sqlite_place.send(steps=1, seconds=0.1))[0] for _ in range(6)]
    work = work_at(sqlite_place, concurrency=2)
    most = 0

    async def take(id: str) -> None:
        nonlocal most
        taking = asyncio.create_task(work.take(id))
        while not taking.done():
            most = max(most, work.running)
            await asyncio.sleep(0.01)

    await asyncio.gather(*map(take, ids))

    assert most == 2
    assert len(sqlite_place.noted("finished")) == 6


async def test_shutting_down_hands_back_at_the_step_boundary(place: Place) -> None:
    [id] = await place.send(steps=3, seconds=2.0, seconds_again=0.0)
    work = work_at(place)
    taking = asyncio.create_task(work.take(id))
    await place.noted_soon("step", id)

    await work.shut_down()
    await taking

    found = await place.get(id)
    assert (found.status, found.step_count) == (ExecutionStatus.PENDING, 1)
    assert not await work.take(id)
    assert await work_at(place, name="worker-2").take(id)
    found = await place.get(id)
    assert (found.status, found.attempt, found.crashes) == (ExecutionStatus.COMPLETED, 2, 0)


async def test_what_reaches_no_boundary_is_abandoned_and_free_at_once(place: Place) -> None:
    [id] = await place.send(steps=1, seconds=300, seconds_again=0.0)
    work = work_at(place, shutdown_seconds=0.1)
    taking = asyncio.create_task(work.take(id))
    await place.noted_soon("step", id)

    async with asyncio.timeout(ENOUGH_SECONDS):
        await work.shut_down()
        await taking

    found = await place.get(id)
    assert (found.status, found.worker_id) == (ExecutionStatus.PENDING, None)
    assert await work_at(place, name="worker-2").take(id)
    found = await place.get(id)
    assert (found.status, found.attempt, found.crashes) == (ExecutionStatus.COMPLETED, 2, 0)


async def test_a_run_that_heeds_nothing_is_cancelled_when_the_worker_ends(
    sqlite_place: Place,
) -> None:
    [id] = await sqlite_place.send()

    class Deaf:
        agents = ("steps",)

        async def run(self, execution: Execution, control: Any) -> ExecutionStatus:
            await asyncio.Event().wait()
            raise AssertionError

    work = Work(
        sqlite_place.store, Deaf(), settings=settings_of(shutdown_seconds=0.1), worker_id="worker-1"
    )
    taking = asyncio.create_task(work.take(id))
    await sqlite_place.until(id, lambda found: found.attempt == 1)
    async with asyncio.timeout(ENOUGH_SECONDS):
        await work.shut_down()
        await taking

    assert (await sqlite_place.get(id)).status is ExecutionStatus.PENDING


async def test_the_embedded_worker_takes_what_it_is_told_of_and_stops(sqlite_place: Place) -> None:
    work = work_at(sqlite_place, poll_seconds=60.0)
    worker = Worker(sqlite_place.store, work, settings_of(poll_seconds=60.0))
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.1)

    ids = [(await sqlite_place.send(3, steps=1))[2] for _ in range(5)]
    async with asyncio.timeout(ENOUGH_SECONDS):
        await sqlite_place.all_over(ids)
        await worker.stop()
        await running


async def test_an_idle_embedded_worker_writes_nothing(sqlite_place: Place) -> None:
    writes: list[str] = []

    class Watched(StoreThatGoesAway):
        async def write(self, work: Any, /, *, name: str) -> Any:
            writes.append(name)
            return await super().write(work, name=name)

    store = Watched(sqlite_place, "none")
    worker = Worker(store, work_at(sqlite_place, store), settings_of(poll_seconds=0.01))
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.2)
    await worker.stop()
    await running

    assert writes == []

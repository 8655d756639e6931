"""Worker processes that are killed, frozen and told to end, on both databases."""

import asyncio
from collections import Counter

import pytest

from stepwell.journal.status import ExecutionStatus
from tests.integration.worker.bench_of_workers import (
    BRIEF,
    Noted,
    Place,
    SenderProcess,
    workers,
)


async def test_a_killed_workers_execution_is_taken_over_and_goes_on_at_its_step(
    place: Place,
) -> None:
    with workers(place, 2, **BRIEF) as processes:
        by_pid = {process.pid: await process.ready() for process in processes}
        # Long enough that none is over before the kill; whoever takes one over does not wait.
        ids = [(await place.send(steps=4, seconds=2.0, seconds_again=0.0))[0] for _ in range(4)]
        first = [await place.noted_soon("stored", id) for id in ids]
        # Who was slowest with its first step has most of its execution still before it.
        victim = max(first, key=lambda n: n.at).pid
        killed_at = by_pid[victim].kill()
        rows = await place.all_over(ids)
        # The killed one may have committed an end that it had no time to note.
        survivors = [id for id in ids if place.noted("claim", id)[-1].pid != victim]
        await place.all_finished(survivors)

    assert {row.status for row in rows} == {ExecutionStatus.COMPLETED}
    for again in _taken_over(place, victim, killed_at):
        assert again.step > 0
    assert max(Counter(n.id for n in place.noted("finished")).values()) == 1


def _taken_over(place: Place, victim: int, killed_at: float) -> list[Noted]:
    """The first claim after the kill of each execution that the victim had.

    All were completed: one that nobody claimed again had its end committed before the kill.
    """
    had: dict[str, int] = {}
    again: dict[str, Noted] = {}
    for claim in place.noted("claim"):
        if claim.at <= killed_at:
            had[claim.id] = claim.pid
        elif had.get(claim.id) == victim:
            again.setdefault(claim.id, claim)
    assert again
    return list(again.values())


async def test_a_frozen_worker_that_wakes_up_can_not_write(place: Place) -> None:
    # The freeze has time until the first heartbeat: inside a write it would keep the file's lock.
    # And it lasts longer than the step, so that the one that wakes up tries to write.
    slow = {"lease_seconds": 8.0, "heartbeat_seconds": 4.0}
    with workers(place, 2, **slow) as processes:
        by_pid = {process.pid: await process.ready() for process in processes}
        [id] = await place.send(steps=2, seconds=6.0, seconds_again=0.2)
        frozen = by_pid[(await place.noted_soon("step", id)).pid]
        await asyncio.sleep(0.1)
        frozen.freeze()
        taken = await place.noted_soon("claim", id, 2)
        frozen.thaw()
        [row] = await place.all_finished([id])
        # The one that woke up works on.
        by_pid[taken.pid].kill()
        [other] = await place.send(steps=1)
        await place.all_finished([other])

    assert (row.status, row.attempt, row.crashes) == (ExecutionStatus.COMPLETED, 2, 0)
    assert taken.pid != frozen.pid
    finished = place.noted("finished", id)
    assert [n.pid for n in finished] == [taken.pid]
    stored = place.noted("stored", id)
    assert [n.pid for n in stored] == [taken.pid]
    assert [n.pid for n in place.noted("finished", other)] == [frozen.pid]


async def test_an_execution_whose_worker_died_three_times_is_set_aside(place: Place) -> None:
    # Each is killed as soon as it has claimed, so a short lease does no harm on a slow machine.
    quick = {"lease_seconds": 0.3, "heartbeat_seconds": 0.1, "poll_seconds": 0.1}
    with workers(place, 4, **quick) as processes:
        by_pid = {process.pid: await process.ready() for process in processes}
        [id] = await place.send(steps=1, seconds=30)
        for claim in range(1, 4):
            by_pid[(await place.noted_soon("claim", id, claim)).pid].kill()
        [row] = await place.all_over([id])

    assert (row.status, row.crashes, row.attempt) == (ExecutionStatus.FAILED, 3, 4)


async def test_a_worker_that_is_told_to_end_hands_back_and_another_goes_on_at_once(
    place: Place,
) -> None:
    # Only an execution that was handed back is taken before this lease runs out.
    with workers(place, 2, lease_seconds=600.0, heartbeat_seconds=5.0) as processes:
        by_pid = {process.pid: await process.ready() for process in processes}
        [id] = await place.send(steps=3, seconds=0.3)
        ending = by_pid[(await place.noted_soon("step", id)).pid]
        assert await ending.stopped() == 0
        [row] = await place.all_over([id])

    assert (row.status, row.attempt, row.crashes) == (ExecutionStatus.COMPLETED, 2, 0)
    assert len(place.noted("handed back", id)) == 1


async def test_two_processes_send_while_workers_die_and_nothing_is_lost(place: Place) -> None:
    with workers(place, 3, **BRIEF) as processes:
        for process in processes:
            await process.ready()
        senders = [SenderProcess(place, 10) for _ in range(2)]
        for process in processes[:2]:
            await asyncio.sleep(0.3)
            process.kill()
        ids = [id for sender in senders for id in await sender.ids()]
        rows = await place.all_over(ids)

    assert len(ids) == 40
    assert {row.status for row in rows} == {ExecutionStatus.COMPLETED}
    assert max(Counter(n.id for n in place.noted("finished")).values()) == 1


@pytest.mark.alone
async def test_short_executions_run_once_each_over_four_workers(place: Place) -> None:
    sessions = 40 if place.url.startswith("sqlite") else 8
    with workers(place, 4, concurrency=10) as processes:
        for process in processes:
            await process.ready()
        ids = [id for _ in range(sessions) for id in await place.send(10)]
        await place.all_finished(ids)

    assert Counter(n.id for n in place.noted("claim")) == Counter(ids)
    assert Counter(n.id for n in place.noted("finished")) == Counter(ids)
    assert len({n.pid for n in place.noted("finished")}) > 1

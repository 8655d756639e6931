"""Retention: what goes, what stays loadable, and that a second run finds nothing to do."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from stepwell.sessions.records import Execution, ExecutionStatus
from stepwell.sessions.retention import Retention, RetentionPolicy, RetentionReport
from stepwell.testing import FakeClock
from tests.integration.sessions.front_desk import ADA, FrontDesk, database_of, desk_at

NOTHING = RetentionReport()


@pytest.fixture(params=["sqlite", "postgres"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FrontDesk]:
    """A desk over each database in turn."""
    with database_of(request, tmp_path) as url:
        async with desk_at(url) as desk:
            yield desk


def kept(desk: FrontDesk, days_from_now: float = 0.001, **policy: float) -> Retention:
    """Retention at a later day."""
    clock = FakeClock(desk.clock.now() + timedelta(days=days_from_now))
    return Retention(desk.store, RetentionPolicy(**policy), clock=clock)  # type: ignore[arg-type]


async def ran(desk: FrontDesk, content: str, session_id: str | None = None) -> Execution:
    """An execution that was run as far as it goes."""
    sent = await desk.sent_and_run(content, session_id)
    assert sent.execution is not None
    return await desk.execution(sent.execution.id)


async def steps_stored(desk: FrontDesk, execution: Execution) -> list[int]:
    """After which steps there is a state."""
    snapshots = await desk.store.read(lambda tx: tx.snapshots(execution.id))
    return [it.step_number for it in snapshots]


async def test_only_the_newest_executions_keep_their_steps_and_all_stay_loadable(
    desk: FrontDesk,
) -> None:
    first = await ran(desk, "add add end")
    assert first.session_id is not None
    all_of = [first] + [await ran(desk, "add end", first.session_id) for _ in range(3)]
    finals = [await desk.reader.state_at(it.id) for it in all_of]
    middle = await desk.reader.state_at(all_of[2].id, 1)
    report = await kept(desk, keep_executions=2).run()

    assert report == RetentionReport(deleted_snapshots=3 + 2)
    assert [await steps_stored(desk, it) for it in all_of] == [[3], [2], [0, 1, 2], [0, 1, 2]]
    assert [await desk.reader.state_at(it.id) for it in all_of] == finals
    assert await desk.reader.state_at(all_of[2].id, 1) == middle
    assert len(await desk.reader.steps(first.id)) == 3
    assert await kept(desk, keep_executions=2).run() == NOTHING
    follows = await ran(desk, "add end", first.session_id)
    assert follows.status is ExecutionStatus.COMPLETED
    assert (await kept(desk, keep_executions=1).run()).deleted_snapshots == 2 + 2
    assert [await desk.reader.state_at(it.id) for it in all_of] == finals
    fork = await desk.lifecycle.fork(ADA, all_of[1].id, message="add end")
    assert fork.execution is not None
    assert await desk.run(fork.execution.id) is ExecutionStatus.COMPLETED


async def test_old_events_go_and_the_numbers_stay(desk: FrontDesk) -> None:
    old = await ran(desk, "add end")
    waits = await ran(desk, "ask end")
    assert old.session_id is not None
    assert waits.session_id is not None
    newest = (await desk.session(old.session_id)).last_seq
    assert await kept(desk, 5, events_days=6).run() == NOTHING
    assert await kept(desk, 7, events_days=6).run() == RetentionReport(deleted_events=newest)
    assert await desk.events(old.session_id) == []
    in_log = await desk.store.read(lambda tx: tx.event_range(old.session_id or ""))
    assert in_log == (newest + 1, newest)
    assert await kept(desk, 7, events_days=6).run() == NOTHING
    assert len(await desk.events(waits.session_id)) > 0
    sent = await desk.send("more", old.session_id)
    assert sent.session.last_seq == newest + 2


async def test_only_events_older_than_the_limit_go(desk: FrontDesk) -> None:
    execution = await ran(desk, "add end")
    assert execution.session_id is not None
    events = await desk.events(execution.session_id)
    cut = next(it for it in events if it.created_at > events[0].created_at)
    later = FakeClock(desk.clock.now() + timedelta(seconds=1))
    days = (later.now() - cut.created_at) / timedelta(days=1)
    report = await Retention(desk.store, RetentionPolicy(events_days=days), clock=later).run()
    older = [it for it in events if it.created_at < cut.created_at]
    assert report.deleted_events == len(older)
    assert await desk.events(execution.session_id) == events[len(older) :]


async def test_old_sessions_go_with_all_that_is_theirs(desk: FrontDesk) -> None:
    done = await ran(desk, "add end")
    waits = await ran(desk, "ask end")
    assert done.session_id is not None
    assert await kept(desk, 29, sessions_days=30).run() == NOTHING
    report = await kept(desk, 31, sessions_days=30).run()

    assert report == RetentionReport(deleted_sessions=1)
    assert await desk.store.read(lambda tx: tx.session(done.session_id or "")) is None
    assert await desk.store.read(lambda tx: tx.execution(done.id)) is None
    assert await desk.store.read(lambda tx: tx.snapshots(done.id)) == []
    assert (await desk.execution(waits.id)).status is ExecutionStatus.PAUSED
    assert await kept(desk, 31, sessions_days=30).run() == NOTHING


async def test_without_limits_nothing_goes(desk: FrontDesk) -> None:
    await ran(desk, "add end")
    before = await desk.store.read(lambda tx: tx.size())
    assert await kept(desk, 10_000).run() == NOTHING
    assert await desk.store.read(lambda tx: tx.size()) == before

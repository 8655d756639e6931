"""Retention: what goes, what stays loadable, and that a second run finds nothing to do."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions import snapshot_chain
from stepwell.sessions.endings.close import close_execution
from stepwell.sessions.endings.end import EndDeps
from stepwell.sessions.errors import ConflictError
from stepwell.sessions.intake.admission import IntakeDeps, Sent
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution
from stepwell.sessions.requests.grant import BudgetGrant, decide_grant
from stepwell.sessions.requests.resume import ExecutionChangedError, ResumeRequest
from stepwell.sessions.retention import Retention, RetentionPolicy, RetentionReport
from stepwell.sessions.views.removed_snapshots import StatesRemovedError
from stepwell.testing import FakeClock
from tests.integration.sessions.front_desk import ADA, FrontDesk
from tests.integration.stores.databases import run_sql

NOTHING = RetentionReport()


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


async def session_with(desk: FrontDesk, count: int) -> list[Execution]:
    """The executions of a new session that answered so many messages."""
    first = await ran(desk, "add add end")
    return [first] + [await ran(desk, "add end", first.session_id) for _ in range(count - 1)]


async def test_only_the_newest_executions_keep_states_and_these_stay_loadable(
    desk: FrontDesk,
) -> None:
    all_of = await session_with(desk, 4)
    session_id = all_of[0].session_id or ""
    kept_of = [(it, n) for it in all_of[2:] for n in (0, 1, 2)]
    states = [await desk.reader.state_at(it.id, step) for it, step in kept_of]
    report = await kept(desk, keep_executions=2).run()

    assert report == RetentionReport(deleted_snapshots=4 + 3)
    assert [await steps_stored(desk, it) for it in all_of] == [[], [], [0, 1, 2], [0, 1, 2]]
    assert [await desk.reader.state_at(it.id, step) for it, step in kept_of] == states
    assert len(await desk.reader.steps(all_of[3].id)) == 2
    assert await kept(desk, keep_executions=2).run() == NOTHING
    follows = await ran(desk, "add end", session_id)
    assert follows.status is ExecutionStatus.COMPLETED
    assert len((await desk.reader.state_at(follows.id)).messages) > len(states[-1].messages)
    assert (await kept(desk, keep_executions=1).run()).deleted_snapshots == 3 + 3
    fork = await desk.lifecycle.fork(ADA, follows.id, message="add end")
    assert fork.execution is not None
    assert await desk.run(fork.execution.id) is ExecutionStatus.COMPLETED


async def test_what_is_stored_of_many_executions_goes_down(sqlite_desk: FrontDesk) -> None:
    desk = sqlite_desk
    all_of = await session_with(desk, 20)
    session_id = all_of[0].session_id or ""
    whole = len(AgentStateSerializer().to_json(await desk.reader.state_at(all_of[-1].id)))
    before = await desk.store.read(lambda tx: tx.size())
    states = [await desk.reader.state_at(it.id, 1) for it in all_of[-3:]]
    report = await kept(desk, keep_executions=3).run()
    after = await desk.store.read(lambda tx: tx.size())

    assert report.deleted_snapshots == before.snapshots - after.snapshots == 4 + 16 * 3
    # One whole state, and the increments of three executions on it.
    one = before.snapshot_characters / 20
    assert after.snapshot_characters < min(before.snapshot_characters, whole + 4 * one)
    assert (after.executions, after.messages) == (before.executions, before.messages)
    assert [await desk.reader.state_at(it.id, 1) for it in all_of[-3:]] == states
    for _ in range(5):  # one leaves and one comes, and it stays so small
        await ran(desk, "add end", session_id)
        await kept(desk, keep_executions=3).run()
    later = await desk.store.read(lambda tx: tx.size())
    assert later.snapshots == after.snapshots
    assert later.snapshot_characters < after.snapshot_characters + 5 * 2 * one
    newest = await desk.reader.state_at((await desk.session(session_id)).last_execution_id or "")
    assert len([it for it in newest.messages if it.is_user()]) == 25


async def test_an_execution_without_states_says_so_and_keeps_the_rest(
    sqlite_desk: FrontDesk,
) -> None:
    desk = sqlite_desk
    old, *_ = await session_with(desk, 2)
    trace = await desk.reader.trace(old.id)
    await kept(desk, keep_executions=1).run()

    wishes = (
        lambda: desk.reader.state_at(old.id),
        lambda: desk.reader.steps(old.id),
        lambda: desk.lifecycle.fork(ADA, old.id, step_number=1),
        lambda: desk.lifecycle.fork(ADA, old.id, message="go on"),
    )
    for wish in wishes:
        with pytest.raises(StatesRemovedError, match=f"{old.id} were removed by retention") as why:
            await wish()
        assert why.value.code == "states_removed"
    now = await desk.execution(old.id)
    assert now.last_snapshot_id is None
    assert (now.output, now.decision, now.status) == (old.output, old.decision, old.status)
    assert (now.step_count, now.updated_at) == (3, old.updated_at)
    left = await desk.reader.trace(old.id)
    assert left["steps"] == []
    assert "completed" in left["explanation"]
    assert "removed by retention" in left["explanation"]
    assert left["messages"] == trace["messages"] != []
    assert left["decision"] == trace["decision"] is not None


async def test_the_state_that_a_session_goes_on_from_is_always_kept(
    sqlite_desk: FrontDesk,
) -> None:
    desk = sqlite_desk
    _, last = await session_with(desk, 2)
    session_id = last.session_id or ""
    for _ in range(3):  # newer ones that never ran
        sent = await desk.send("never", session_id)
        await desk.lifecycle.cancel(sent.execution.id if sent.execution else "")
    assert (await kept(desk, keep_executions=2).run()).deleted_snapshots == 4
    assert await steps_stored(desk, last) == [0, 1, 2]
    follows = await ran(desk, "end", session_id)
    state = await desk.reader.state_at(follows.id)
    assert [it.text for it in state.messages if it.is_user()] == ["add add end", "add end", "end"]


async def test_a_session_in_which_something_waits_is_left_alone(sqlite_desk: FrontDesk) -> None:
    old, newer = await session_with(sqlite_desk, 2)
    await ran(sqlite_desk, "ask end", old.session_id)
    assert await kept(sqlite_desk, keep_executions=1).run() == NOTHING
    assert len(await steps_stored(sqlite_desk, newer)) == 3


class SlowStore:
    """A store whose user sends a message between a read and the first write."""

    def __init__(self, desk: FrontDesk, session_id: str) -> None:
        self._desk = desk
        self._session_id = session_id
        self.sent: list[Sent] = []

    async def read(self, work: Any) -> Any:
        """As the store does."""
        return await self._desk.store.read(work)

    async def write(self, work: Any, *, name: str) -> Any:
        """As the store does, after the message."""
        if not self.sent:
            self.sent.append(await self._desk.send("add end", self._session_id))
        return await self._desk.store.write(work, name=name)


async def test_a_message_that_comes_first_lets_everything_stay(sqlite_desk: FrontDesk) -> None:
    desk = sqlite_desk
    old, newer = await session_with(desk, 2)
    store: Any = SlowStore(desk, old.session_id or "")
    clock = FakeClock(desk.clock.now() + timedelta(minutes=1))
    assert await Retention(store, RetentionPolicy(keep_executions=1), clock=clock).run() == NOTHING
    assert [len(await steps_stored(desk, it)) for it in (old, newer)] == [4, 3]
    (sent,) = store.sent
    assert await desk.run(sent.execution.id) is ExecutionStatus.COMPLETED


async def set_aside(desk: FrontDesk, session_id: str | None) -> Execution:
    """An execution with stored steps whose worker died too often."""
    paused = await ran(desk, "ask end", session_id)

    async def work(tx: Transaction) -> None:
        row = await tx.execution(paused.id, lock=True)
        assert row is not None
        row = replace(row, status=ExecutionStatus.FAILED, metadata={"set_aside": "crashes"})
        session = None if session_id is None else await tx.session(session_id, lock=True)
        deps = EndDeps(jobs=desk.jobs, clock=desk.clock, settings=desk.settings)
        await close_execution(tx, row, session, [], deps, unseen=())

    await desk.store.write(work, name="test")
    return await desk.execution(paused.id)


async def test_one_that_is_taken_up_while_its_chain_is_cut_is_read_again(
    sqlite_desk: FrontDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_chain, "LARGEST_WHOLE", 0)  # no pause begins a chain
    desk = sqlite_desk
    done, *_ = await session_with(desk, 2)
    aside = await set_aside(desk, done.session_id)
    parts = IntakeDeps(jobs=desk.jobs, agents=desk.agents, settings=desk.settings, clock=desk.clock)
    request = ResumeRequest(parts, desk.store, aside.id, "wish")
    decide = decide_grant(BudgetGrant(steps=5), desk.agents, accept_change=False)
    early = await request.work(aside, decide)
    assert (await kept(desk, keep_executions=1).run()).deleted_snapshots == 4 + 3

    with pytest.raises(ExecutionChangedError):
        await desk.store.write(early, name="resume")
    resumed = await desk.store.write(await request.work(aside, decide), name="resume")
    assert resumed.status is ExecutionStatus.PENDING
    assert (await desk.reader.state_at(aside.id)).messages


async def test_one_that_was_set_aside_and_has_no_states_is_not_taken_up(
    sqlite_desk: FrontDesk,
) -> None:
    desk = sqlite_desk
    aside = await set_aside(desk, None)
    await ran(desk, "end", aside.session_id)
    assert (await kept(desk, keep_executions=1).run()).deleted_snapshots > 0
    with pytest.raises(ConflictError, match="removed by retention"):
        await desk.lifecycle.resume(aside.id)


async def test_old_events_go_and_the_numbers_stay(desk: FrontDesk) -> None:
    old = await ran(desk, "add end")
    waits = await ran(desk, "ask end")
    assert old.session_id is not None
    assert waits.session_id is not None
    newest = (await desk.session(old.session_id)).last_seq
    assert await kept(desk, 5, events_days=6).run() == NOTHING
    assert await kept(desk, 7, events_days=6).run() == RetentionReport(deleted_events=newest)
    assert await desk.events(old.session_id) == []
    in_log = await desk.store.read(lambda tx: tx.entry_range(old.session_id or ""))
    assert in_log == (newest + 1, newest)
    assert await kept(desk, 7, events_days=6).run() == NOTHING
    assert len(await desk.events(waits.session_id)) > 0
    sent = await desk.send("more", old.session_id)
    assert sent.session.last_seq == newest + 2


async def test_only_events_older_than_the_limit_go(sqlite_desk: FrontDesk) -> None:
    execution = await ran(sqlite_desk, "add end")
    assert execution.session_id is not None
    events = await sqlite_desk.events(execution.session_id)
    cut = next(it for it in events if it.created_at > events[0].created_at)
    later = FakeClock(sqlite_desk.clock.now() + timedelta(seconds=1))
    days = (later.now() - cut.created_at) / timedelta(days=1)
    report = await Retention(
        sqlite_desk.store, RetentionPolicy(events_days=days), clock=later
    ).run()
    older = [it for it in events if it.created_at < cut.created_at]
    assert report.deleted_events == len(older)
    assert await sqlite_desk.events(execution.session_id) == events[len(older) :]


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


async def test_without_limits_nothing_goes(sqlite_desk: FrontDesk) -> None:
    await ran(sqlite_desk, "add end")
    before = await sqlite_desk.store.read(lambda tx: tx.size())
    assert await kept(sqlite_desk, 10_000).run() == NOTHING
    assert await sqlite_desk.store.read(lambda tx: tx.size()) == before


async def test_a_damaged_event_does_not_keep_old_events(
    sqlite_desk: FrontDesk, tmp_path: Path
) -> None:
    executions = [await ran(sqlite_desk, "add end") for _ in range(3)]
    last = [(await sqlite_desk.session(it.session_id or "")).last_seq for it in executions]
    damaged = f"session_id = '{executions[1].session_id}' AND seq % 3"
    run_sql(
        f"sqlite:///{tmp_path / 'a.db'}",
        f"UPDATE agent_journal SET payload = X'0102' WHERE {damaged} <> 1",
    )
    run_sql(
        f"sqlite:///{tmp_path / 'a.db'}",
        f"UPDATE agent_journal SET created_at = 'soon' WHERE {damaged} = 1",
    )
    run_sql(
        f"sqlite:///{tmp_path / 'a.db'}",
        f"UPDATE agent_journal SET type = X'ff' WHERE {damaged} = 2",
    )

    report = await kept(sqlite_desk, 7, events_days=6).run()

    # A time that can't be read is not older than anything; sound ones behind it are.
    assert sum(last) - 1 <= report.deleted_events <= sum(last)
    assert report.skipped_sessions == 0


@pytest.mark.parametrize(
    "policy", [{"sessions_days": 6}, {"events_days": 6}, {"keep_executions": 1}]
)
async def test_a_session_with_a_damaged_row_is_skipped_and_reported(
    sqlite_desk: FrontDesk,
    tmp_path: Path,
    policy: dict[str, float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, damaged, third = [(await session_with(sqlite_desk, 2))[0] for _ in range(3)]
    table = "agent_executions" if "keep_executions" in policy else "agent_sessions"
    key = "session_id" if "keep_executions" in policy else "id"
    run_sql(
        f"sqlite:///{tmp_path / 'a.db'}",
        f"UPDATE {table} SET metadata = '[1]' WHERE {key} = '{damaged.session_id}'",
    )

    report = await kept(sqlite_desk, 7, **policy).run()

    assert report.skipped_sessions == 1
    counts = (report.deleted_sessions, report.deleted_events, report.deleted_snapshots)
    assert sum(counts) >= 2, "what is sound is deleted"
    assert f"retention skips session {damaged.session_id}" in caplog.text
    for sound in (first, third):
        assert f"skips session {sound.session_id}" not in caplog.text

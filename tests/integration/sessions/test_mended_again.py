"""What a second look at the ends found: ends that come twice, and states that can't be read."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.sessions.attempt.runner import RunControl, Runner
from stepwell.sessions.records import WhenBusy
from stepwell.sessions.retention import Retention, RetentionPolicy
from tests.integration.sessions.front_desk import FrontDesk, desk_at
from tests.integration.sessions.world import Crash, CrashingStore


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with desk_at(tmp_path / "s.db", flush_seconds=5.0, max_crashes=1) as desk:
        yield desk


async def set_aside(desk: FrontDesk, session_id: str) -> str:
    """An execution whose worker died, that was steered, and then set aside; its id."""
    sent = await desk.send("add ask", session_id)
    assert sent.execution is not None
    id = sent.execution.id
    claimed = await desk.claim(id)
    assert claimed is not None
    dying = CrashingStore(desk.store, at=3)
    with pytest.raises(Crash):
        await Runner(dying, desk.jobs, desk.agents, settings=desk.settings).run(
            claimed, RunControl()
        )
    assert (await desk.send("too late", session_id)).execution is None
    taken = await desk.claim(id, "w2", ahead=3600.0)
    assert taken is not None
    runner = Runner(desk.store, desk.jobs, desk.agents, settings=desk.settings)
    assert await runner.run(taken, RunControl()) == "failed"
    return id


async def test_an_unseen_message_is_passed_on_once_however_often_its_execution_ends(
    desk: FrontDesk,
) -> None:
    session = await desk.begin(WhenBusy.STEER)
    id = await set_aside(desk, session.id)
    [own] = await desk.unfinished(session.id)
    await desk.lifecycle.cancel(own.id)
    await desk.lifecycle.resume(id)
    assert (await desk.lifecycle.cancel(id)).status == "cancelled"
    assert await desk.unfinished(session.id) == []


async def test_each_end_of_a_resumed_execution_is_told(desk: FrontDesk) -> None:
    session = await desk.begin(WhenBusy.STEER)
    id = await set_aside(desk, session.id)
    [own] = await desk.unfinished(session.id)
    await desk.lifecycle.cancel(own.id)
    await desk.lifecycle.resume(id)
    await desk.lifecycle.cancel(id)
    events = await desk.store.read(lambda tx: tx.entries_after(session.id, 0, limit=1000))
    told = [
        event.payload["status"]
        for event in events
        if event.type == "agent.status" and event.execution_id == id
    ]
    assert [status for status in told if status != "processing"] == ["failed", "cancelled"]


async def test_a_state_that_cannot_be_read_does_not_stop_retention(
    tmp_path: Path, desk: FrontDesk, caplog: pytest.LogCaptureFixture
) -> None:
    sessions: list[str] = []
    for _ in range(2):
        sent = await desk.sent_and_run("add")
        sessions.append(sent.session.id)
        for text in ("two", "three"):
            await desk.sent_and_run(text, sent.session.id)
    of_session = (
        "SELECT s.id FROM agent_state_snapshots s JOIN agent_executions e "
        "ON e.id = s.agent_execution_id WHERE e.session_id = ? ORDER BY s.created_at"
    )
    with sqlite3.connect(tmp_path / "s.db") as database:
        before = [len(database.execute(of_session, (it,)).fetchall()) for it in sessions]
        newest = database.execute(of_session, (sessions[0],)).fetchall()[-1]
        damage = "UPDATE agent_state_snapshots SET state_json = '{}' WHERE id = ?"
        database.execute(damage, newest)
    database.close()
    await Retention(desk.store, RetentionPolicy(keep_executions=1)).run()
    with sqlite3.connect(tmp_path / "s.db") as database:
        after = [len(database.execute(of_session, (it,)).fetchall()) for it in sessions]
    database.close()
    assert after[0] == before[0]
    assert after[1] < before[1]
    assert f"retention skips session {sessions[0]}" in caplog.text

"""A wish that meets a run at any of its writes is fulfilled, and told once."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.runner import RunControl, Runner
from stepwell.sessions.errors import LostLeaseError, SessionError
from stepwell.sessions.records import Execution, SessionStatus, WhenBusy
from tests.integration.sessions.front_desk import FrontDesk, desk_at
from tests.integration.sessions.world import Crash

TERMINAL = {"completed", "failed", "cancelled", "stopped"}
BUSY = {"interrupt": WhenBusy.INTERRUPT, "steer": WhenBusy.STEER}


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with desk_at(tmp_path / "s.db", flush_seconds=5.0, max_crashes=50) as desk:
        yield desk


class Wishing:
    """A store at whose ``nth`` write somebody wishes for something; then the process may die."""

    def __init__(self, desk: FrontDesk, wish: Any, at: int, *, after: bool, dies: bool) -> None:
        self._desk, self._wish, self._at = desk, wish, at
        self._after, self._dies = after, dies
        self.names: list[str] = []
        self.bus = desk.store.bus

    async def read(self, work: Any, /) -> Any:
        return await self._desk.store.read(work)

    async def write(self, work: Any, /, *, name: str) -> Any:
        self.names.append(name)
        is_now = len(self.names) == self._at
        if is_now and not self._after:
            await self._now()
        result = await self._desk.store.write(work, name=name)
        if is_now and self._after:
            await self._now()
        return result

    async def _now(self) -> None:
        await self._wish()
        if self._dies:
            raise Crash

    async def close(self) -> None:
        pass


async def claimed(desk: FrontDesk, id: str, ahead: float) -> Execution | None:
    return await desk.claim(id, f"w{ahead:g}", ahead)


async def all_run(desk: FrontDesk, session_id: str, store: Any) -> None:
    """Run what there is, also what a dead worker left."""
    ahead = 0.0
    for _ in range(12):
        unfinished = await desk.unfinished(session_id)
        if not unfinished or unfinished[0].status is ExecutionStatus.PAUSED:
            return
        ahead += 120.0 if unfinished[0].status is ExecutionStatus.RUNNING else 0.0
        execution = await claimed(desk, unfinished[0].id, ahead)
        assert execution is not None
        runner = Runner(store, desk.jobs, desk.agents, settings=desk.settings)
        try:
            await runner.run(execution, RunControl())
        except Crash:
            continue


async def wished_at(
    desk: FrontDesk, text: str, wish: str, at: int, *, after: bool, dies: bool
) -> bool:
    """One run with the wish at that write; False if there is no such write."""
    session = await desk.begin(BUSY.get(wish, WhenBusy.ENQUEUE))
    sent = await desk.send(text, session.id)
    assert sent.execution is not None
    id, refused = sent.execution.id, []

    async def say() -> None:
        try:
            if wish == "cancel":
                await desk.lifecycle.cancel(id, reason="stop")
            elif wish == "close":
                await desk.lifecycle.change_session(session.id, status=SessionStatus.CLOSED)
            else:
                await desk.send("add", session.id)
        except SessionError as error:
            refused.append(error.code)

    store = Wishing(desk, say, at, after=after, dies=dies)
    await all_run(desk, session.id, store)
    await assert_settled(desk, session.id, (text, wish, at, after, dies, store.names, refused))
    if wish in ("cancel", "close") and at <= len(store.names) and not refused:
        # Nobody beats the heart here, so a run may come to its own end before it hears of it.
        wanted = {"cancelled"} if text == "ask" else {"cancelled", "completed"}
        assert (await desk.execution(id)).status in wanted
    return at <= len(store.names)


async def assert_settled(desk: FrontDesk, session_id: str, what: object) -> None:
    for place, waiting in enumerate(await desk.unfinished(session_id)):
        assert waiting.status == ("pending" if place else "paused"), what
        assert waiting.cancel_requested is None, what
    told: dict[str | None, list[str]] = {}
    for event in await desk.events(session_id):
        if event.type == "agent.status" and event.payload["status"] in TERMINAL:
            told.setdefault(event.execution_id, []).append(event.payload["status"])
    for row in await desk.store.read(lambda tx: tx.executions(session_id=session_id)):
        assert told.get(row.id, []) == ([str(row.status)] if row.status.is_terminal else []), what
        if row.status.is_terminal:
            assert row.decision is not None, what
            assert row.stop_reason is not None, what


@pytest.mark.parametrize("dies", [False, True], ids=["", "and the process dies"])
@pytest.mark.parametrize("wish", ["cancel", "interrupt", "close", "steer"])
@pytest.mark.parametrize("text", ["ask", "add"])
async def test_a_wish_at_any_write_of_a_run_is_fulfilled(
    desk: FrontDesk, text: str, wish: str, dies: bool
) -> None:
    for after in (False, True):
        at = 1
        while await wished_at(desk, text, wish, at, after=after, dies=dies):
            at += 1
        assert at > (1 if text == "ask" else 2)


async def test_a_cancelled_execution_that_was_to_be_set_aside_is_cancelled(
    desk: FrontDesk,
) -> None:
    sent = await desk.send("add")
    assert sent.execution is not None
    id = sent.execution.id
    for attempt in range(desk.settings.max_crashes + 1):
        assert await claimed(desk, id, 120.0 * attempt) is not None
    await desk.lifecycle.cancel(id, reason="enough")
    again = await claimed(desk, id, 120.0 * 60)
    assert again is not None
    assert again.crashes >= desk.settings.max_crashes
    runner = Runner(desk.store, desk.jobs, desk.agents, settings=desk.settings)
    assert await runner.run(again, RunControl()) == "cancelled"
    row = await desk.execution(id)
    assert (row.status, row.cancel_requested) == ("cancelled", "enough")
    assert "set_aside" not in row.metadata


@pytest.mark.parametrize("text", ["ask", "add"])
@pytest.mark.parametrize("hands_back", [False, True])
async def test_a_write_that_is_repeated_after_it_was_committed_is_recognised(
    desk: FrontDesk, text: str, hands_back: bool
) -> None:
    class Twice(Wishing):
        async def write(self, work: Any, /, *, name: str) -> Any:
            await desk.store.write(work, name=name)
            self.names.append(name)
            return await desk.store.write(work, name=name)

    sent = await desk.send(text)
    assert sent.execution is not None
    control, store = RunControl(), Twice(desk, None, 0, after=False, dies=False)
    if hands_back:
        control.hand_back()
    execution = await claimed(desk, sent.execution.id, 0.0)
    assert execution is not None
    runner = Runner(store, desk.jobs, desk.agents, settings=desk.settings)
    status = await runner.run(execution, control)
    assert (await desk.execution(execution.id)).status == status
    wanted = "paused" if text == "ask" else "pending" if hands_back else "completed"
    assert status == wanted


async def test_an_answer_between_a_pause_and_its_repetition_is_kept(desk: FrontDesk) -> None:
    sent = await desk.send("ask")
    assert sent.execution is not None
    id = sent.execution.id

    class Twice(Wishing):
        async def write(self, work: Any, /, *, name: str) -> Any:
            result = await desk.store.write(work, name=name)
            if name == "pause":
                asked = (await desk.execution(id)).pending[0]["question_id"]
                await desk.lifecycle.answer(id, asked, "Paris")
                result = await desk.store.write(work, name=name)
            return result

    execution = await claimed(desk, id, 0.0)
    assert execution is not None
    store = Twice(desk, None, 0, after=False, dies=False)
    await Runner(store, desk.jobs, desk.agents, settings=desk.settings).run(execution, RunControl())
    row = await desk.execution(id)
    assert (row.status, row.pending) == ("pending", ())


async def test_who_let_go_of_an_execution_can_not_write_to_it(desk: FrontDesk) -> None:
    """The same attempt, but not running any more."""
    sent = await desk.send("add")
    assert sent.execution is not None

    class Released(Wishing):
        async def write(self, work: Any, /, *, name: str) -> Any:
            if name == "step":
                await desk.store.write(release, name="release")
            return await desk.store.write(work, name=name)

    async def release(tx: Any) -> None:
        row = await tx.execution(execution.id, lock=True)
        await tx.save_execution(replace(row, status=ExecutionStatus.PENDING, worker_id=None))

    execution = await claimed(desk, sent.execution.id, 0.0)
    assert execution is not None
    store = Released(desk, None, 0, after=False, dies=False)
    runner = Runner(store, desk.jobs, desk.agents, settings=desk.settings)
    with pytest.raises(LostLeaseError):
        await runner.run(execution, RunControl())

"""Every wish may run twice: its transaction was rolled back, or it committed and nobody heard."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.intake.intake import Intake, NewMessage, NewSession
from stepwell.sessions.ports import Bus, Store, Transaction
from stepwell.sessions.records import SessionStatus, WhenBusy
from stepwell.sessions.requests.lifecycle import Lifecycle
from tests.integration.sessions.front_desk import ADA, FrontDesk, desk_at

Work = Callable[[Transaction], Awaitable[Any]]


class _RolledBack(Exception):
    pass


class FaultyStore:
    """Loses the connection at each commit: before it, or after it."""

    def __init__(self, store: Store, *, after: bool) -> None:
        self._store = store
        self._after = after

    @property
    def bus(self) -> Bus:
        """The bus of the real one."""
        return self._store.bus

    async def write(self, work: Work, /, *, name: str) -> Any:
        """Run it, lose what came of it, and run it again."""
        if self._after:
            await self._store.write(work, name=name)
            return await self._store.write(work, name=name)

        async def lost(transaction: Transaction) -> None:
            await work(transaction)
            raise _RolledBack

        with pytest.raises(_RolledBack):
            await self._store.write(lost, name=name)
        return await self._store.write(work, name=name)

    async def read(self, work: Work, /) -> Any:
        """As ever."""
        return await self._store.read(work)

    async def close(self) -> None:
        """Whoever opened the real one closes it."""


@pytest.fixture(params=["before the commit", "after the commit"])
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FrontDesk]:
    """A desk whose wishes all run twice; its worker has a sound database."""
    async with desk_at(tmp_path / "a.db") as desk:
        faulty: Any = FaultyStore(desk.store, after=request.param == "after the commit")
        desk.intake = Intake(faulty, desk.jobs, desk.agents, settings=desk.settings)
        desk.lifecycle = Lifecycle(faulty, desk.jobs, desk.agents, settings=desk.settings)
        yield desk


async def counts(desk: FrontDesk) -> tuple[int, int, int]:
    """Sessions, messages, executions."""
    size = await desk.store.read(lambda tx: tx.size())
    return size.sessions, size.messages, size.executions


async def test_a_message_is_there_once(desk: FrontDesk) -> None:
    first = await desk.send("ask end")
    assert await counts(desk) == (1, 2, 1)
    assert not first.repeated
    second = await desk.send("two", first.session.id, idempotency_key="k")
    assert await counts(desk) == (1, 4, 2)
    assert not second.repeated
    assert (await desk.send("two", first.session.id, idempotency_key="k")).repeated
    assert [it.seq for it in await desk.events(first.session.id)] == [1, 2, 3, 4]


async def test_a_steering_message_is_there_once(desk: FrontDesk) -> None:
    first = await desk.send("add", new_session=NewSession(when_busy=WhenBusy.STEER))
    assert first.execution is not None
    await desk.claim(first.execution.id)
    steered = await desk.send("left", first.session.id)
    assert (steered.execution, steered.repeated) == (None, False)
    assert await counts(desk) == (1, 3, 1)


async def test_an_interrupt_happens_once(desk: FrontDesk) -> None:
    first = await desk.send("ask end", new_session=NewSession(when_busy=WhenBusy.INTERRUPT))
    assert first.execution is not None
    await desk.run(first.execution.id)
    messages = len(await desk.messages(first.session.id))
    second = await desk.send("two", first.session.id)
    assert len(await desk.messages(first.session.id)) == messages + 3
    assert [it.id for it in await desk.unfinished(first.session.id)] == [
        second.execution.id  # type: ignore[union-attr]
    ]


async def test_a_session_is_created_and_changed_once(desk: FrontDesk) -> None:
    session = await desk.intake.create_session(ADA, NewSession(title="Mine"))
    changed = await desk.lifecycle.change_session(session.id, title="Yours")
    assert changed.title == "Yours"
    assert await counts(desk) == (1, 0, 0)
    assert len(await desk.events(session.id)) == 1


async def test_cancel_and_close_tell_it_once(desk: FrontDesk) -> None:
    first = await desk.sent_and_run("ask end")
    assert first.execution is not None
    await desk.send("two", first.session.id)
    cancelled = await desk.lifecycle.cancel(first.execution.id)
    assert cancelled.status is ExecutionStatus.CANCELLED
    await desk.lifecycle.change_session(first.session.id, status=SessionStatus.CLOSED)
    kinds = [it.payload.get("event_type") for it in await desk.events(first.session.id)]
    assert kinds.count("execution.cancelled") == 2
    assert kinds.count("session.updated") == 1


async def test_an_answer_is_given_once(desk: FrontDesk) -> None:
    sent = await desk.sent_and_run("both end")
    assert sent.execution is not None
    for place in (1, 0):
        paused = await desk.execution(sent.execution.id)
        question_id = paused.pending[place]["question_id"]
        await desk.lifecycle.answer(sent.execution.id, question_id, f"answer {place}")
    assert await desk.run(sent.execution.id) is ExecutionStatus.COMPLETED
    answers = [it for it in await desk.contents(sent.session.id) if "Answer received" in it]
    assert len(answers) == 2
    snapshots = await desk.store.read(lambda tx: tx.snapshots(paused.id))
    states = [await desk.reader.state_of(it.id) for it in snapshots]
    assert [len(it.pending) for it in states] == [0, 2, 1, 0, 0]


async def test_a_fork_is_made_once(desk: FrontDesk) -> None:
    sent = await desk.sent_and_run("add add end")
    assert sent.execution is not None
    fork = await desk.lifecycle.fork(ADA, sent.execution.id, step_number=1)
    assert (await counts(desk))[0] == 2
    assert len(await desk.messages(fork.session.id)) == 3
    assert fork.execution is not None
    assert await desk.run(fork.execution.id) is ExecutionStatus.COMPLETED


async def test_what_was_refused_is_refused_both_times(desk: FrontDesk) -> None:
    first = await desk.send("one", idempotency_key="k")
    before = await counts(desk)
    with pytest.raises(Exception, match="new key"):
        await desk.intake.send_message(ADA, NewMessage(content="two", idempotency_key="k"))
    assert await counts(desk) == before
    assert (await desk.session(first.session.id)).last_seq == 2

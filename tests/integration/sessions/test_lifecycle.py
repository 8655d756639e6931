"""Cancelling, answering and resuming executions, and changing sessions."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from stepwell import Agent, Approval, UseApprovals, tool
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import (
    ConflictError,
    NotThereError,
    QuestionChangedError,
    RefusedError,
)
from stepwell.sessions.ports import execution_topic
from stepwell.sessions.records import Execution, SessionStatus, WhenBusy
from stepwell.sessions.settings import WhenChanged
from stepwell.testing import ScriptedModel, call
from tests.integration.sessions.front_desk import ADA, FrontDesk, desk_at, talker

PENDING, PAUSED = ExecutionStatus.PENDING, ExecutionStatus.PAUSED
COMPLETED, CANCELLED = ExecutionStatus.COMPLETED, ExecutionStatus.CANCELLED


async def ran(desk: FrontDesk, content: str, session_id: str | None = None) -> Execution:
    """An execution that was run as far as it goes."""
    sent = await desk.sent_and_run(content, session_id)
    assert sent.execution is not None
    return await desk.execution(sent.execution.id)


def question_of(execution: Execution, place: int = 0) -> str:
    """The id of the question that it waits for."""
    return execution.pending[place]["question_id"]


async def test_a_waiting_execution_is_cancelled_at_once_and_the_next_one_is_called(
    sqlite_desk: FrontDesk,
) -> None:
    first = await sqlite_desk.send("one")
    second = await sqlite_desk.send("two", first.session.id)
    assert first.execution is not None
    cancelled = await sqlite_desk.lifecycle.cancel(first.execution.id, reason="not needed")

    assert cancelled == await sqlite_desk.execution(first.execution.id)
    assert cancelled.status is CANCELLED
    assert cancelled.stop_reason == "user_requested"
    assert cancelled.decision is not None
    assert cancelled.decision["evaluations"][0]["reason"] == "not needed"
    assert sqlite_desk.jobs.enqueued[-1] == second.execution.id  # type: ignore[union-attr]
    status = (await sqlite_desk.events(first.session.id))[-1]
    assert status.payload["event_type"] == "execution.cancelled"
    assert status.payload["content"] == "Execution cancelled: not needed"
    assert (status.type, status.payload["status"]) == ("agent.status", "cancelled")
    assert status.payload["previous_status"] == "idle"
    assert await sqlite_desk.lifecycle.cancel(first.execution.id) == cancelled
    assert len(await sqlite_desk.events(first.session.id)) == status.seq


async def test_a_paused_execution_is_cancelled_with_a_final_state(desk: FrontDesk) -> None:
    paused = await ran(desk, "ask end")
    cancelled = await desk.lifecycle.cancel(paused.id)

    assert (cancelled.status, cancelled.pending) == (CANCELLED, ())
    assert cancelled.last_snapshot_id != paused.last_snapshot_id
    state = await desk.reader.state_at(paused.id)
    assert (state.status.value, state.pending) == ("cancelled", ())
    assert cancelled.session_id is not None
    session = await desk.session(cancelled.session_id)
    assert session.last_snapshot_id == cancelled.last_snapshot_id
    events = await desk.events(session.id)
    assert events[-1].payload["previous_status"] == "paused"
    follows = await ran(desk, "add end", session.id)
    assert follows.status is COMPLETED


async def test_a_running_execution_is_asked_to_end(sqlite_desk: FrontDesk) -> None:
    desk = sqlite_desk
    sent = await desk.send("one")
    assert sent.execution is not None
    assert await desk.claim(sent.execution.id) is not None
    async with desk.store.bus.subscribe(execution_topic(sent.execution.id)) as news:
        asked = await desk.lifecycle.cancel(sent.execution.id, reason="too slow")
        assert await news.wait(90)
    assert asked.status is ExecutionStatus.RUNNING
    assert (await desk.execution(asked.id)).cancel_requested == "too slow"
    await desk.lifecycle.cancel(sent.execution.id, reason="again")
    assert (await desk.execution(asked.id)).cancel_requested == "too slow"


async def test_what_is_over_or_not_there_cannot_be_cancelled(sqlite_desk: FrontDesk) -> None:
    done = await ran(sqlite_desk, "add end")
    with pytest.raises(ConflictError, match="completed") as caught:
        await sqlite_desk.lifecycle.cancel(done.id)
    assert caught.value.code == "already_over"
    with pytest.raises(NotThereError):
        await sqlite_desk.lifecycle.cancel("nobody")


async def test_an_answer_takes_a_paused_execution_up_again(desk: FrontDesk) -> None:
    paused = await ran(desk, "add ask end")
    assert paused.status is PAUSED
    answered = await desk.lifecycle.answer(paused.id, question_of(paused), {"city": "Oslo"})

    assert (answered.status, answered.pending) == (PENDING, ())
    assert answered.session_id is not None
    assert (await desk.contents(answered.session_id))[-1] == (
        "info: Answer received, execution queued"
    )
    assert (await desk.events(answered.session_id))[-1].type == "execution.queued"
    assert desk.jobs.enqueued[-1] == paused.id
    assert await desk.run(paused.id) is COMPLETED
    steps = await desk.reader.steps(paused.id)
    assert steps[1]["tool_executions"][0]["result"] == '{"city":"Oslo"}'


async def test_an_answer_that_nobody_waits_for_says_what_is_waited_for(
    sqlite_desk: FrontDesk,
) -> None:
    paused = await ran(sqlite_desk, "ask end")
    answer = sqlite_desk.lifecycle.answer
    with pytest.raises(ConflictError, match=r"question: Which city\?") as caught:
        await answer(paused.id, "other", "Oslo")
    assert caught.value.code == "question_changed"
    await answer(paused.id, question_of(paused), "Oslo")
    with pytest.raises(ConflictError, match="is pending") as caught:
        await answer(paused.id, question_of(paused), "Rome")
    assert caught.value.code == "not_waiting"
    await sqlite_desk.run(paused.id)
    with pytest.raises(ConflictError, match="is completed"):
        await answer(paused.id, question_of(paused), "Rome")


async def test_two_questions_want_two_answers(sqlite_desk: FrontDesk) -> None:
    paused = await ran(sqlite_desk, "both end")
    assert len(paused.pending) == 2
    half = await sqlite_desk.lifecycle.answer(paused.id, question_of(paused, 1), "second")
    assert (half.status, [it["prompt"] for it in half.pending]) == (PAUSED, ["One?"])
    assert half.session_id is not None
    assert "1 more is waited for" in (await sqlite_desk.contents(half.session_id))[-1]
    with pytest.raises(ConflictError, match="answer to") as caught:
        await sqlite_desk.lifecycle.resume(paused.id)
    assert caught.value.code == "not_resumable"
    whole = await sqlite_desk.lifecycle.answer(paused.id, question_of(paused, 0), "first")
    assert whole.status is PENDING
    assert await sqlite_desk.run(paused.id) is COMPLETED


async def test_a_bad_answer_changes_nothing(sqlite_desk: FrontDesk) -> None:
    paused = await ran(sqlite_desk, "mail end")
    for answer in ("maybe", {"approved": "yes"}, {"approved": True, "arguments": 7}, "half \ud83d"):
        with pytest.raises(RefusedError) as caught:
            await sqlite_desk.lifecycle.answer(paused.id, question_of(paused), answer)
        assert caught.value.code == "bad_answer"
    assert await sqlite_desk.execution(paused.id) == paused


async def test_secrets_of_an_edited_approval_are_not_stored_and_that_is_said(
    sqlite_desk: FrontDesk, tmp_path: Path
) -> None:
    paused = await ran(sqlite_desk, "mail end")
    edited = {"approved": True, "arguments": {"to": "eve", "password": "s3cret-word"}}
    answered = await sqlite_desk.lifecycle.answer(paused.id, question_of(paused), edited)
    assert answered.session_id is not None
    told = (await sqlite_desk.contents(answered.session_id))[-1]
    assert told.endswith("so the call will run without password")
    await sqlite_desk.run(paused.id)
    assert "s3cret-word" not in everything_in(tmp_path)


def everything_in(folder: Path) -> str:
    """The bytes of all files, as text."""
    files = [file.read_bytes() for file in folder.iterdir()]
    assert any(b"eve" in content for content in files)
    return b"".join(files).decode("latin-1")


async def test_a_pause_at_a_limit_goes_on_with_more_budget(tmp_path: Path) -> None:
    agents = {"talker": talker(max_steps=2, at_limit="pause")}
    async with desk_at(tmp_path / "a.db", agents) as desk:
        paused = await ran(desk, "add add add add end")
        assert [it["kind"] for it in paused.pending] == ["budget"]
        with pytest.raises(ConflictError, match="how many steps"):
            await desk.lifecycle.resume(paused.id)
        with pytest.raises(RefusedError) as caught:
            await desk.lifecycle.resume(paused.id, question_id=question_of(paused), steps=-1)
        assert caught.value.code == "bad_budget"
        asked = question_of(paused)
        with pytest.raises(RefusedError, match="granted with POST"):
            await desk.lifecycle.answer(paused.id, asked, "yes")
        with pytest.raises(QuestionChangedError):
            await desk.lifecycle.resume(paused.id, steps=10)
        resumed = await desk.lifecycle.resume(paused.id, question_id=asked, steps=10)
        assert resumed.status is PENDING
        assert await desk.run(paused.id) is COMPLETED
        assert len(await desk.reader.steps(paused.id)) == 5
        with pytest.raises(ConflictError, match="fork it") as conflict:
            await desk.lifecycle.resume(paused.id, steps=1)
        assert conflict.value.code == "not_resumable"


async def test_what_crashes_set_aside_can_be_taken_up_again(sqlite_desk: FrontDesk) -> None:
    desk = sqlite_desk
    sent = await desk.send("add end")
    assert sent.execution is not None
    waits = await desk.send("later", sent.session.id)
    crashed = replace(sent.execution, crashes=3)
    await desk.store.write(lambda tx: tx.save_execution(crashed), name="test")
    assert await desk.run(crashed.id) is ExecutionStatus.FAILED
    with pytest.raises(ConflictError, match="wait for its end"):
        await desk.lifecycle.resume(crashed.id)
    assert waits.execution is not None
    await desk.lifecycle.cancel(waits.execution.id)
    resumed = await desk.lifecycle.resume(crashed.id)
    assert (resumed.status, resumed.crashes, resumed.error_message) == (PENDING, 0, None)
    assert "set_aside" not in resumed.metadata
    assert await desk.run(crashed.id) is COMPLETED


async def test_what_a_changed_definition_stopped_goes_on_when_that_is_accepted(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path / "a.db") as desk:
        paused = await ran(desk, "ask end")
        await desk.lifecycle.answer(paused.id, question_of(paused), "Oslo")
    changed = {"talker": talker(max_steps=7)}
    async with desk_at(tmp_path / "a.db", changed, when_changed=WhenChanged.STOP) as desk:
        assert await desk.run(paused.id) is ExecutionStatus.STOPPED
        with pytest.raises(ConflictError, match="accept_change"):
            await desk.lifecycle.resume(paused.id)
        resumed = await desk.lifecycle.resume(paused.id, accept_change=True)
        assert resumed.definition_hash == desk.agents.get("talker").definition_hash
        assert await desk.run(paused.id) is COMPLETED


async def test_a_session_can_be_renamed_archived_and_made_active_again(
    sqlite_desk: FrontDesk,
) -> None:
    sent = await sqlite_desk.send("Hello")
    change = sqlite_desk.lifecycle.change_session
    renamed = await change(sent.session.id, title="Better", metadata={"colour": "red"})
    assert (renamed.title, renamed.metadata) == ("Better", {"colour": "red"})
    archived = await change(sent.session.id, status=SessionStatus.ARCHIVED)
    assert archived.title == "Better"
    active = await change(
        sent.session.id, status=SessionStatus.ACTIVE, when_busy=WhenBusy.REJECT, title=None
    )
    assert active == await sqlite_desk.session(sent.session.id)
    assert (active.when_busy, active.title) == (WhenBusy.REJECT, None)
    events = await sqlite_desk.events(sent.session.id)
    assert [it.type for it in events[2:]] == ["session.updated"] * 3
    assert events[-2].payload["status"] == "archived"
    assert await change(sent.session.id, title=None) == active
    assert len(await sqlite_desk.events(sent.session.id)) == len(events)


async def test_closing_cancels_what_is_not_over_and_stays(sqlite_desk: FrontDesk) -> None:
    paused = await ran(sqlite_desk, "ask end")
    assert paused.session_id is not None
    waits = await sqlite_desk.send("two", paused.session_id)
    closed = await sqlite_desk.lifecycle.change_session(
        paused.session_id, status=SessionStatus.CLOSED
    )

    assert closed.status is SessionStatus.CLOSED
    assert waits.execution is not None
    for execution_id in (paused.id, waits.execution.id):
        assert (await sqlite_desk.execution(execution_id)).status is CANCELLED
    for status in (SessionStatus.ACTIVE, SessionStatus.ARCHIVED):
        with pytest.raises(ConflictError) as caught:
            await sqlite_desk.lifecycle.change_session(paused.session_id, status=status)
        assert caught.value.code == "session_closed"
    again = await sqlite_desk.lifecycle.change_session(
        paused.session_id, status=SessionStatus.CLOSED
    )
    assert again == await sqlite_desk.session(paused.session_id)


async def test_a_session_that_is_not_there_cannot_be_changed(sqlite_desk: FrontDesk) -> None:
    with pytest.raises(NotThereError):
        await sqlite_desk.lifecycle.change_session("nobody", title="x")
    with pytest.raises(RefusedError):
        await sqlite_desk.lifecycle.change_session("nobody", title="\x00")


async def test_the_last_execution_of_a_session_is_its_newest(sqlite_desk: FrontDesk) -> None:
    desk = sqlite_desk
    first = await desk.send("add end")
    second = await desk.send("end", first.session.id)
    third = await desk.send("end", first.session.id)
    assert first.execution is not None
    assert second.execution is not None
    assert third.execution is not None

    async def last() -> str | None:
        return (await desk.session(first.session.id)).last_execution_id

    await desk.run(first.execution.id)
    assert await last() == third.execution.id
    await desk.lifecycle.cancel(third.execution.id)
    assert await last() == third.execution.id
    await desk.run(second.execution.id)
    session = await desk.session(first.session.id)
    assert session.last_execution_id == third.execution.id
    ran_last = await desk.execution(second.execution.id)
    assert session.last_snapshot_id == ran_last.last_snapshot_id is not None
    fork = await desk.lifecycle.fork(ADA, first.execution.id, step_number=1)
    assert fork.execution is not None
    await desk.run(fork.execution.id)
    assert (await desk.session(fork.session.id)).last_execution_id == fork.execution.id
    assert await last() == third.execution.id


async def test_an_answer_leaves_the_newest_execution_the_last(sqlite_desk: FrontDesk) -> None:
    asks = await ran(sqlite_desk, "ask end")
    waits = await sqlite_desk.send("end", asks.session_id)
    assert waits.execution is not None
    await sqlite_desk.lifecycle.answer(asks.id, question_of(asks), "Rome")
    session = await sqlite_desk.session(waits.session.id)
    assert session.last_execution_id == waits.execution.id
    await sqlite_desk.run(asks.id)
    session = await sqlite_desk.session(waits.session.id)
    assert session.last_execution_id == waits.execution.id


async def test_a_fork_does_not_run_again_what_was_approved_for_another_execution(
    tmp_path: Path,
) -> None:
    orders: list[int] = []

    @tool
    def order(item: int) -> str:
        """Order an item."""
        orders.append(item)
        return f"ordered {item}"

    words = ScriptedModel([call("order", id="o1", item=7), "Done.", "As you wish."])
    agent = Agent(words, tools=[order], capabilities=[UseApprovals("order")])
    async with desk_at(tmp_path / "a.db", {"shop": agent}) as desk:
        paused = await ran(desk, "Order item 7.")
        await desk.lifecycle.answer(paused.id, question_of(paused), Approval.granted())
        assert await desk.run(paused.id) is COMPLETED
        fork = await desk.lifecycle.fork(ADA, paused.id, step_number=1)
        assert fork.execution is not None
        assert await desk.run(fork.execution.id) is COMPLETED
        (step, *_) = await desk.reader.steps(fork.execution.id)

    assert orders == [7]
    (forked,) = step["tool_executions"]
    assert forked["outcome"] == "not_run"
    assert "the answer was for the execution that it was forked from" in forked["result"]

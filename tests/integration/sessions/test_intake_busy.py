"""Messages to a busy session, and what holds after any sequence of sends and cancels."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import ConflictError
from stepwell.sessions.intake.intake import NewSession, Sent
from stepwell.sessions.ports import execution_topic
from stepwell.sessions.records import WhenBusy
from stepwell.state import ToolOutcome
from tests.integration.sessions.front_desk import FrontDesk, desk_at

RUNNING, PENDING = ExecutionStatus.RUNNING, ExecutionStatus.PENDING
CANCELLED = ExecutionStatus.CANCELLED
ENDED = ("cancelled", "completed")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    """A desk over a SQLite file."""
    async with desk_at(tmp_path / "a.db") as desk:
        yield desk


def execution_id(sent: Sent) -> str:
    """Of a message that led to one."""
    assert sent.execution is not None
    return sent.execution.id


async def begun(desk: FrontDesk, when_busy: WhenBusy, content: str = "add end") -> Sent:
    """A session with one execution that waits."""
    return await desk.send(content, new_session=NewSession(when_busy=when_busy))


async def test_a_session_may_reject_what_comes_while_it_is_busy(desk: FrontDesk) -> None:
    first = await begun(desk, WhenBusy.REJECT)
    with pytest.raises(ConflictError) as caught:
        await desk.send("two", first.session.id)
    assert caught.value.code == "busy"
    assert f"{execution_id(first)} is pending" in str(caught.value)
    assert len(await desk.messages(first.session.id)) == 2
    await desk.run(execution_id(first))
    assert (await desk.send("two", first.session.id)).execution is not None


async def test_an_interrupt_ends_what_waits_and_goes_on_with_the_new(desk: FrontDesk) -> None:
    first = await begun(desk, WhenBusy.INTERRUPT, "ask end")
    await desk.run(execution_id(first))
    second = await desk.send("add end", first.session.id)

    assert [it.id for it in await desk.unfinished(first.session.id)] == [execution_id(second)]
    cancelled = await desk.execution(execution_id(first))
    assert cancelled.status is CANCELLED
    assert desk.jobs.enqueued[-1] == execution_id(second)
    assert second.session.last_execution_id == execution_id(second)
    said = await desk.contents(first.session.id)
    assert said[-3:] == [
        "notification: Execution cancelled: interrupted by a new message",
        "user: add end",
        "info: Execution queued",
    ]
    assert await desk.run(execution_id(second)) is ExecutionStatus.COMPLETED
    first_state = await desk.reader.state_at(execution_id(first))
    assert first_state.steps[0].step.tool_executions[0].outcome is ToolOutcome.NOT_RUN


async def test_an_interrupt_asks_the_worker_of_what_runs_and_waits_for_it(desk: FrontDesk) -> None:
    first = await begun(desk, WhenBusy.INTERRUPT)
    assert await desk.claim(execution_id(first)) is not None
    enqueued = len(desk.jobs.enqueued)
    async with desk.store.bus.subscribe(execution_topic(execution_id(first))) as news:
        second = await desk.send("two", first.session.id)
        assert await news.wait(90)
    third = await desk.send("three", first.session.id)

    running = await desk.execution(execution_id(first))
    assert running.cancel_requested == "interrupted by a new message"
    assert (await desk.execution(execution_id(second))).status is CANCELLED
    waiting = await desk.unfinished(first.session.id)
    assert [it.id for it in waiting] == [execution_id(first), execution_id(third)]
    assert desk.jobs.enqueued[enqueued:] == []


async def test_steering_reaches_what_runs_without_a_new_execution(desk: FrontDesk) -> None:
    first = await begun(desk, WhenBusy.STEER)
    assert await desk.claim(execution_id(first)) is not None
    async with desk.store.bus.subscribe(execution_topic(execution_id(first))) as news:
        steered = await desk.send("left", first.session.id, idempotency_key="k")
        assert await news.wait(90)

    assert steered.execution is None
    assert steered.message.metadata["steers"] is True
    assert steered.message.agent_execution_id == execution_id(first)
    found = await desk.store.read(lambda tx: tx.steering_messages(execution_id(first)))
    assert [it.id for it in found] == [steered.message.id]
    assert len(await desk.unfinished(first.session.id)) == 1
    assert (await desk.events(first.session.id))[-1].type == "message.sent"
    again = await desk.send("left", first.session.id, idempotency_key="k")
    assert again.repeated
    assert again.execution is None
    assert again.message == steered.message


async def test_what_waits_or_is_to_end_is_not_steered(desk: FrontDesk) -> None:
    first = await begun(desk, WhenBusy.STEER, "ask end")
    assert (await desk.send("two", first.session.id)).execution is not None
    await desk.run(execution_id(first))
    assert (await desk.send("three", first.session.id)).execution is not None
    other = await begun(desk, WhenBusy.STEER)
    await desk.claim(execution_id(other))
    await desk.lifecycle.cancel(execution_id(other))
    assert (await desk.send("two", other.session.id)).execution is not None


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["send", "key", "cancel", "claim", "run", "rename"]), st.integers(0, 5)
    ),
    max_size=8,
)


@given(when_busy=st.sampled_from(list(WhenBusy)), actions=ACTIONS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_whatever_is_done_a_session_has_one_head_and_a_log_without_gaps(
    desk: FrontDesk, when_busy: WhenBusy, actions: list[tuple[str, int]]
) -> None:
    session = await desk.begin(when_busy)
    by_key: dict[int, str] = {}
    for action, number in actions:
        await _act(desk, session.id, action, number, by_key)
        await _holds(desk, session.id)


async def _act(
    desk: FrontDesk, session_id: str, action: str, number: int, by_key: dict[int, str]
) -> None:
    known = await desk.store.read(lambda tx: tx.executions(session_id=session_id))
    chosen = known[number % len(known)].id if known else None
    waiting = await desk.unfinished(session_id)
    try:
        if action == "send":
            await desk.send("add end", session_id)
        elif action == "key":
            sent = await desk.send("key", session_id, idempotency_key=f"{session_id}{number}")
            assert by_key.setdefault(number, sent.message.id) == sent.message.id
        elif action == "cancel" and chosen is not None:
            await desk.lifecycle.cancel(chosen)
        elif action == "claim" and waiting and waiting[0].status is PENDING:
            assert await desk.claim(waiting[0].id) is not None
        elif action == "run" and waiting and waiting[0].status is PENDING:
            await desk.run(waiting[0].id)
        elif action == "rename":
            await desk.lifecycle.change_session(session_id, title=f"Title {number}")
    except ConflictError as error:
        assert error.code in ("busy", "already_over")  # noqa: PT017


async def _holds(desk: FrontDesk, session_id: str) -> None:
    waiting = await desk.unfinished(session_id)
    assert all(it.status is PENDING for it in waiting[1:])
    now = desk.clock.now()
    claimable = await desk.store.read(lambda tx: tx.claimable(now, limit=1000))
    heads = [it.id for it in waiting[:1] if it.status is PENDING]
    assert [it for it in claimable if it in {e.id for e in waiting}] == heads
    if heads:
        assert heads[0] in desk.jobs.enqueued  # a job was there for it
    events = await desk.events(session_id)
    assert [it.seq for it in events] == list(range(1, len(events) + 1))
    messages = await desk.messages(session_id)
    times = [it.created_at for it in messages]
    assert times == sorted(set(times))
    told = {it.payload.get("message_id") for it in events}
    assert {it.id for it in messages} <= told
    statuses = [it for it in events if it.type == "agent.status"]
    ended = [it.execution_id for it in statuses if it.payload["status"] in ENDED]
    assert len(ended) == len(set(ended))
    keys = [it.idempotency_key for it in messages if it.idempotency_key]
    assert len(keys) == len(set(keys))

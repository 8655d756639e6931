"""Sending a message: one transaction, in order, once per key, and nothing when it is refused."""

import asyncio
from pathlib import Path

import pytest

from stepwell.errors import AgentNotFoundError
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import (
    ConflictError,
    NotThereError,
    RefusedError,
    SessionError,
    TooManyError,
)
from stepwell.sessions.intake.contexts import AllowedContexts, Context
from stepwell.sessions.intake.intake import Intake, NewMessage, NewSession
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import MessageRole, SessionStatus
from tests.integration.sessions.front_desk import ADA, FrontDesk, NotedJobs, desk_at, talker


async def all_that_is_there(desk: FrontDesk) -> tuple[int, ...]:
    """How much the database holds."""
    size = await desk.store.read(lambda tx: tx.size())
    return size.sessions, size.messages, size.executions, size.events


async def test_a_first_message_becomes_a_session_an_execution_and_what_people_read(
    desk: FrontDesk,
) -> None:
    sent = await desk.send("Book a table\nfor two")

    assert sent.session == await desk.session(sent.session.id)
    assert sent.session.title == "Book a table"
    assert (sent.session.user_id, sent.session.agent_type) == ("ada", "talker")
    execution = sent.execution
    assert execution is not None
    assert execution == await desk.execution(execution.id)
    assert execution.status is ExecutionStatus.PENDING
    assert execution.input == {"message_ids": [sent.message.id]}
    agent = desk.agents.get("talker")
    assert execution.definition_hash == agent.definition_hash
    assert execution.agent_config["tools"] == ["add", "send_mail", "user_input"]
    assert sent.session.last_execution_id == execution.id
    assert await desk.contents(sent.session.id) == [
        "user: Book a table\nfor two",
        "info: Execution queued",
    ]
    events = await desk.events(sent.session.id)
    assert [(it.seq, it.type) for it in events] == [(1, "message.sent"), (2, "execution.queued")]
    assert events[0].payload["message_id"] == sent.message.id
    assert desk.jobs.enqueued == [execution.id]
    assert not sent.repeated


async def test_messages_of_one_session_wait_behind_one_another(sqlite_desk: FrontDesk) -> None:
    first = await sqlite_desk.send("one")
    second = await sqlite_desk.send("two", first.session.id)
    third = await sqlite_desk.send("three", first.session.id)

    executions = [sent.execution for sent in (first, second, third)]
    assert [it.id for it in await sqlite_desk.unfinished(first.session.id)] == [
        it.id for it in executions if it
    ]
    assert sqlite_desk.jobs.enqueued == [first.execution.id]  # type: ignore[union-attr]
    assert third.session.title == "one"
    assert third.session.last_execution_id == third.execution.id  # type: ignore[union-attr]
    assert third.session.last_seq == 6
    times = [it.created_at for it in await sqlite_desk.messages(first.session.id)]
    assert times == sorted(set(times))
    assert await sqlite_desk.claim(second.execution.id) is None  # type: ignore[union-attr]
    await sqlite_desk.run(first.execution.id)  # type: ignore[union-attr]
    assert sqlite_desk.jobs.enqueued[-1] == second.execution.id  # type: ignore[union-attr]


async def test_the_same_key_sends_once_and_answers_the_same(sqlite_desk: FrontDesk) -> None:
    first = await sqlite_desk.send("Hello", idempotency_key="k1")
    before = await all_that_is_there(sqlite_desk)
    again = await sqlite_desk.send("Hello", idempotency_key="k1")

    assert again.repeated
    assert again.message == first.message
    assert again.execution == first.execution
    assert again.session.id == first.session.id
    assert await all_that_is_there(sqlite_desk) == before
    assert len(sqlite_desk.jobs.enqueued) == 1


async def test_a_key_is_its_users_and_its_bodys(sqlite_desk: FrontDesk) -> None:
    first = await sqlite_desk.send("Hello", idempotency_key="k1")
    bob = Principal(user_id="bob")
    other = await sqlite_desk.intake.send_message(
        bob, NewMessage(content="Hello", idempotency_key="k1")
    )
    assert other.session.id != first.session.id
    stranger = Principal(user_id="ada", tenant_id="elsewhere")
    third = await sqlite_desk.intake.send_message(
        stranger, NewMessage(content="Hello", idempotency_key="k1")
    )
    assert third.session.id != first.session.id
    before = await all_that_is_there(sqlite_desk)
    for fields in ({"content": "Bye"}, {"content": "Hello", "session_id": first.session.id}):
        with pytest.raises(ConflictError) as caught:
            await sqlite_desk.send(**fields, idempotency_key="k1")
        assert caught.value.code == "idempotency_conflict"
    assert await all_that_is_there(sqlite_desk) == before


async def test_a_key_sent_many_times_at_once_is_one_message(desk: FrontDesk) -> None:
    sent = await asyncio.gather(*(desk.send("Hello", idempotency_key="k1") for _ in range(8)))

    assert len({it.message.id for it in sent}) == 1
    assert len({it.session.id for it in sent}) == 1
    assert sum(not it.repeated for it in sent) == 1
    assert (await all_that_is_there(desk))[:3] == (1, 2, 1)


async def test_many_at_once_in_one_session_have_one_order(desk: FrontDesk) -> None:
    first = await desk.send("0")
    await asyncio.gather(*(desk.send(f"{n}", first.session.id) for n in range(1, 9)))

    said = [it for it in await desk.messages(first.session.id) if it.role is MessageRole.USER]
    assert sorted(it.content for it in said) == [str(n) for n in range(9)]
    waiting = await desk.unfinished(first.session.id)
    assert [it.input["message_ids"][0] for it in waiting] == [it.id for it in said]
    assert [it.seq for it in await desk.events(first.session.id)] == list(range(1, 19))
    assert desk.jobs.enqueued == [waiting[0].id]


async def test_what_is_refused_leaves_nothing(tmp_path: Path) -> None:
    async with desk_at(tmp_path / "a.db", max_message_characters=20) as desk:
        session = (await desk.send("Hello")).session
        before = await all_that_is_there(desk)
        refused = [
            ({"content": " "}, "empty_message"),
            ({"content": "a" * 21}, "message_too_long"),
            ({"content": "a\x00"}, "bad_text"),
            ({"content": "a", "metadata": {"steers": True}}, "bad_metadata"),
            ({"content": "a", "idempotency_key": ""}, "bad_idempotency_key"),
            ({"content": "a", "session_id": "nobody"}, "session_not_found"),
            (
                {"content": "a", "context": Context(related_type="x", related_id="1")},
                "unknown_related_type",
            ),
            ({"content": "a", "new_session": NewSession(title="")}, "bad_title"),
            ({"content": "a", "new_session": NewSession(metadata={"a": set()})}, "bad_metadata"),
        ]
        for fields, code in refused:
            with pytest.raises(SessionError) as caught:
                await desk.intake.send_message(ADA, NewMessage(**fields))  # type: ignore[arg-type]
            assert caught.value.code == code
        with pytest.raises(AgentNotFoundError, match="known: other, talker"):
            await desk.send("a", new_session=NewSession(agent_type="nobody"))
        stranger = Principal(user_id="ada", tenant_id="elsewhere")
        with pytest.raises(NotThereError):
            await desk.intake.send_message(stranger, NewMessage(content="a", session_id=session.id))
        assert await all_that_is_there(desk) == before


class BrokenJobs(NotedJobs):
    """A queue that breaks when everything else is written."""

    async def enqueue(self, transaction: Transaction, execution_id: str, /) -> None:
        raise RuntimeError("no queue")


async def test_b121_a_send_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    async with desk_at(tmp_path / "a.db") as desk:
        session = await desk.intake.create_session(ADA, NewSession(title="Mine"))
        before = await all_that_is_there(desk)
        intake = Intake(desk.store, BrokenJobs(), desk.agents)
        for session_id in (None, session.id):
            with pytest.raises(RuntimeError, match="no queue"):
                await intake.send_message(ADA, NewMessage(content="Hi", session_id=session_id))
        assert await all_that_is_there(desk) == before
        assert await desk.session(session.id) == session


async def test_b124_sessions_that_take_no_messages_say_what_to_do(tmp_path: Path) -> None:
    async with desk_at(tmp_path / "a.db") as desk:
        session = await desk.intake.create_session(ADA, NewSession(title="Mine"))
        await desk.lifecycle.change_session(session.id, status=SessionStatus.ARCHIVED)
        with pytest.raises(ConflictError, match="reactivate it") as caught:
            await desk.send("Hello", session.id)
        assert caught.value.code == "session_archived"
        await desk.lifecycle.change_session(session.id, status=SessionStatus.CLOSED)
        with pytest.raises(ConflictError, match="new one") as caught:
            await desk.send("Hello", session.id)
        assert caught.value.code == "session_closed"


async def test_a_session_whose_agent_is_gone_takes_no_messages(tmp_path: Path) -> None:
    async with desk_at(tmp_path / "a.db") as desk:
        sent = await desk.send("Hello", new_session=NewSession(agent_type="other"))
    async with desk_at(tmp_path / "a.db", {"talker": talker()}) as desk:
        with pytest.raises(ConflictError, match="'other'") as caught:
            await desk.send("Hello", sent.session.id)
        assert caught.value.code == "agent_gone"


async def test_a_user_may_have_so_many_unfinished_executions(tmp_path: Path) -> None:
    async with desk_at(tmp_path / "a.db", max_unfinished_per_user=2) as desk:
        first = await desk.send("one")
        await desk.send("two")
        for session_id in (None, first.session.id):
            with pytest.raises(TooManyError) as caught:
                await desk.send("three", session_id)
            assert caught.value.code == "queue_full"
        await desk.intake.send_message(Principal(user_id="bob"), NewMessage(content="mine"))
        await desk.run(first.execution.id)  # type: ignore[union-attr]
        await desk.send("three")


async def test_contexts_are_resolved_before_they_are_stored(tmp_path: Path) -> None:
    async with desk_at(tmp_path / "a.db") as desk:
        contexts = AllowedContexts({"order": lambda who, id: id == "7" and f"/orders/{id}"})
        intake = Intake(desk.store, desk.jobs, desk.agents, contexts=contexts)
        order = Context(related_type="order", related_id="7", context_url="/x")
        sent = await intake.send_message(ADA, NewMessage(content="Hi", context=order))
        assert (sent.message.related_id, sent.message.context_url) == ("7", "/orders/7")
        assert sent.session.initial_context_url == "/orders/7"
        page = Context(context_url="/start")
        new = NewSession(context=page)
        sent = await intake.send_message(
            ADA, NewMessage(content="Hi", context=order, new_session=new)
        )
        assert (sent.session.related_type, sent.session.initial_context_url) == (None, "/start")
        wrong = Context(related_type="order", related_id="8")
        with pytest.raises(RefusedError):
            await intake.send_message(ADA, NewMessage(content="Hi", context=wrong))


async def test_a_session_may_begin_without_messages_and_gets_its_title_from_the_first(
    tmp_path: Path,
) -> None:
    async with desk_at(tmp_path / "a.db") as desk:
        session = await desk.intake.create_session(ADA, NewSession(metadata={"colour": "red"}))
        assert session == await desk.session(session.id)
        sent = await desk.send("First\nline", session.id)
        assert sent.session.title == "First"
        assert (await desk.send("Second", session.id)).session.title == "First"

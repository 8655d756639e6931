"""Two tenants with three users each, in every place that sees who asks, over every way in which a
run begins or goes on: no place ever sees another identity than that of the message's sender."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from stepwell.ids import new_id
from stepwell.journal.status import ExecutionStatus
from stepwell.replay.replay import replay_execution
from stepwell.run_context import Principal
from stepwell.sessions.intake.intake import NewMessage, NewSession
from stepwell.sessions.records import Execution, WhenBusy
from tests.integration.identity.witness import Witness, name_of, witness_app
from tests.servers.postgres_server import database_of_its_own

PEOPLE = [
    Principal(user_id=user, tenant_id=tenant, roles=roles, is_admin=user == "admin")
    for tenant in ("north", "south")
    for user, roles in (("ada", ("customer",)), ("bob", ("staff", "customer")), ("admin", ()))
]
ADMIN = {who.tenant_id: who for who in PEOPLE if who.is_admin}


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'app.db'}"
        return
    server: str = request.getfixturevalue("postgres_url")
    template: str = request.getfixturevalue("migrated_postgres")
    with database_of_its_own(server, f"identity_{new_id()}", template) as url:
        yield url


class Desk:
    """The application in this process, and the notes of its witness."""

    def __init__(self, db: str, file: Path) -> None:
        self.witness = Witness(file)
        self.app = witness_app(db, file, worker=True)

    async def ask(self, who: Principal, wish: str, session_id: str | None = None) -> Execution:
        """Send a message as somebody, and wait for its answer."""
        return await self.app.ask(who, f"{name_of(who)} {wish}", session_id=session_id)

    async def settled(self, execution: Execution | None) -> Execution:
        """Wait until an execution pauses or is over."""
        assert execution is not None
        return await self.app.services.reader.settled_execution(execution)

    def check(self, *places: str) -> None:
        """Each of the places noted something, and nothing that was noted is foreign."""
        notes = self.witness.notes
        assert [note for note in notes if note["said"] != note["seen"]] == []
        assert {note["place"] for note in notes} >= set(places)


@pytest.fixture
async def desk(database: str, tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(database, tmp_path / "notes.jsonl")
    async with desk.app.running():
        yield desk


async def test_every_place_sees_the_sender(desk: Desk) -> None:
    executions = await asyncio.gather(*(desk.ask(who, "whoami") for who in PEOPLE))

    assert [it.output for it in executions] == [name_of(who) for who in PEOPLE]
    hooks = ("before_execution", "before_tool", "after_step", "after_execution")
    desk.check("tool", "criterion", "rule", "prompt", *(f"hook {it}" for it in hooks))


async def test_subagents_act_for_the_sender(desk: Desk) -> None:
    executions = await asyncio.gather(*(desk.ask(who, "delegate") for who in PEOPLE))

    assert [it.output for it in executions] == [name_of(who) for who in PEOPLE]
    desk.check("tool")


async def test_an_approval_by_somebody_else_leaves_the_run_the_senders(desk: Desk) -> None:
    for who in PEOPLE:
        asked = await desk.ask(who, "approve")
        assert asked.status is ExecutionStatus.PAUSED
        [question] = asked.questions
        resumed = await desk.app.services.lifecycle.answer(asked.id, question["question_id"], True)
        assert (await desk.settled(resumed)).output == name_of(who)
    desk.check("rule", "approved tool")


async def test_every_turn_of_a_session_runs_as_its_own_sender(desk: Desk) -> None:
    for who in PEOPLE:
        first = await desk.ask(who, "whoami")
        admin = ADMIN[who.tenant_id]
        second = await desk.ask(admin, "whoami", first.session_id)
        third = await desk.ask(who, "whoami", first.session_id)
        assert [it.output for it in (first, second, third)] == [
            name_of(it) for it in (who, admin, who)
        ]
    desk.check("tool", "criterion")


async def test_a_fork_runs_as_who_forked(desk: Desk) -> None:
    for who in PEOPLE:
        first = await desk.ask(who, "whoami")
        admin = ADMIN[who.tenant_id]
        sent = await desk.app.services.lifecycle.fork(
            admin, first.id, message=f"{name_of(admin)} whoami"
        )
        assert (await desk.settled(sent.execution)).output == name_of(admin)
    desk.check("tool", "prompt")


async def test_a_replay_shows_hooks_and_criteria_the_sender(desk: Desk) -> None:
    executions = [await desk.ask(who, "whoami") for who in PEOPLE]
    before = len(desk.witness.notes)
    for execution in executions:
        services = desk.app.services
        replay = await replay_execution(services.store, services.agents, execution.id)
        assert replay.is_same, replay
    assert len(desk.witness.notes) > before
    desk.check("criterion")


async def test_only_the_sender_of_a_run_steers_it(desk: Desk) -> None:
    """The run is under way while others send: their messages become executions of their own."""
    services = desk.app.services
    ada = PEOPLE[0]
    new = NewSession(when_busy=WhenBusy.STEER)
    first = await services.intake.send_message(
        ada, NewMessage(content=f"{name_of(ada)} linger", new_session=new)
    )
    await _until(lambda: any(it["place"] == "linger" for it in desk.witness.notes))
    own = await services.intake.send_message(
        ada, NewMessage(content=f"{name_of(ada)} whoami", session_id=first.session.id)
    )
    admin = ADMIN[ada.tenant_id]
    other = await services.intake.send_message(
        admin, NewMessage(content=f"{name_of(admin)} whoami", session_id=first.session.id)
    )
    assert own.execution is None
    assert other.execution is not None
    assert first.execution is not None
    await services.lifecycle.cancel(first.execution.id)

    assert (await desk.settled(other.execution)).output == name_of(admin)
    desk.check("linger", "tool")


@pytest.mark.parametrize("who", PEOPLE, ids=name_of)
async def test_a_takeover_after_a_kill_runs_as_the_sender(
    who: Principal, database: str, tmp_path: Path
) -> None:
    file = tmp_path / "notes.jsonl"
    sender = witness_app(database, file, worker=False)
    async with sender.running():
        sent = await sender.services.intake.send_message(
            who, NewMessage(content=f"{name_of(who)} linger")
        )
        command = [sys.executable, "-m", "tests.integration.identity.witness", database, str(file)]
        witness = Witness(file)
        process = await asyncio.create_subprocess_exec(*command)
        try:
            await _until(lambda: any(it["place"] == "linger" for it in witness.notes))
        finally:
            process.kill()
            await process.wait()
        assert sent.execution is not None
        desk = Desk(database, file)
        async with desk.app.running():
            taken_over = await desk.settled(sent.execution)

    assert (taken_over.output, taken_over.attempt) == (name_of(who), 2)
    desk.check("linger", "hook after_execution")


async def _until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not happened():  # noqa: ASYNC110 - another process writes the notes
            await asyncio.sleep(0.05)

"""Server and worker through PgBouncer in transaction mode, with a second address to listen on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell import Agent
from stepwell.app.agent_app import AgentApp
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution
from stepwell.testing import ScriptedModel
from tests.servers.pgbouncer_server import pgbouncer_program, pgbouncer_running

ADA = Principal(user_id="ada")


@pytest.fixture
def pooled_url(worker_database: str) -> Iterator[str]:
    """The address of the database behind PgBouncer."""
    program = pgbouncer_program()
    if program is None:
        pytest.skip("no PgBouncer: apt-get install pgbouncer")
    with pgbouncer_running(program, worker_database) as url:
        yield url


def app_at(db: str, bus_url: str, *, worker: bool) -> AgentApp:
    agent = Agent(ScriptedModel(lambda _: "Yes."))
    return AgentApp({"yes": agent}, db=db, bus_url=bus_url, worker=worker)


async def test_server_and_worker_work_through_pgbouncer(
    pooled_url: str, worker_database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = app_at(pooled_url, worker_database, worker=False)
    worker = app_at(pooled_url, worker_database, worker=True)
    async with server.running(), worker.running():
        services = server.services
        ids: list[str] = []
        # Often enough that a driver that prepares statements would have prepared them all.
        for _ in range(20):
            sent = await services.intake.send_message(ADA, NewMessage(content="Is it so?"))
            assert sent.execution is not None
            ids.append(sent.execution.id)

        async def row(id: str) -> Execution:
            found = await services.store.read(lambda tx: tx.execution(id))
            assert found is not None
            return found

        async with asyncio.timeout(90):
            while not all([(await row(id)).status.is_terminal for id in ids]):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        rows = [await row(id) for id in ids]
    assert {(each.status, each.attempt) for each in rows} == {(ExecutionStatus.COMPLETED, 1)}
    assert [each for each in caplog.messages if "prepared statement" in each] == []

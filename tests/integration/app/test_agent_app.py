"""``AgentApp`` in a program, and mounted into another application."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from stepwell import Agent
from stepwell.app import AgentApp, DevAuthenticator, NewMessage, NewSession, Principal
from stepwell.app.supervised_task import FIRST_PAUSE_SECONDS
from stepwell.clock import SystemClock
from stepwell.errors import ConfigurationError
from stepwell.testing import MockTool, ScriptedModel, call

ADA = Principal(user_id="ada")


def helper() -> Agent:
    def script(request: object) -> object:
        last = request.messages[-1]  # type: ignore[attr-defined]
        return call("look", path="a") if last.tool_result is None else f"It says {last.text}."

    return Agent(ScriptedModel(script), tools=[MockTool.returning("look", "hello")])


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AgentApp]:
    app = AgentApp({"helper": helper()}, db=f"sqlite:///{tmp_path}/a.db")
    async with app.running():
        yield app


async def ended(app: AgentApp, execution_id: str) -> str:
    services = app.services
    while True:
        row = await services.store.read(lambda tx: tx.execution(execution_id))
        assert row is not None
        if row.status.is_terminal:
            return row.status
        await services.clock.sleep(0.02)


async def test_a_program_can_send_a_message_itself(app: AgentApp) -> None:
    sent = await app.services.intake.send_message(
        ADA, NewMessage(content="Look", new_session=NewSession(agent_type="helper"))
    )
    assert sent.execution is not None
    assert await ended(app, sent.execution.id) == "completed"
    state = await app.services.reader.state_at(sent.execution.id)
    assert state.final_response == "It says hello."


async def test_it_can_be_mounted_into_another_application(tmp_path: Path) -> None:
    agents = AgentApp({"helper": helper()}, db=f"sqlite:///{tmp_path}/a.db")
    host = FastAPI(lifespan=agents.lifespan)
    host.mount("/ai", agents)
    transport = httpx2.ASGITransport(app=host, client=("127.0.0.1", 1))
    async with (
        host.router.lifespan_context(host),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        answer = await client.post("/ai/agent/messages", json={"content": "Look"})
        assert answer.status_code == 202
        assert await ended(agents, answer.json()["execution"]["id"]) == "completed"


async def test_a_mounted_one_that_was_not_told_starts_with_its_first_request(
    tmp_path: Path,
) -> None:
    agents = AgentApp({"helper": helper()}, db=f"sqlite:///{tmp_path}/a.db")
    host = FastAPI()
    host.mount("/ai", agents)
    transport = httpx2.ASGITransport(app=host, client=("127.0.0.1", 1))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/ai/health")).status_code == 200
    await agents.stop()


async def test_without_the_application_running_there_are_no_services(tmp_path: Path) -> None:
    agents = AgentApp({"helper": helper()}, db=f"sqlite:///{tmp_path}/a.db")
    with pytest.raises(ConfigurationError, match=r"async with app\.running"):
        _ = agents.services


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_listening_beyond_this_machine_needs_an_authenticator(host: str) -> None:
    with pytest.raises(ConfigurationError, match="beyond this machine"):
        AgentApp({"helper": helper()}).refuse_open_bind(host)
    with pytest.raises(ConfigurationError, match="beyond this machine"):
        AgentApp({"helper": helper()}, authenticate=DevAuthenticator()).refuse_open_bind(host)

    async def authenticate(_request: object) -> Principal | None:
        return None

    AgentApp({"helper": helper()}, authenticate=authenticate).refuse_open_bind(host)


async def test_the_configuration_fills_in_what_was_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWELL_DB", "sqlite:///elsewhere.db")
    monkeypatch.setenv("STEPWELL_SESSIONS__CONCURRENCY", "3")
    monkeypatch.chdir(tmp_path)
    assert AgentApp({"helper": helper()}).config.db == "sqlite:///elsewhere.db"
    given = AgentApp({"helper": helper()}, db="sqlite:///here.db")
    assert (given.config.db, given.config.sessions.concurrency) == ("sqlite:///here.db", 3)


async def test_the_secret_of_the_channels_stays_the_same_and_is_not_readable_by_others(
    tmp_path: Path,
) -> None:
    secrets: set[str] = set()
    for _ in range(2):
        async with AgentApp({"h": helper()}, db=f"sqlite:///{tmp_path}/a.db").running() as app:
            secrets.add(app.services.settings.app_secret)
    assert len(secrets) == 1
    assert (tmp_path / "a.db.secret").stat().st_mode & 0o777 == 0o600


class BrokenOnce:
    """A worker that breaks when it is about to begin."""

    async def run(self) -> None:
        raise OSError(24, "SECRET: too many open files")

    async def stop(self) -> None:
        pass

    async def close(self) -> None:
        pass


class Unlucky(AgentApp):
    """Its first worker is a broken one."""

    workers = 0

    def new_worker(self, *parts: Any) -> Any:
        self.workers += 1
        return BrokenOnce() if self.workers == 1 else super().new_worker(*parts)


class PausedUntilTold(SystemClock):
    """The pause before another worker begins lasts as long as a test wants to look at it."""

    def __init__(self) -> None:
        self.pausing = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        if seconds == FIRST_PAUSE_SECONDS and not self.goes_on.is_set():
            self.pausing.set()
            await self.goes_on.wait()
        else:
            await super().sleep(seconds)


async def test_a_worker_that_breaks_is_replaced_and_told_of_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = PausedUntilTold()
    app = Unlucky({"helper": helper()}, db=f"sqlite:///{tmp_path}/a.db", clock=clock)
    transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1))
    async with (
        app.running(),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        sent = await app.services.intake.send_message(ADA, NewMessage(content="Look"))
        await asyncio.wait_for(clock.pausing.wait(), 90)
        meanwhile = await client.get("/ready")
        clock.goes_on.set()
        assert sent.execution is not None
        async with asyncio.timeout(90):
            assert await ended(app, sent.execution.id) == "completed"
        later = await client.get("/ready")
    assert meanwhile.status_code == 503
    assert "OSError" in meanwhile.json()["checks"]["worker here"]
    assert "SECRET" not in meanwhile.text
    assert (later.status_code, app.workers) == (200, 2)
    assert "Too many open files" in caplog.text or "too many open files" in caplog.text
    assert "Traceback" in caplog.text

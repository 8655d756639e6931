"""How many messages per second are taken while one worker works on them: through ``Intake``, and
through HTTP with a real uvicorn. Worker and server are processes of their own.
"""

import asyncio
import logging
import multiprocessing
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import httpx2

from stepwell import Agent
from stepwell.clock import SystemClock
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.intake import Intake, NewMessage, NewSession
from stepwell.sessions.principal import Principal
from stepwell.sessions.runner import Runner
from stepwell.sessions.settings import SessionSettings
from stepwell.stores.opening import open_store
from stepwell.testing import ScriptedModel
from stepwell.worker.choice import jobs_for, worker_for
from stepwell.worker.work import Work

CALLERS = 32
PER_SESSION = 10
"""So many messages a caller sends to one session before it makes the next."""
SETTINGS = SessionSettings(max_unfinished_per_user=1_000_000)
_SPAWN = multiprocessing.get_context("spawn")


def agent() -> Agent:
    """It answers in one step."""
    return Agent(ScriptedModel(lambda _: "Yes."), system_prompt="You say yes.")


async def _worker(url: str, told: Connection) -> None:
    store = await open_store(url, migrate=False)
    jobs = jobs_for(url)
    clock = SystemClock()
    runner = Runner(store, jobs, AgentDirectory({"yes": agent()}), settings=SETTINGS, clock=clock)
    work = Work(store, runner, settings=SETTINGS, worker_id="bench", clock=clock, jobs=jobs)
    worker = worker_for(url, store, work, SETTINGS, clock)
    loop, closed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(told.fileno(), closed.set)
    told.send("ready")
    working = asyncio.create_task(worker.run())
    await closed.wait()
    loop.remove_reader(told.fileno())
    await worker.stop()
    await working
    await store.close()


def work_on(url: str, told: Connection) -> None:
    """The worker process: until the pipe is closed."""
    logging.disable(logging.ERROR)
    asyncio.run(_worker(url, told))


def serve(url: str, told: Connection) -> None:
    """The server process, without a worker in it."""
    import uvicorn

    from stepwell.app.agent_app import AgentApp
    from stepwell.server.live.line import LiveHttpProtocol
    from stepwell.server.settings import ServerSettings

    logging.disable(logging.ERROR)
    many = 1_000_000
    app = AgentApp(
        {"yes": agent()},
        db=url,
        settings=SETTINGS,
        server=ServerSettings(
            sends_per_second=many, send_burst=many, live_connections_per_user=many
        ),
        worker=False,
    )
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(1024)
    told.send((listening.getsockname()[1], os.getpid()))
    config = uvicorn.Config(app, log_level="error", http=LiveHttpProtocol, access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def process(target: Callable[[str, Connection], None], url: str) -> Iterator[Any]:
    """A process for the length of a block, and what it said when it was ready."""
    here, there = _SPAWN.Pipe()
    started = _SPAWN.Process(target=target, args=(url, there), daemon=True)
    started.start()
    there.close()
    try:
        yield here.recv()
    finally:
        here.close()
        started.join(1)
        started.kill()
        started.join()


async def _rate(seconds: float, send: Callable[[int, int], Awaitable[None]]) -> float:
    """Messages per second of all callers; each counts its own from 0."""
    until = time.perf_counter() + seconds
    counts = [0] * CALLERS

    async def call(caller: int) -> None:
        while time.perf_counter() < until:
            await send(caller, counts[caller])
            counts[caller] += 1

    started = time.perf_counter()
    await asyncio.gather(*(call(caller) for caller in range(CALLERS)))
    return sum(counts) / (time.perf_counter() - started)


async def intake_rate(url: str, seconds: float) -> tuple[float, int]:
    """Sends per second through ``Intake``, and how many executions were over by then."""
    store = await open_store(url)
    intake = Intake(store, jobs_for(url), AgentDirectory({"yes": agent()}), settings=SETTINGS)
    sessions: dict[int, str] = {}

    async def send(caller: int, count: int) -> None:
        who = Principal(user_id=f"user-{caller}")
        session = None if count % PER_SESSION == 0 else sessions[caller]
        new = NewSession(agent_type="yes")
        sent = await intake.send_message(
            who, NewMessage(content="Is it so?", session_id=session, new_session=new)
        )
        sessions[caller] = sent.session.id

    try:
        with process(work_on, url):
            rate = await _rate(seconds, send)
            open_now = sum((await store.read(lambda tx: tx.count_by_status())).values())
            size = await store.read(lambda tx: tx.size())
        return rate, size.executions - open_now
    finally:
        await store.close()


async def http_rate(url: str, seconds: float) -> float:
    """Sends per second through a server, each caller on a connection of its own."""
    sessions: dict[int, str] = {}
    with process(serve, url) as (port, _), process(work_on, url):
        limits = httpx2.Limits(max_connections=CALLERS)
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=30, limits=limits
        ) as client:

            async def send(caller: int, count: int) -> None:
                if count % PER_SESSION == 0:
                    made = await client.post("/agent/sessions", json={"agent_type": "yes"})
                    made.raise_for_status()
                    sessions[caller] = made.json()["id"]
                answer = await client.post(
                    f"/agent/sessions/{sessions[caller]}/messages", json={"content": "Is it so?"}
                )
                answer.raise_for_status()

            return await _rate(seconds, send)

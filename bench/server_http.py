"""What a send over HTTP costs the server, beside a bare FastAPI route that inserts one row in one
transaction, and how many sends a second go through beside a worker at work.

CPU of the server's process with its threads, without the database's. The client is in this process.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from bench.databases import NewDatabase, make_tables
from bench.http_client import HttpConnection, connected
from bench.server_app import USER, make_app
from bench.server_process import Role, process, serve, serve_bare, work, yes_agent
from stepwell.sessions.intake.intake import NewMessage, NewSession

CALLERS = 8
RATE_CALLERS = 32
PER_SESSION = 10
"""Messages that a caller sends to one session before it makes the next."""
TEXT = {"content": "Is it so?"}


def measure_http(kind: str, new_database: NewDatabase, *, sends: int) -> dict[str, float]:
    """CPU of a send; the ratio to the floor."""
    ours_url = asyncio.run(make_tables(new_database("http")))
    ours, bare = [], []
    with (
        process(serve, Role(url=ours_url)) as server,
        process(serve_bare, Role(url=new_database("bare"))) as floor,
    ):
        for _ in range(3):
            for each, path, taken in (
                (server, "/agent/sessions/{}/messages", ours),
                (floor, "/sessions/{}/messages", bare),
            ):
                asyncio.run(_send_all(each.port, path, CALLERS))  # what is loaded once
                before = each.cpu
                asyncio.run(_send_all(each.port, path, sends))
                taken.append((each.cpu - before) / sends)
    least, cost = statistics.median(bare), statistics.median(ours)
    return {
        f"http_send_ratio_{kind}": cost / least,
        f"http_send_ms_{kind}": cost * 1e3,
        f"bare_http_send_ms_{kind}": least * 1e3,
    }


async def _send_all(port: int, path: str, sends: int) -> None:
    async def send(count: int) -> None:
        async with connected(port) as client:
            session = "one"
            if "agent" in path:
                session = await new_session(client)
            for _ in range(count):
                await client.post(path.format(session), TEXT)

    await asyncio.gather(*(send(sends // CALLERS) for _ in range(CALLERS)))


async def new_session(client: HttpConnection) -> str:
    """The id of a new session."""
    return (await client.post("/agent/sessions", {"agent_type": "bench"}))["id"]


# Sends per second


def measure_sends(kind: str, new_database: NewDatabase, *, seconds: float) -> dict[str, float]:
    """Messages per second: taken in by this process, and over HTTP. A worker runs beside both."""
    intake_url = asyncio.run(make_tables(new_database("sends")))
    http_url = asyncio.run(make_tables(new_database("http-sends")))
    with process(work, Role(url=intake_url)):
        rate, finished = asyncio.run(_intake_rate(intake_url, seconds))
    with process(serve, Role(url=http_url)) as server, process(work, Role(url=http_url)):
        http_rate = asyncio.run(_http_rate(server.port, seconds))
    return {
        f"sends_per_s_{kind}": rate,
        f"http_sends_per_s_{kind}": http_rate,
        f"finished_per_s_beside_{kind}": finished,
    }


async def _rate(seconds: float, send: Callable[[int, int], Awaitable[None]]) -> float:
    """Messages per second of all callers; each counts its own from 0."""
    until = time.perf_counter() + seconds
    counts = [0] * RATE_CALLERS

    async def call(caller: int) -> None:
        while time.perf_counter() < until:
            await send(caller, counts[caller])
            counts[caller] += 1

    started = time.perf_counter()
    await asyncio.gather(*(call(caller) for caller in range(RATE_CALLERS)))
    return sum(counts) / (time.perf_counter() - started)


async def _intake_rate(url: str, seconds: float) -> tuple[float, float]:
    sessions: dict[int, str] = {}
    async with make_app(yes_agent(), url, worker=False).running() as app:

        async def send(caller: int, count: int) -> None:
            session = None if count % PER_SESSION == 0 else sessions[caller]
            sent = await app.services.intake.send_message(
                USER,
                NewMessage(
                    content="Is it so?",
                    session_id=session,
                    new_session=NewSession(agent_type="bench"),
                ),
            )
            sessions[caller] = sent.session.id

        rate = await _rate(seconds, send)
        store = app.services.store
        open_now = sum((await store.read(lambda tx: tx.count_by_status())).values())
        size = await store.read(lambda tx: tx.size())
    return rate, (size.executions - open_now) / seconds


async def _http_rate(port: int, seconds: float) -> float:
    sessions: dict[int, str] = {}
    clients = [connected(port) for _ in range(RATE_CALLERS)]
    lines = [await client.__aenter__() for client in clients]

    async def send(caller: int, count: int) -> None:
        if count % PER_SESSION == 0:
            sessions[caller] = await new_session(lines[caller])
        await lines[caller].post(f"/agent/sessions/{sessions[caller]}/messages", TEXT)

    try:
        return await _rate(seconds, send)
    finally:
        for client in clients:
            await client.__aexit__(None, None, None)

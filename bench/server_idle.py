"""What costs nothing while nothing happens: followers of idle sessions, and executions that wait
for a person.
"""

import asyncio
import gc
import resource
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.databases import NewDatabase, make_tables, transactions
from bench.http_client import connected
from bench.server_app import USER, make_app, running_app
from bench.server_process import Role, process, serve, work, yes_agent
from stepwell import Agent, InputRequired, tool
from stepwell.sessions.intake.intake import NewSession
from stepwell.testing import ScriptedModel, call

WARM_UP = 200
AT_ONCE = 10
CONNECTING = 50
SETTLE_SECONDS = 3.0


@tool(effect="pure")
def ask() -> InputRequired:
    """Ask a person."""
    return InputRequired(prompt="Shall I?")


# Followers of idle sessions


def measure_idle(
    kind: str, new_database: NewDatabase, *, sessions: int, seconds: float
) -> dict[str, float]:
    """Transactions a second of a server whose sessions are all followed and idle, alone and with
    an idle worker. SQLite's are counted in the process, PostgreSQL's by the database."""
    name = f"idle_tx_per_s_{kind}"
    alone, cpu = _idle_rate(new_database("idle"), sessions, seconds, worker=False)
    beside, _ = _idle_rate(new_database("idle-worker"), sessions, seconds, worker=True)
    return {
        name: alone,
        f"{name}_with_worker": beside,
        f"idle_cpu_ms_per_s_{kind}": cpu * 1e3,
        "idle_sessions": sessions,
    }


def _idle_rate(url: str, sessions: int, seconds: float, *, worker: bool) -> tuple[float, float]:
    ids = asyncio.run(_make_sessions(url, sessions))
    in_process = url.startswith("sqlite")
    with ExitStack() as running:
        role = Role(url=url, works=worker and in_process, counts=in_process)
        server = running.enter_context(process(serve, role))
        if worker and not in_process:
            running.enter_context(process(work, Role(url=url)))

        def sample() -> tuple[int, float]:
            seen = server.counts.transactions if in_process else transactions(url)
            return seen, server.cpu

        return asyncio.run(_follow_idle(server.port, ids, seconds, sample))


async def _make_sessions(url: str, count: int) -> list[str]:
    await make_tables(url)
    async with make_app(yes_agent(), url, worker=False).running() as app:
        new = NewSession(agent_type="bench")
        made = [
            await asyncio.gather(
                *(app.services.intake.create_session(USER, new) for _ in range(AT_ONCE))
            )
            for _ in range(max(1, count // AT_ONCE))
        ]
    return [session.id for some in made for session in some]


async def _follow_idle(
    port: int, ids: list[str], seconds: float, sample: Callable[[], tuple[int, float]]
) -> tuple[float, float]:
    """Transactions and CPU a second while every session is followed and nothing happens."""
    gate = asyncio.Semaphore(CONNECTING)
    there = 0
    all_there = asyncio.Event()

    async def follow(session: str) -> None:
        nonlocal there
        await gate.acquire()
        async with connected(port) as client:
            lines = client.events(f"/agent/sessions/{session}/events?after=0")
            await anext(lines)
            gate.release()
            there += 1
            if there == len(ids):
                all_there.set()
            async for _ in lines:
                pass
        raise AssertionError(f"the server hung up on session {session}")

    followers = [asyncio.create_task(follow(session)) for session in ids]
    connecting = asyncio.create_task(all_there.wait())
    try:
        await asyncio.wait({connecting, *followers}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(SETTLE_SECONDS)
        before = sample()
        await asyncio.sleep(seconds)
        after = sample()
        for broken in (each for each in followers if each.done()):
            broken.result()
    finally:
        for task in (connecting, *followers):
            task.cancel()
        await asyncio.gather(connecting, *followers, return_exceptions=True)
    return (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds


# Executions that wait for a person


async def measure_paused(folder: Path, count: int) -> dict[str, float]:
    """Memory that the process has more after so many executions have paused in it, for each."""
    agent = Agent(ScriptedModel(lambda _: call("ask")), tools=[ask])
    async with running_app(agent, folder / "paused.db") as app:

        async def pause() -> None:
            _, execution = await app.send("Do it.")
            await app.wait_for(execution, "paused")

        async def pause_all(number: int) -> float:
            for _ in range(number // AT_ONCE):
                await asyncio.gather(*(pause() for _ in range(AT_ONCE)))
            gc.collect()
            return _resident_bytes()

        before = await pause_all(WARM_UP)
        after = await pause_all(count)
    return {"paused_bytes": (after - before) / count, "paused_executions": count}


def _resident_bytes() -> float:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()

"""What one PostgreSQL and the processes around it spend on a step, a send and a streamed second.

CPU of the worker, of the server and of all PostgreSQL processes together. ``bench scale`` computes
with these figures.
"""

import asyncio
import time

import psycopg

from bench.databases import NewDatabase, make_tables, postgres_cpu
from bench.http_client import connected
from bench.server_http import TEXT, new_session
from bench.server_process import WORDS_PER_SECOND, Role, process, serve, work
from bench.server_streams import RAMP_SECONDS, Streams

STEPS = 10
WAIT_SECONDS = 300.0


def measure_costs(
    new_database: NewDatabase, *, executions: int, streams: int, seconds: float
) -> dict[str, float]:
    """CPU milliseconds by tier."""
    return {
        **_step_costs(asyncio.run(make_tables(new_database("costs"))), executions),
        **_stream_costs(asyncio.run(make_tables(new_database("costs-streams"))), streams, seconds),
    }


def _step_costs(url: str, executions: int) -> dict[str, float]:
    with process(serve, Role(url=url)) as server:
        asyncio.run(_send(server.port, 1))
        before = server.cpu, postgres_cpu(url)
        asyncio.run(_send(server.port, executions))
        after = server.cpu, postgres_cpu(url)
    sends = {
        "server_ms_per_send": (after[0] - before[0]) * 1e3 / executions,
        "database_ms_per_send": (after[1] - before[1]) * 1e3 / executions,
    }
    with process(work, Role(url=url, tool_steps=STEPS)) as worker:
        before = worker.cpu, postgres_cpu(url)
        _wait_for(url, executions + 1)
        after = worker.cpu, postgres_cpu(url)
    steps = (executions + 1) * STEPS
    return {
        **sends,
        "worker_ms_per_step": (after[0] - before[0]) * 1e3 / steps,
        "database_ms_per_step": (after[1] - before[1]) * 1e3 / steps,
    }


async def _send(port: int, count: int) -> None:
    async with connected(port) as client:
        for _ in range(count):
            session = await new_session(client)
            await client.post(f"/agent/sessions/{session}/messages", TEXT)


def _wait_for(url: str, count: int) -> None:
    """Until so many executions are completed."""
    until = time.monotonic() + WAIT_SECONDS
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < until:
            row = connection.execute(
                "SELECT count(*) FROM agent_executions WHERE status = 'completed'"
            ).fetchone()
            if row is not None and row[0] >= count:
                return
            time.sleep(0.1)
    raise AssertionError(f"{count} executions were not completed in {WAIT_SECONDS:g} s")


def _stream_costs(url: str, streams: int, seconds: float) -> dict[str, float]:
    role = Role(url=url, streams_seconds=seconds + RAMP_SECONDS)
    with process(serve, Role(url=url)) as server, process(work, role) as worker:

        def sample() -> tuple[float, ...]:
            return server.cpu, worker.cpu, postgres_cpu(url), worker.words

        *cpu, words = asyncio.run(Streams(server.port, streams).measure(seconds, sample))
    streamed = words / WORDS_PER_SECOND
    names = ("server", "worker", "database")
    return {
        f"{name}_ms_per_streamed_s": each * 1e3 / streamed
        for name, each in zip(names, cpu, strict=True)
    }

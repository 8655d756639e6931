"""What streamed answers cost while each is followed over SSE: write transactions and CPU.

The model streams 30 words a second. On SQLite server and worker are one process, on PostgreSQL two.
A streamed second is one of the model's: what it really streamed, not what it was to. Commits are
counted on SQLite, in a run of their own, since counting costs CPU.
"""

import asyncio
import re
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

from msgspec.structs import replace

from bench.databases import NewDatabase, make_tables, transactions
from bench.http_client import connected
from bench.server_http import new_session
from bench.server_process import WORDS_PER_SECOND, Role, process, serve, work

_WORD = re.compile(rb"word@([0-9.]+) ")
RAMP_SECONDS = 20.0
"""How much longer each answer streams than is measured."""
START_SECONDS = 120.0


class Streams:
    """So many sessions in which an answer streams, each with a follower."""

    def __init__(self, port: int, count: int) -> None:
        self._port, self._count = port, count
        self._streaming: set[int] = set()
        self._all_stream = asyncio.Event()
        self.delays: list[float] = []
        """From the model to the follower, of the newest word of each chunk."""

    async def follow(self, number: int) -> None:
        """Make a session, follow it, and have its answer stream; until cancelled."""
        async with connected(self._port) as client, connected(self._port) as follower:
            session = await new_session(client)
            lines = follower.events(f"/agent/sessions/{session}/events?after=0")
            await anext(lines)
            await client.post(f"/agent/sessions/{session}/messages", {"content": "Go on."})
            async for line in lines:
                if b"agent.stream.chunk" in line and (words := _WORD.findall(line)):
                    self.delays.append(time.monotonic() - float(words[-1]))
                    self._streaming.add(number)
                    if len(self._streaming) == self._count:
                        self._all_stream.set()

    async def measure(
        self, seconds: float, sample: Callable[[], tuple[float, ...]]
    ) -> tuple[float, ...]:
        """How far the sampled figures grow in so many seconds, while all of them stream."""
        followers = [asyncio.create_task(self.follow(number)) for number in range(self._count)]
        streaming = asyncio.create_task(self._all_stream.wait())
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.wait({streaming, *followers}, return_when=asyncio.FIRST_COMPLETED)
            for broken in (each for each in followers if each.done()):
                broken.result()
            self.delays.clear()
            before = sample()
            await asyncio.sleep(seconds)
            after = sample()
        finally:
            for task in (streaming, *followers):
                task.cancel()
            await asyncio.gather(streaming, *followers, return_exceptions=True)
        return tuple(late - early for early, late in zip(before, after, strict=True))


def measure_commits(new_database: NewDatabase, *, streams: int, seconds: float) -> dict[str, float]:
    """Write transactions a second on SQLite, of all streams together."""
    url = asyncio.run(make_tables(new_database("stream-commits")))
    role = Role(url=url, works=True, streams_seconds=seconds + RAMP_SECONDS, counts=True)
    with process(serve, role) as server:
        followed = Streams(server.port, streams)
        (commits,) = asyncio.run(followed.measure(seconds, lambda: (server.counts.commits,)))
    return {f"stream_commits_per_s_{streams}": commits / seconds}


def measure_streams(
    kind: str, new_database: NewDatabase, *, streams: int, seconds: float
) -> dict[str, float]:
    """CPU of server and worker for one streamed second, and how late the text comes.

    A machine that is too slow for so many streams makes fewer and longer chunks of them, which
    costs less: ``chunks_per_streamed_s`` and the delay tell.
    """
    url = asyncio.run(make_tables(new_database(f"streams-{streams}")))
    role = Role(url=url, streams_seconds=seconds + RAMP_SECONDS)
    with ExitStack() as running:
        together = kind == "sqlite"
        server = running.enter_context(process(serve, replace(role, works=together)))
        worker = server if together else running.enter_context(process(work, role))
        followed = Streams(server.port, streams)

        def sample() -> tuple[float, ...]:
            cpu = sum(each.cpu for each in {server, worker})
            return cpu, worker.words, 0 if together else transactions(url)

        cpu, words, seen = asyncio.run(followed.measure(seconds, sample))
    streamed = words / WORDS_PER_SECOND
    figures = {
        "cpu_ms_per_streamed_s": cpu * 1e3 / streamed,
        "chunks_per_streamed_s": len(followed.delays) / streamed,
        "stream_delay_p50_ms": statistics.median(followed.delays) * 1e3,
        "stream_delay_p99_ms": statistics.quantiles(followed.delays, n=100)[98] * 1e3,
    }
    if not together:
        figures["stream_tx_per_s"] = seen / seconds
    return {f"{name}_{kind}_{streams}": value for name, value in figures.items()}

"""The cost of a streamed answer, as a ratio to the least a program could do with the same bytes.

A server in another process streams one answer of 2,000 chunks (chat completions) over loopback.
One side iterates over the lines with httpx2 and decodes each with ``json.loads``; the other runs
``agent.stream()``: framing, decoding, adapter, driver, loop, events, typed parts. Rounds of the two
sides are interleaved; CPU time; medians. The other figures: how long the first text part takes from
the moment its bytes were sent, while the server holds back the rest.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

import httpx2

from stepwell import Agent, Final, TextDelta
from stepwell.models.provider import Provider

CHUNKS = 2000
HELD_BACK_SECONDS = 0.5


# The server, in a process of its own


def events() -> list[bytes]:
    """The answer as a provider would send it: one event for each word."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}

    def event(delta: dict[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n"

    usage = {"prompt_tokens": 10, "completion_tokens": CHUNKS, "total_tokens": CHUNKS + 10}
    last = b"data: " + json.dumps({**head, "choices": [], "usage": usage}).encode() + b"\n\n"
    words = [event({"content": f"word{index} "}) for index in range(CHUNKS)]
    begun = event({"role": "assistant", "content": ""})
    return [begun, *words, event({}, "stop"), last, b"data: [DONE]\n\n"]


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Stream the answer to every request on the connection."""
    said = events()
    chunked = [b"%x\r\n%b\r\n" % (len(event), event) for event in said]
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            body = await reader.readexactly(int(fields[b"content-length"]))
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                b"transfer-encoding: chunked\r\n\r\n"
            )
            if b"hold back" in body:
                sent_at = b": %f\n\n" % time.perf_counter()
                writer.write(b"%x\r\n%b\r\n" % (len(sent_at), sent_at) + b"".join(chunked[:2]))
                await writer.drain()
                await asyncio.sleep(HELD_BACK_SECONDS)
                writer.write(b"".join(chunked[2:]))
            else:
                for chunk in chunked:
                    writer.write(chunk)
                    await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def serve(told: Connection) -> None:
    """Serve on a free port of the loopback address until ended."""

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


# The two sides

BODY = {"model": "bench", "messages": [{"role": "user", "content": "Go."}], "stream": True}


async def bare(client: httpx2.AsyncClient, base_url: str) -> int:
    """Lines and json.loads, and nothing kept but the text."""
    text: list[str] = []
    async with client.stream("POST", f"{base_url}/chat/completions", json=BODY) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: ") and line != "data: [DONE]":
                choices = json.loads(line[6:])["choices"]
                if choices and (content := choices[0]["delta"].get("content")):
                    text.append(content)
    return len("".join(text))


async def streamed(agent: Agent) -> int:
    """The whole way to the typed parts of ``agent.stream()``."""
    text: list[str] = []
    async for part in agent.stream("Go."):
        if isinstance(part, TextDelta):
            text.append(part.text)
        elif isinstance(part, Final) and part.state.final_response != "".join(text):
            raise AssertionError(part.state.explain())
    return len("".join(text))


async def first_part(agent: Agent) -> float:
    """Seconds until the first text, while the server holds back the rest."""
    started = time.perf_counter()
    async for part in agent.stream("hold back"):
        if isinstance(part, TextDelta):
            return time.perf_counter() - started
    raise AssertionError("no text came")


async def first_line(client: httpx2.AsyncClient, base_url: str) -> float:
    """The same without Stepwell."""
    started = time.perf_counter()
    body = {**BODY, "messages": [{"role": "user", "content": "hold back"}]}
    async with client.stream("POST", f"{base_url}/chat/completions", json=body) as response:
        async for line in response.aiter_lines():
            if '"word0 "' in line:
                return time.perf_counter() - started
    raise AssertionError("no text came")


async def cpu(side: Callable[[], Awaitable[int]], expected: int) -> float:
    """CPU seconds of one pass."""
    started = time.process_time()
    if await side() != expected:
        raise AssertionError("the text is not whole")
    return time.process_time() - started


async def measured(base_url: str, rounds: int) -> dict[str, float]:
    """All figures."""
    expected = sum(len(f"word{index} ") for index in range(CHUNKS))
    agent = Agent(Provider.compatible(base_url).model("bench"), max_tokens=None, timeout=None)
    async with httpx2.AsyncClient(timeout=30) as client:
        sides = (lambda: bare(client, base_url), lambda: streamed(agent))
        for side in sides:
            await side()
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for side, taken in zip(sides, times, strict=True):
                taken.append(await cpu(side, expected))
        lines = [await first_line(client, base_url) for _ in range(3)]
        parts = [await first_part(agent) for _ in range(3)]
    least, ours = (statistics.median(taken) for taken in times)
    return {
        "chunk_ratio": ours / least,
        "bare_us_per_chunk": least / CHUNKS * 1e6,
        "stream_us_per_chunk": ours / CHUNKS * 1e6,
        "first_line_ms": statistics.median(lines) * 1e3,
        "first_part_ms": statistics.median(parts) * 1e3,
        "held_back_ms": HELD_BACK_SECONDS * 1e3,
        "chunks": CHUNKS,
        "rounds": rounds,
    }


def main(arguments: list[str]) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench stream", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=15, help="passes of each side (15)")
    options = parser.parse_args(arguments)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    try:
        base_url = f"http://127.0.0.1:{here.recv()}/v1"
        figures = asyncio.run(measured(base_url, options.rounds))
    finally:
        server.terminate()
        server.join()
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:20} {value:10.2f}")
    return 0

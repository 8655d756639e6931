"""What a subscriber that stops reading costs the server, and the 200 others.

Everybody follows one session by SSE on a real uvicorn. Messages are sent through the server, and
each follower notes how long each took to reach it.
"""

import asyncio
import resource
import socket
import statistics
import time
from pathlib import Path

import httpx2

FOLLOWERS = 200
EVERY_SECONDS = 0.1
BACKLOG = 400
"""Messages of 20,000 characters that are in the log already: more than any socket buffers."""
CUT_SECONDS = 30.0
STALLED = 20
"""Memory is measured with so many that read nothing, for one could not be told from noise."""
ESTABLISHED = "01"


class Followers:
    """Readers of the session from now on, and how long each message took to each of them."""

    def __init__(self, port: int, session_id: str, after: int) -> None:
        self._port = port
        self._path = f"/agent/sessions/{session_id}/events?after={after}"
        self.taken: list[float] = []
        self._connected = 0
        self.all_there = asyncio.Event()

    async def follow(self) -> None:
        """One of them, until cancelled."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request(self._path))
            status = await reader.readline()
            if b" 200 " not in status:
                raise AssertionError(f"the server answered {status!r}")
            self._connected += 1
            if self._connected == FOLLOWERS:
                self.all_there.set()
            while line := await reader.readline():
                if line.startswith(b"event: message.sent"):
                    data = await reader.readline()
                    sent_at = data.partition(b"sent at ")[2].partition(b" ")[0]
                    if sent_at:
                        self.taken.append(time.perf_counter() - float(sent_at))
        finally:
            writer.close()


def request(path: str) -> bytes:
    """What a client sends to follow."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n".encode()


async def _send_for(client: httpx2.AsyncClient, path: str, seconds: float) -> None:
    until = time.perf_counter() + seconds
    while (now := time.perf_counter()) < until:
        await _said(client, path, f"sent at {now} !")
        await asyncio.sleep(max(0.0, EVERY_SECONDS - (time.perf_counter() - now)))


async def _said(client: httpx2.AsyncClient, path: str, text: str) -> None:
    (await client.post(path, json={"content": text})).raise_for_status()


async def _stalled(port: int, session_id: str) -> float:
    """Follow from the beginning and read nothing; seconds until the server cuts it."""
    stuck = socket.socket()
    stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stuck.setblocking(False)
    loop = asyncio.get_running_loop()
    with stuck:
        await loop.sock_connect(stuck, ("127.0.0.1", port))
        await loop.sock_sendall(stuck, request(f"/agent/sessions/{session_id}/events?after=0"))
        started = time.perf_counter()
        while time.perf_counter() - started < CUT_SECONDS:
            await asyncio.sleep(0.1)
            if not _is_connected(port, stuck.getsockname()[1]):
                return time.perf_counter() - started
    raise AssertionError(f"a client that reads nothing was not cut in {CUT_SECONDS:g} s")


def _is_connected(port: int, of: int) -> bool:
    """Whether the server still holds its end of that connection: what it had sent before the cut
    keeps the other end from learning of it."""
    with Path("/proc/net/tcp").open() as file:
        rows = [line.split() for line in file]
    ends = (f":{port:04X}", f":{of:04X}")
    return any(
        row[1].endswith(ends[0]) and row[2].endswith(ends[1]) and row[3] == ESTABLISHED
        for row in rows
    )


async def slow_subscriber(port: int, server_pid: int, seconds: float) -> dict[str, float]:
    """The figures, with and without one that reads nothing."""
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        made = await client.post("/agent/sessions", json={"agent_type": "bench"})
        made.raise_for_status()
        id = made.json()["id"]
        path = f"/agent/sessions/{id}/messages"
        for number in range(BACKLOG):
            await _said(client, path, f"{number} " + "x" * 20_000)
        newest = (await client.get(f"/agent/sessions/{id}")).json()["last_seq"]
        followers = Followers(port, id, newest)
        tasks = [asyncio.create_task(followers.follow()) for _ in range(FOLLOWERS)]
        try:
            await followers.all_there.wait()
            await _send_for(client, path, 2.0)
            without = await _measured(followers, client, path, seconds)
            stalled = asyncio.create_task(_stalled(port, id))
            await _send_for(client, path, 1.0)
            with_one = await _measured(followers, client, path, seconds)
            cut_after = await stalled
            held = await _held_bytes(port, id, server_pid)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return {
        "live_p99_ms": without * 1e3,
        "live_p99_beside_slow_ms": with_one * 1e3,
        "live_p99_ratio": with_one / without,
        "slow_subscriber_bytes": max(0.0, held),
        "slow_subscriber_cut_s": cut_after,
        "live_followers": FOLLOWERS,
    }


async def _measured(
    followers: Followers, client: httpx2.AsyncClient, path: str, seconds: float
) -> float:
    """The p99 of delivery."""
    followers.taken.clear()
    await _send_for(client, path, seconds)
    await asyncio.sleep(0.5)
    if len(followers.taken) < FOLLOWERS * seconds:
        raise AssertionError(f"only {len(followers.taken)} messages reached the followers")
    return statistics.quantiles(followers.taken, n=100)[98]


async def _held_bytes(port: int, session_id: str, pid: int) -> float:
    """What the server's memory grows by for each client that reads nothing."""
    before = _resident_bytes(pid)
    tasks = [asyncio.create_task(_stalled(port, session_id)) for _ in range(STALLED)]
    await asyncio.sleep(4.0)
    during = _resident_bytes(pid)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return (during - before) / STALLED


def _resident_bytes(pid: int) -> float:
    with Path(f"/proc/{pid}/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()

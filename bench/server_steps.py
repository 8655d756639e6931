"""What a persisted step and a chat message cost, beside a program that stores the same by hand.

The hand-written loop appends the step's messages as JSON in one transaction, in the same mode of
SQLite (WAL, synchronous=FULL). CPU time of the whole process with its threads, taken from inside:
from the first tool call to the last, and from the first message to the last stored answer. Rounds
of both sides are interleaved; medians. What SQLite is asked for is counted in a pass of its own.
"""

import asyncio
import json
import sqlite3
import statistics
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from bench.server_app import running_app
from bench.statement_count import Counts, StatementCount
from stepwell import Agent, tool
from stepwell.testing import ScriptedModel, call

RESULT_CHARACTERS = 1000
MESSAGES_PER_SESSION = 10
WARM_UP = 10
"""Steps and messages before the clock starts: what is loaded and prepared once."""


def result_of(number: int) -> str:
    """A tool result that no other call has, as hard to compress as text is."""
    words = (f"{(number * 7919 + index * 104729) % 1_000_003} " for index in range(200))
    return "".join(words)[:RESULT_CHARACTERS]


@tool
async def look_up(number: int) -> str:
    """Look something up."""
    return result_of(number)


class Samples:
    """A measure taken at each turn of the model that has a number."""

    def __init__(self, measure: Callable[[], Any]) -> None:
        self._measure = measure
        self.taken: list[Any] = []

    def take(self) -> None:
        """Take one."""
        self.taken.append(self._measure())


def stepping_agent(steps: int, samples: Samples) -> Agent:
    """One call of ``look_up`` in each step; the samples are taken before each."""

    turns = count()

    def turn(_: Any) -> Any:
        samples.take()
        number = next(turns)
        return call("look_up", id=f"c{number}", number=number) if number < steps else "All found."

    return Agent(
        ScriptedModel(turn), tools=[look_up], max_steps=steps + 2, max_tokens=None, timeout=None
    )


# Stepwell's side


async def run_steps(file: Path, steps: int, measure: Callable[[], Any]) -> list[Any]:
    """Run one execution of so many steps behind the warm-up; one sample for each of its turns."""
    samples = Samples(measure)
    async with running_app(stepping_agent(WARM_UP + steps, samples), file) as app:
        _, execution = await app.send("Look everything up.")
        await app.wait_for(execution)
    return samples.taken[WARM_UP : WARM_UP + steps + 1]


async def run_messages(file: Path, messages: int) -> tuple[float, float]:
    """CPU and wall seconds of one message, from the send to the stored answer."""
    answered = asyncio.Event()

    def turn(_: Any) -> str:
        answered.set()
        return "It is so, as far as I can see."

    session: str | None = None
    cpu = wall = 0.0
    async with running_app(Agent(ScriptedModel(turn), system_prompt="You answer."), file) as app:
        for number in range(WARM_UP + messages):
            if number == WARM_UP:
                cpu, wall = time.process_time(), time.perf_counter()
            answered.clear()
            which = None if number % MESSAGES_PER_SESSION == 0 else session
            session, execution = await app.send(f"Is it so, number {number}?", which)
            await answered.wait()
            await app.wait_for(execution)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return cpu / messages, wall / messages


# The floor


class JsonLog:
    """A table of JSON documents; one transaction for each append."""

    def __init__(self, file: Path) -> None:
        self._connection = sqlite3.connect(file, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute(
            "CREATE TABLE steps (id INTEGER PRIMARY KEY, run TEXT, document TEXT)"
        )

    def append(self, run: str, messages: list[dict[str, Any]]) -> None:
        """Store the messages of a step."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute("INSERT INTO steps (run, document) VALUES (?, ?)", (run, json.dumps(messages)))
        execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


async def run_bare_steps(file: Path, steps: int) -> float:
    """CPU seconds of a step of a loop that does nothing else."""
    log = JsonLog(file)
    history: list[dict[str, Any]] = [{"role": "user", "content": "Look everything up."}]

    async def model(number: int) -> dict[str, Any]:
        arguments = json.dumps({"number": number})
        asked = {"id": f"c{number}", "name": "look_up", "arguments": arguments}
        return {"role": "assistant", "content": "", "tool_calls": [asked]}

    async def run_tool(asked: dict[str, Any]) -> str:
        return result_of(**json.loads(asked["arguments"]))

    for number in range(WARM_UP + steps):
        if number == WARM_UP:
            began = time.process_time()
        turn = await model(number)
        results = [
            {"role": "tool", "tool_call_id": asked["id"], "content": await run_tool(asked)}
            for asked in turn["tool_calls"]
        ]
        history += [turn, *results]
        log.append("run", [turn, *results])
    taken = time.process_time() - began
    log.close()
    return taken / steps


async def run_bare_messages(file: Path, messages: int) -> tuple[float, float]:
    """CPU and wall seconds of a message: one transaction for the question, one for the answer."""
    log = JsonLog(file)

    async def model(history: list[dict[str, Any]]) -> dict[str, Any]:
        return {"role": "assistant", "content": f"It is so, {history[-1]['role']}."}

    history: list[dict[str, Any]] = []
    for number in range(WARM_UP + messages):
        if number == WARM_UP:
            cpu, wall = time.process_time(), time.perf_counter()
        if number % MESSAGES_PER_SESSION == 0:
            history = []
        said = {"role": "user", "content": f"Is it so, number {number}?"}
        log.append("session", [said])
        answer = await model([*history, said])
        history += [said, answer]
        log.append("session", [answer])
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    log.close()
    return cpu / messages, wall / messages


# The figures


def measure_steps(folder: Path, *, steps: int, messages: int, rounds: int) -> dict[str, float]:
    """All figures of this part."""
    ours, bare = [], []
    for number in range(rounds):
        bare.append(asyncio.run(run_bare_steps(folder / f"bare-{number}.db", steps)))
        taken = asyncio.run(run_steps(folder / f"ours-{number}.db", steps, time.process_time))
        ours.append((taken[-1] - taken[0]) / steps)
    talk = [
        (
            asyncio.run(run_bare_messages(folder / f"bare-messages-{number}.db", messages)),
            asyncio.run(run_messages(folder / f"messages-{number}.db", messages)),
        )
        for number in range(rounds)
    ]
    bare_ms, ours_ms, bare_wall, wall = (
        statistics.median(values) * 1e3
        for values in zip(*((b[0], o[0], b[1], o[1]) for b, o in talk), strict=True)
    )
    return {
        "persisted_step_ratio": statistics.median(ours) / statistics.median(bare),
        "step_ms": statistics.median(ours) * 1e3,
        "bare_step_ms": statistics.median(bare) * 1e3,
        "message_ms_ratio": ours_ms / bare_ms,
        "message_ms": ours_ms,
        "bare_message_ms": bare_ms,
        "message_wall_ms": wall,
        "bare_message_wall_ms": bare_wall,
        **_count_steps(folder / "counted.db", steps),
        "steps": steps,
        "messages": messages,
    }


def _count_steps(file: Path, steps: int) -> dict[str, float]:
    """What SQLite is asked for in a step, and the bytes that the process writes for it."""
    counting = StatementCount()
    counting.install()
    try:
        taken: list[tuple[Counts, int]] = asyncio.run(
            run_steps(file, steps, lambda: (counting.counts(), written_bytes()))
        )
    finally:
        counting.uninstall()
    (before, bytes_before), (after, bytes_after) = taken[0], taken[-1]
    done = after.since(before)
    return {
        "sql_per_step": done.statements / steps,
        "sql_with_control_per_step": (done.statements + done.control) / steps,
        "commits_per_step": done.commits / steps,
        "bytes_written_per_step": (bytes_after - bytes_before) / steps,
    }


def written_bytes() -> int:
    """Bytes that this process has handed to ``write``: WAL frames and checkpointed pages, and next
    to nothing else."""
    with Path("/proc/self/io").open() as file:
        for line in file:
            if line.startswith("wchar:"):
                return int(line.split()[1])
    raise AssertionError("/proc/self/io has no wchar")

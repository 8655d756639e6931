"""What a long execution costs: the size of the database against that of its tool results, and a
late step against an early one. Then it is read and forked from steps all along.

The steps are compared by CPU time, which other programs on the machine do not change.
"""

import itertools
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from stepwell import Agent, tool
from stepwell.clock import SystemClock
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.intake import Intake, NewMessage
from stepwell.sessions.lifecycle import Lifecycle
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.reading import Reader
from stepwell.sessions.runner import Runner
from stepwell.sessions.settings import SessionSettings
from stepwell.stores.opening import open_store
from stepwell.testing import ScriptedModel, call
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.work import Work

CHARACTERS = 2000
AROUND = 20
"""So many steps are early, and so many late."""
USER = Principal(user_id="bench")
SETTINGS = SessionSettings(max_unfinished_per_user=10_000)


class TimedStore:
    """Notes when each step was stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.steps_at: list[float] = []
        self.cpu_at: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, work: Callable[[Transaction], Awaitable[Any]], /, *, name: str) -> Any:
        """The store's own."""
        result = await self._store.write(work, name=name)
        if name == "step":
            self.steps_at.append(time.perf_counter())
            self.cpu_at.append(time.process_time())
        return result


@tool(effect="pure")
def look_up(number: int) -> str:
    """A result of 2,000 characters that no other has, as hard to compress as text is."""
    words = (f"{(number * 7919 + index * 104729) % 1_000_003} " for index in range(CHARACTERS))
    return "".join(words)[:CHARACTERS]


def _agent(steps: int) -> Agent:
    def turn(request: Any) -> Any:
        done = sum(1 for message in request.messages if message.is_tool())
        return call("look_up", id=f"c{done}", number=done) if done < steps - 1 else "All found."

    return Agent(
        ScriptedModel(turn), tools=[look_up], max_steps=steps + 1, max_tokens=None, timeout=None
    )


async def growth(folder: Path, steps: int) -> dict[str, float]:
    """The figures of one execution of so many steps."""
    file = folder / "growth.db"
    store = await open_store(f"sqlite:///{file}")
    agents = AgentDirectory({"long": _agent(steps)})
    jobs = PolledJobs()
    timed = TimedStore(store)
    try:
        sent = await Intake(store, jobs, agents, settings=SETTINGS).send_message(
            USER, NewMessage(content="Look everything up.")
        )
        id = _execution_id(sent)
        runner = Runner(timed, jobs, agents, settings=SETTINGS)
        work = Work(timed, runner, settings=SETTINGS, worker_id="bench", clock=SystemClock())
        await work.take(id)
    finally:
        await store.close()
    database_bytes = _bytes_of(folder)
    store = await open_store(f"sqlite:///{file}")
    try:
        state_bytes = await _checked_states(store, id, steps)
        await _forked(store, jobs, agents, id, steps)
    finally:
        await store.close()
    return {
        "storage_ratio_1000": database_bytes / ((steps - 1) * CHARACTERS),
        "storage_ratio_to_state": database_bytes / state_bytes,
        "step_growth_1000_over_10": _late_over_early(timed.cpu_at),
        "step_growth_by_clock": _late_over_early(timed.steps_at),
        "late_step_ms": statistics.median(_between(timed.steps_at)[-AROUND:]) * 1e3,
        "long_execution_steps": steps,
    }


def _bytes_of(folder: Path) -> int:
    """The database with all that is beside it; closed, so that its log is in it."""
    return sum(file.stat().st_size for file in folder.glob("growth.db*"))


def _between(times: list[float]) -> list[float]:
    return [later - before for before, later in itertools.pairwise(times)]


def _late_over_early(times: list[float]) -> float:
    """The median of the last steps over that of the steps around the tenth."""
    took = _between(times)
    return statistics.median(took[-AROUND:]) / statistics.median(took[:AROUND])


def _execution_id(sent: Any) -> str:
    if sent.execution is None:
        raise AssertionError("the message made no execution")
    return sent.execution.id


async def _checked_states(store: Store, execution_id: str, steps: int) -> int:
    """Every state that is asked for has the steps up to there. The size of the last one as JSON."""
    reader = Reader(store)
    execution = await store.read(lambda tx: tx.execution(execution_id))
    if execution is None or execution.step_count != steps or execution.last_snapshot_id is None:
        raise AssertionError(f"{steps} steps were to be done: {execution}")
    for step in {1, 10, steps // 3, steps // 2, steps - 1, steps}:
        state = await reader.state_at(execution_id, step)
        if state.step_number not in (step, step + 1):
            raise AssertionError(f"the state after step {step} is at {state.step_number}")
        results = sum(1 for message in state.messages if message.is_tool())
        if results != min(step, steps - 1):
            raise AssertionError(f"the state after step {step} has {results} results")
    whole = await reader.snapshot_json(execution.last_snapshot_id)
    return len(json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode())


async def _forked(
    store: Store, jobs: PolledJobs, agents: AgentDirectory, execution_id: str, steps: int
) -> None:
    """A fork from the middle goes on to the same end."""
    lifecycle = Lifecycle(store, jobs, agents, settings=SETTINGS)
    runner = Runner(store, jobs, agents, settings=SETTINGS)
    work = Work(store, runner, settings=SETTINGS, worker_id="fork", clock=SystemClock())
    for step in (steps - 3, steps - 10):
        fork = await lifecycle.fork(USER, execution_id, step_number=step)
        id = _execution_id(fork)
        await work.take(id)
        execution = await store.read(lambda tx, id=id: tx.execution(id))
        if execution is None or execution.output != "All found.":
            raise AssertionError(f"the fork from step {step} came to {execution}")

"""What a long execution costs: the size of the database against what was said, and the time of a
late step against that of an early one. Then it is resumed and forked from steps all along.
"""

import itertools
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
USER = Principal(user_id="bench")
SETTINGS = SessionSettings(max_unfinished_per_user=10_000)


class TimedStore:
    """Notes when each step was stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.steps_at: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, work: Callable[[Transaction], Awaitable[Any]], /, *, name: str) -> Any:
        """The store's own."""
        result = await self._store.write(work, name=name)
        if name == "step":
            self.steps_at.append(time.perf_counter())
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
    url = f"sqlite:///{folder / 'growth.db'}"
    store = await open_store(url)
    try:
        timed = TimedStore(store)
        agents = AgentDirectory({"long": _agent(steps)})
        jobs = PolledJobs()
        sent = await Intake(store, jobs, agents, settings=SETTINGS).send_message(
            USER, NewMessage(content="Look everything up.")
        )
        id = _execution_id(sent)
        runner = Runner(timed, jobs, agents, settings=SETTINGS)
        work = Work(timed, runner, settings=SETTINGS, worker_id="bench", clock=SystemClock())
        started = time.perf_counter()
        await work.take(id)
        seconds = time.perf_counter() - started
        size = await store.read(lambda tx: tx.size())
        execution = await store.read(lambda tx: tx.execution(id))
        if execution is None or execution.step_count != steps:
            raise AssertionError(f"{steps} steps were to be done: {execution}")
        await _checked_states(store, id, steps)
        await _forked(store, jobs, agents, id, steps)
    finally:
        await store.close()
    took = [later - before for before, later in itertools.pairwise(timed.steps_at)]
    around = max(1, min(20, len(took) // 4))
    early, late = statistics.median(took[:around]), statistics.median(took[-around:])
    payload = (steps - 1) * CHARACTERS
    return {
        "storage_ratio_1000": size.database_bytes / payload,
        "step_growth_1000_over_10": late / early,
        "early_step_ms": early * 1e3,
        "late_step_ms": late * 1e3,
        "long_execution_s": seconds,
        "long_execution_steps": steps,
    }


def _execution_id(sent: Any) -> str:
    if sent.execution is None:
        raise AssertionError("the message made no execution")
    return sent.execution.id


async def _checked_states(store: Store, execution_id: str, steps: int) -> None:
    """Every state that is asked for has the steps up to there."""
    reader = Reader(store)
    for step in {1, 10, steps // 3, steps // 2, steps - 1, steps}:
        state = await reader.state_at(execution_id, step)
        if state.step_number not in (step, step + 1):
            raise AssertionError(f"the state after step {step} is at {state.step_number}")
        results = sum(1 for message in state.messages if message.is_tool())
        if results != min(step, steps - 1):
            raise AssertionError(f"the state after step {step} has {results} results")


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

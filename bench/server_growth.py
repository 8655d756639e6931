"""What a long execution costs: the size of the database against that of its tool results, and a
late step against an early one. Then it is read and forked from steps all along.

The steps are compared by CPU time, which other programs on the machine do not change.
"""

import itertools
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.server_app import USER, BenchApp, running_app
from stepwell import Agent, tool
from stepwell.testing import ScriptedModel, call

CHARACTERS = 2000
AROUND = 20
"""So many steps are early, and so many late."""


@tool(effect="pure")
async def look_up(number: int) -> str:
    """A result of 2,000 characters that no other has, as hard to compress as text is."""
    words = (f"{(number * 7919 + index * 104729) % 1_000_003} " for index in range(CHARACTERS // 4))
    return "".join(words)[:CHARACTERS]


class _Script:
    """Calls ``look_up`` until the history has so many results, also after a fork. Notes the CPU
    time at each turn."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.cpu_at: list[float] = []

    def turn(self, request: Any) -> Any:
        self.cpu_at.append(time.process_time())
        # Two messages a turn, behind the question: counting them would cost more in late steps.
        done = (len(request.messages) - 1) // 2
        if done >= self._steps - 1:
            return "All found."
        return call("look_up", id=f"c{done}", number=done)


async def measure_growth(folder: Path, steps: int) -> dict[str, float]:
    """The figures of one execution of so many steps."""
    file = folder / "growth.db"
    script = _Script(steps)
    agent = Agent(
        ScriptedModel(script.turn),
        tools=[look_up],
        max_steps=steps + 1,
        max_tokens=None,
        timeout=None,
    )
    async with running_app(agent, file) as app:
        _, execution_id = await app.send("Look everything up.")
        await app.wait_for(execution_id)
    # Closed, so that the log is in it.
    database_bytes = _bytes_of(file)
    cpu_at = script.cpu_at[1:]
    async with running_app(agent, file) as app:
        state_bytes = await _check_states(app, execution_id, steps)
        await _check_forks(app, execution_id, steps)
    return {
        "storage_ratio": database_bytes / ((steps - 1) * CHARACTERS),
        "storage_ratio_to_state": database_bytes / state_bytes,
        "step_growth": _late_over_early(cpu_at),
        "late_step_ms": statistics.median(_differences(cpu_at)[-AROUND:]) * 1e3,
        "long_execution_steps": steps,
    }


def _bytes_of(file: Path) -> int:
    """The database with all that is beside it."""
    return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))


def _differences(times: Sequence[float]) -> list[float]:
    return [later - before for before, later in itertools.pairwise(times)]


def _late_over_early(times: Sequence[float]) -> float:
    """The median of the last steps over that of the steps around the tenth."""
    taken = _differences(times)
    return statistics.median(taken[-AROUND:]) / statistics.median(taken[:AROUND])


async def _check_states(app: BenchApp, execution_id: str, steps: int) -> int:
    """Every state that is asked for has the steps up to there. The size of the last one as JSON."""
    reader, store = app.app.services.reader, app.app.services.store
    execution = await store.read(lambda tx: tx.execution(execution_id))
    if execution is None or execution.step_count != steps or execution.last_snapshot_id is None:
        raise AssertionError(f"{steps} steps were to be done: {execution}")
    for step in {1, min(10, steps), steps // 3 + 1, steps // 2 + 1, steps - 1, steps}:
        state = await reader.state_at(execution_id, step)
        if state.step_number not in (step, step + 1):
            raise AssertionError(f"the state after step {step} is at {state.step_number}")
        results = sum(1 for message in state.messages if message.is_tool())
        if results != min(step, steps - 1):
            raise AssertionError(f"the state after step {step} has {results} results")
    return len(await reader.snapshot_json(execution.last_snapshot_id))


async def _check_forks(app: BenchApp, execution_id: str, steps: int) -> None:
    """A fork goes on to the same end."""
    services = app.app.services
    for step in {max(1, steps - 3), max(1, steps - 10)}:
        fork = await services.lifecycle.fork(USER, execution_id, step_number=step)
        if fork.execution is None:
            raise AssertionError(f"the fork from step {step} made no execution")
        id = fork.execution.id
        await app.wait_for(id)
        execution = await services.store.read(lambda tx, id=id: tx.execution(id))
        if execution is None or execution.output != "All found.":
            raise AssertionError(f"the fork from step {step} came to {execution}")

"""What costs nothing while nothing happens: executions that wait for a person."""

import asyncio
import gc
import resource
from pathlib import Path

from stepwell import Agent, InputRequired, tool
from stepwell.clock import SystemClock
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.intake import Intake, NewMessage
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import ExecutionStatus
from stepwell.sessions.runner import Runner
from stepwell.sessions.settings import SessionSettings
from stepwell.stores.opening import open_store
from stepwell.testing import ScriptedModel, call
from stepwell.worker.jobs import PolledJobs
from stepwell.worker.work import Work

WARM_UP = 200
SETTINGS = SessionSettings(max_unfinished_per_user=100_000)


@tool(effect="pure")
def ask() -> InputRequired:
    """Ask a person."""
    return InputRequired(prompt="Shall I?")


async def paused(folder: Path, count: int) -> dict[str, float]:
    """Memory that the process has more after so many executions have paused in it, for each."""
    store = await open_store(f"sqlite:///{folder / 'paused.db'}")
    agents = AgentDirectory({"asks": Agent(ScriptedModel(lambda _: call("ask")), tools=[ask])})
    jobs = PolledJobs()
    intake = Intake(store, jobs, agents, settings=SETTINGS)
    runner = Runner(store, jobs, agents, settings=SETTINGS)
    work = Work(store, runner, settings=SETTINGS, worker_id="bench", clock=SystemClock())
    who = Principal(user_id="bench")

    async def pause() -> None:
        sent = await intake.send_message(who, NewMessage(content="Do it."))
        if sent.execution is None or not await work.take(sent.execution.id):
            raise AssertionError("the execution could not be taken")

    async def pause_all(number: int) -> float:
        for _ in range(number // 10):
            await asyncio.gather(*(pause() for _ in range(10)))
        gc.collect()
        return _resident_bytes()

    try:
        before = await pause_all(WARM_UP)
        after = await pause_all(count)
        waiting = await store.read(lambda tx: tx.count_by_status())
    finally:
        await store.close()
    if waiting.get(ExecutionStatus.PAUSED) != WARM_UP + count or work.running:
        raise AssertionError(f"not all are paused: {waiting}")
    return {"paused_bytes": (after - before) / count, "paused_executions": count}


def _resident_bytes() -> float:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize()

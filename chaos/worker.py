"""A worker process of the run: the real worker over a store with crash points."""

import asyncio
import os
from multiprocessing.connection import Connection
from typing import Any

from chaos.agent import AGENT, chaos_agent
from chaos.control import listen
from chaos.crash_points import CrashingStore, CrashPoints
from chaos.databases import open_existing, worker_for
from chaos.settings import ChaosSettings, Place
from chaos.witness import WitnessLine
from stepwell.sessions.attempt.runner import Runner
from stepwell.sessions.directory import AgentDirectory
from stepwell.worker.jobs import PolledJobs


async def _main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    points = CrashPoints(WitnessLine(place.witness, name))

    def heard(order: dict[str, Any]) -> None:
        if "arm" in order:
            points.arm(order["arm"], order["skip"], order["also"])
        if "freeze" in order:
            points.freeze()

    store = CrashingStore(await open_existing(place), points)
    agents = AgentDirectory({AGENT: chaos_agent(points, settings.pause_seconds)})
    runner = Runner(store, PolledJobs(), agents, settings=settings.session_settings)
    worker = worker_for(settings, store, runner, name)
    listen(pipe, heard)
    pipe.send({"ready": os.getpid()})
    await worker.run()


def main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    """The worker process."""
    asyncio.run(_main(settings, place, name, pipe))

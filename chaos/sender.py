"""The process that sends the messages and does what users do, as a client of the API would.

It dies as well. A new one begins with the last messages again, under the same idempotency keys,
because the old one may not have learned that they were taken.
"""

import asyncio
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from chaos.agent import AGENT, chaos_agent
from chaos.control import listen
from chaos.crash_points import CrashingStore, CrashPoints
from chaos.databases import open_existing
from chaos.operations import operations
from chaos.operator import Operator
from chaos.progress import Progress
from chaos.scenario import scenario
from chaos.settings import USER, ChaosSettings, Place
from chaos.witness import WitnessLine
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.intake.intake import Intake, NewMessage, NewSession
from stepwell.sessions.records import WhenBusy
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.worker.jobs import PolledJobs

AGAIN = 3
"""How many of the last messages a new sender sends once more."""


class Sender:
    """Sends as many scenarios as it may, in order, and lets the operator act on them."""

    def __init__(self, settings: ChaosSettings, place: Place, store: CrashingStore) -> None:
        self._settings = settings
        self._store = store
        self._progress = Progress(Path(place.folder))
        self._allowed = 0
        self._next = max(0, len(self._progress.sent) - AGAIN)
        jobs = PolledJobs()
        agents = AgentDirectory({AGENT: chaos_agent(store.points, settings.pause_seconds)})
        wanted = settings.session_settings
        self._intake = Intake(store, jobs, agents, settings=wanted)
        lifecycle = Lifecycle(store, jobs, agents, settings=wanted)
        self._operator = Operator(settings, store, self._intake, lifecycle, self._progress)

    def heard(self, order: dict[str, Any]) -> None:
        """The harness allows more, or arms a crash point."""
        if "allow" in order:
            self._allowed = order["allow"]
        if "arm" in order:
            self._store.points.arm(order["arm"], order["skip"], order["also"])

    async def run(self) -> None:
        """Send and act until killed."""
        while True:
            try:
                while self._next < self._allowed:
                    await self._send(self._next)
                    self._next += 1
                await self._operator.act()
            except StoreUnavailableError:
                pass  # the database is being restarted; all of it is tried again
            await asyncio.sleep(0.1)

    async def _send(self, number: int) -> None:
        is_steered = operations(number, self._settings.seed).is_steered
        first = number if is_steered else self._first_of_session(number)
        sent = await self._intake.send_message(
            USER,
            NewMessage(
                content=scenario(number, self._settings.seed).text,
                session_id=None if number == first else self._progress.sent[first].session,
                new_session=NewSession(
                    agent_type=AGENT,
                    title=f"chaos {first}",
                    when_busy=WhenBusy.STEER if is_steered else WhenBusy.ENQUEUE,
                ),
                idempotency_key=f"chaos-{number}",
            ),
        )
        if sent.execution is None:
            raise AssertionError(f"scenario {number} was taken in without an execution")
        self._progress.add_sent(number, sent.session.id, sent.execution.id)

    def _first_of_session(self, number: int) -> int:
        """The scenario whose session this one goes to: an earlier one that is not steered."""
        first = number % self._settings.sessions
        while operations(first, self._settings.seed).is_steered:
            first = (first + 1) % self._settings.sessions
        return first


async def _main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    points = CrashPoints(WitnessLine(place.witness, name))
    store = CrashingStore(await open_existing(place), points)
    sender = Sender(settings, place, store)
    listen(pipe, sender.heard)
    pipe.send({"ready": os.getpid()})
    await sender.run()


def main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    """The sender process."""
    asyncio.run(_main(settings, place, name, pipe))

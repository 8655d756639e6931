"""The process that sends the messages and answers the questions, as a client of the API would.

It dies as well. A new one begins with the last messages again, under the same idempotency keys,
because the old one may not have learned that they were taken.
"""

import asyncio
import contextlib
import json
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from chaos.agent import AGENT, chaos_agent
from chaos.control import listen
from chaos.crash_points import CrashingStore, CrashPoints
from chaos.databases import opened
from chaos.scenario import PlannedCall, scenario
from chaos.settings import USER, ChaosSettings, Place
from chaos.witness import WitnessLine
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.errors import ConflictError, StoreUnavailableError
from stepwell.sessions.intake import Intake, NewMessage, NewSession
from stepwell.sessions.lifecycle import Lifecycle
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, ExecutionStatus
from stepwell.worker.choice import jobs_for

AGAIN = 3
"""How many of the last messages a new sender sends once more."""


class Progress:
    """What the sender knows for sure, on disk: which session each scenario went to."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "sent.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self.sent: dict[int, str] = {}
        for line in lines:
            number, session = json.loads(line)
            self.sent[number] = session

    def add(self, number: int, session: str) -> None:
        """The message was taken."""
        self.sent[number] = session
        with self._file.open("a") as file:
            file.write(json.dumps([number, session]) + "\n")


class Sender:
    """Sends as many scenarios as it may, in order, and answers what the paused ones ask."""

    def __init__(self, settings: ChaosSettings, place: Place, store: CrashingStore) -> None:
        self._settings = settings
        self._store = store
        self._progress = Progress(Path(place.folder))
        self._allowed = 0
        self._next = max(0, len(self._progress.sent) - AGAIN)
        jobs = jobs_for(place.url)
        agents = AgentDirectory({AGENT: chaos_agent(store.points, settings.pause_seconds)})
        wanted = settings.session_settings
        self._intake = Intake(store, jobs, agents, settings=wanted)
        self._lifecycle = Lifecycle(store, jobs, agents, settings=wanted)

    def heard(self, order: dict[str, Any]) -> None:
        """The harness allows more, or arms a crash point."""
        if "allow" in order:
            self._allowed = order["allow"]
        if "arm" in order:
            self._store.points.arm(order["arm"], order["skip"], order["also"])

    async def run(self) -> None:
        """Send and answer until killed."""
        while True:
            try:
                while self._next < min(self._allowed, self._settings.executions):
                    await self._send(self._next)
                    self._next += 1
                await self._answer()
            except StoreUnavailableError:
                pass  # the database is being restarted; both are tried again
            await asyncio.sleep(0.1)

    async def _send(self, number: int) -> None:
        first = number % self._settings.sessions
        sent = await self._intake.send_message(
            USER,
            NewMessage(
                content=scenario(number, self._settings.seed).text,
                session_id=None if number == first else self._progress.sent[first],
                new_session=NewSession(agent_type=AGENT, title=f"chaos {first}"),
                idempotency_key=f"chaos-{number}",
            ),
        )
        self._progress.add(number, sent.session.id)

    async def _answer(self) -> None:
        for session in sorted(set(self._progress.sent.values())):
            for execution in await self._store.read(lambda tx, id=session: _paused_in(tx, id)):
                for waiting in execution.questions:
                    answer = PlannedCall(str(waiting["call_id"]), "ask").answer
                    id = waiting["question_id"]
                    # Refused if the sender before this one had answered already.
                    with contextlib.suppress(ConflictError):
                        await self._lifecycle.answer(execution.id, id, answer)


async def _paused_in(tx: Transaction, session_id: str) -> list[Execution]:
    rows = await tx.unfinished(session_id)
    return [row for row in rows if row.status is ExecutionStatus.PAUSED]


async def _main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    points = CrashPoints(WitnessLine(place.witness, name))
    store = CrashingStore(await opened(place.url), points)
    sender = Sender(settings, place, store)
    listen(pipe, sender.heard)
    pipe.send({"ready": os.getpid()})
    await sender.run()


def main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    """The sender process."""
    asyncio.run(_main(settings, place, name, pipe))

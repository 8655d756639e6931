"""An ``AgentApp`` in this process with its worker, as the parts of the server bench use it.

The one place of the bench that sends messages past HTTP and looks into the database for their end.
"""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stepwell import Agent
from stepwell.app import AgentApp
from stepwell.server.settings import ServerSettings
from stepwell.sessions.intake.intake import NewMessage, NewSession
from stepwell.sessions.principal import Principal
from stepwell.sessions.settings import SessionSettings

USER = Principal(user_id="bench")
MANY = 1_000_000
SESSION_SETTINGS = SessionSettings(max_unfinished_per_user=MANY, concurrency=64)
SERVER_SETTINGS = ServerSettings(
    sends_per_second=MANY,
    send_burst=MANY,
    live_connections_per_user=MANY,
    max_connections=5000,
    app_secret="the bench signs no channel of anybody",
)
WAIT_SECONDS = 300.0
LOOK_SECONDS = 0.002


def make_app(agent: Agent, url: str, *, worker: bool | None = None) -> AgentApp:
    """An application of one agent without limits that a measurement would run into."""
    return AgentApp(
        {"bench": agent},
        db=url,
        settings=SESSION_SETTINGS,
        server=SERVER_SETTINGS,
        worker=worker,
    )


def sqlite_url(file: Path) -> str:
    """The address of a database file."""
    return f"sqlite:///{file}"


class BenchApp:
    """A running application on a SQLite file."""

    def __init__(self, app: AgentApp, file: Path) -> None:
        self.app = app
        self._file = file

    async def send(self, text: str, session_id: str | None = None) -> tuple[str, str]:
        """Send a message; the ids of its session and execution."""
        sent = await self.app.services.intake.send_message(
            USER,
            NewMessage(
                content=text, session_id=session_id, new_session=NewSession(agent_type="bench")
            ),
        )
        if sent.execution is None:
            raise AssertionError("the message made no execution")
        return sent.session.id, sent.execution.id

    async def wait_for(self, execution_id: str, *statuses: str) -> None:
        """Until the stored execution has one of these statuses (completed).

        Looks by a connection of its own, less and less often: looking costs the process too.
        """
        wanted = statuses or ("completed",)
        pause = LOOK_SECONDS
        with sqlite3.connect(f"file:{self._file}?mode=ro", uri=True) as connection:
            async with asyncio.timeout(WAIT_SECONDS):
                while (status := _status(connection, execution_id)) not in wanted:
                    if status in ("failed", "cancelled", "stopped"):
                        raise AssertionError(f"execution {execution_id} is {status}")
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, 25 * LOOK_SECONDS)
        connection.close()


def _status(connection: sqlite3.Connection, execution_id: str) -> str:
    rows: Sequence[Any] = connection.execute(
        "SELECT status FROM agent_executions WHERE id = ?", (execution_id,)
    ).fetchall()
    return rows[0][0] if rows else ""


@asynccontextmanager
async def running_app(agent: Agent, file: Path) -> AsyncGenerator[BenchApp]:
    """The application on that file, with its worker, for the length of a block."""
    async with make_app(agent, sqlite_url(file), worker=True).running() as app:
        yield BenchApp(app, file)

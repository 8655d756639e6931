"""The server that the subscribers follow: real HTTP, no worker. It is killed and started anew."""

import asyncio
import os
from multiprocessing.connection import Connection
from typing import Any

from chaos.agent import AGENT, chaos_agent
from chaos.control import listen
from chaos.crash_points import CrashPoints
from chaos.databases import bus_options
from chaos.settings import ChaosSettings, Place
from stepwell.app import AgentApp
from stepwell.cli.http_server import AppServer
from stepwell.server.settings import ServerSettings

MANY = 1_000_000


async def _main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    nobody: Any = None  # the agent is named and never run here
    app = AgentApp(
        {AGENT: chaos_agent(CrashPoints(nobody), 0.0)},
        db=place.url,
        settings=settings.session_settings,
        server=ServerSettings(
            sends_per_second=MANY,
            send_burst=MANY,
            live_connections_per_user=MANY,
            max_connections=5000,
            app_secret="chaos signs no channel of anybody",
        ),
        worker=False,
        **bus_options(place),
    )
    async with app.running():
        listen(pipe, lambda _: None)
        server = AppServer(app, "127.0.0.1", place.port)
        serving = asyncio.create_task(server.serve())
        pipe.send({"ready": os.getpid(), "name": name})
        await serving


def main(settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    """The server process."""
    asyncio.run(_main(settings, place, name, pipe))

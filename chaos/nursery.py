"""Loaded once in the process that all others are forked from, so that a new worker is there in a
moment: what it would load and build at its start is here already.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from sqlalchemy.dialects.postgresql import psycopg

import chaos.live_server
import chaos.reader
import chaos.sender
import chaos.worker
from chaos.agent import AGENT, chaos_agent
from chaos.crash_points import CrashPoints
from stepwell.sessions.directory import AgentDirectory
from stepwell.stores.database_url import open_store
from stepwell.stores.postgres import postgres_store

LOADED = (chaos, postgres_store, psycopg)


async def _warm_up() -> None:
    """Open and close a store and build the agent; nothing of it stays but what was loaded."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        await (await open_store(f"sqlite:///{Path(folder) / 'warm.db'}")).close()
    nobody: Any = None  # the agent is built and never run
    AgentDirectory({AGENT: chaos_agent(CrashPoints(nobody), 0.0)})


asyncio.run(_warm_up())

"""``stepwell worker``: works on executions that servers took in, until it is told to end."""

import asyncio
import secrets
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from stepwell.app.agent_app import AgentApp
from stepwell.app.config import shown_database
from stepwell.app.loading import load_app
from stepwell.cli.options import configuration, configuration_options, start_logging
from stepwell.cli.starting import on_end_signal, started


@click.command("worker")
@configuration_options
@click.option("--concurrency", type=int, help="Executions at the same time.  [default: 10]")
def command(app: str | None, config: Path | None, concurrency: int | None, **options: Any) -> None:
    """Work on executions.

    Give it the same APP and database as the servers. Start as many as you like; one that dies is
    replaced by the others within seconds. Ctrl-C or SIGTERM hands work back at the next step.
    """
    sessions = None if concurrency is None else {"concurrency": concurrency}
    configured = configuration(config, app=app, worker=True, sessions=sessions, **options)
    start_logging(configured.log_level)
    if not configured.server.app_secret:
        # Nobody asks a worker for signatures: any secret does, and none is missed.
        server = replace(configured.server, app_secret=secrets.token_urlsafe(32))
        configured = replace(configured, server=server)
    asyncio.run(_worked(load_app(configured)))


async def _worked(application: AgentApp) -> None:
    ended = asyncio.Event()
    await started(application)
    async with application.running():
        on_end_signal(ended.set)
        names = ", ".join(application.agents.names)
        database = shown_database(application.config.db)
        click.echo(f"Stepwell works on {names}; database: {database}")
        await ended.wait()

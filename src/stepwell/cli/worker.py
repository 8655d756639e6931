"""``stepwell worker``: works on executions that servers took in, until it is told to end."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import click

from stepwell.app.agent_app import AgentApp
from stepwell.app.loading import load_app
from stepwell.cli.options import configuration, configuration_options, start_logging


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
    asyncio.run(_worked(load_app(configured)))


async def _worked(application: AgentApp) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with application.running():
        names = ", ".join(application.agents.names)
        click.echo(f"Stepwell works on {names}; {application.config.db.partition('://')[0]}")
        await ended.wait()

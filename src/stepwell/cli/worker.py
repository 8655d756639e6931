"""``stepwell worker``: works on executions that servers took in, until it is told to end."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import configuration, configuration_options, start_logging

if TYPE_CHECKING:
    from stepwell.app.agent_app import AgentApp


@click.command("worker")
@configuration_options
@click.option("--concurrency", type=int, help="Executions at the same time.  [default: 10]")
def command(app: str | None, config: Path | None, concurrency: int | None, **options: Any) -> None:
    """Work on executions.

    Give it the same APP and database as the servers. Start as many as you like; one that dies is
    replaced by the others within seconds. Ctrl-C or SIGTERM hands work back at the next step.

    \b
    stepwell worker my_module:app --db postgresql://agents@localhost/agents --concurrency 20
    """
    from stepwell.app.loading import load_app
    from stepwell.cli.starting import run_process, unsigned

    sessions = None if concurrency is None else {"concurrency": concurrency}
    configured = configuration(config, app=app, worker=True, sessions=sessions, **options)
    start_logging(configured.log_level, configured.log_format)
    run_process(_worked(load_app(unsigned(configured))))


async def _worked(application: "AgentApp") -> None:
    from stepwell.app.config import shown_database
    from stepwell.cli.starting import on_end_signal, started

    ended = asyncio.Event()
    await started(application)
    async with application.running():
        on_end_signal(ended.set, within=application.config.sessions.shutdown_seconds + 2)
        names = ", ".join(application.agents.names)
        database = shown_database(application.config.db)
        click.echo(f"Stepwell works on {names}; database: {database}")
        await ended.wait()

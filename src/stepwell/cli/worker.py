"""``stepwell worker``: run executions that servers accepted, until a signal ends it."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import configuration, configuration_options, start_logging

if TYPE_CHECKING:
    from stepwell.app.agent_app import AgentApp


@click.command("worker")
@configuration_options
@click.option("--concurrency", type=int, help="Executions to run at the same time.  [default: 10]")
def command(app: str | None, config: Path | None, concurrency: int | None, **options: Any) -> None:
    """Run executions for servers on the same database.

    Give it the same APP and database as the servers. Start any number of workers; the others take
    over from one that dies within seconds. Ctrl-C or SIGTERM hands work back at the next step.

    \b
    stepwell worker my_module:app --db postgresql://agents@localhost/agents --concurrency 20
    """
    from stepwell.app.app_loader import load_app
    from stepwell.cli.process import run_process, with_random_secret

    sessions = None if concurrency is None else {"concurrency": concurrency}
    configured = configuration(config, app=app, worker=True, sessions=sessions, **options)
    start_logging(configured.log_level, configured.log_format)
    run_process(_work(load_app(with_random_secret(configured))))


async def _work(application: "AgentApp") -> None:
    from stepwell.app.config import shown_database
    from stepwell.cli.process import on_end_signal, start_application

    ended = asyncio.Event()
    await start_application(application)
    async with application.running():
        on_end_signal(ended.set, within=application.config.sessions.shutdown_seconds + 2)
        names = ", ".join(application.agents.names)
        database = shown_database(application.config.db)
        click.echo(f"Stepwell works on {names}; database: {database}")
        await ended.wait()

"""``stepwell serve``: an application over HTTP, with its worker where it runs on SQLite."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import configuration, configuration_options, start_logging

if TYPE_CHECKING:
    from stepwell.app.agent_app import AgentApp
    from stepwell.cli.serving import AppServer


@click.command("serve")
@configuration_options
@click.option("--host", help="Where to listen.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="0 takes a free one.  [default: 8400]")
@click.option(
    "--worker/--no-worker",
    default=None,
    help="Run executions in this process as well.  [default: on SQLite]",
)
def command(app: str | None, config: Path | None, **options: Any) -> None:
    """Serve agents: the page for people, the API and live channels for programs.

    APP names an AgentApp, an agent, or agents by name, as module:name. Without it a small built-in
    agent is served, whose words are scripted unless --model names a model.

    \b
    stepwell serve                          the built-in agent, on http://127.0.0.1:8400
    stepwell serve my_module:app --port 0   your own, on a port that is free
    """
    from msgspec.structs import replace

    from stepwell.app.loading import load_app
    from stepwell.cli.starting import run_process
    from stepwell.server.auth import is_loopback_bind

    configured = configuration(config, app=app, **options)
    start_logging(configured.log_level, configured.log_format)
    if not is_loopback_bind(configured.host):
        names = (*configured.server.allowed_hosts, configured.host)
        configured = replace(configured, server=replace(configured.server, allowed_hosts=names))
    application = load_app(configured)
    application.refuse_open_bind(configured.host)
    run_process(_served(application, configured.host, configured.port))


async def _served(application: "AgentApp", host: str, port: int) -> None:
    from stepwell.cli.serving import LAST_REQUESTS_SECONDS, AppServer, bound
    from stepwell.cli.starting import on_end_signal, started

    # Before the server, so that a fault in the configuration is told as such.
    sockets = await bound(host, port)
    try:
        await started(application)
        async with application.running():
            server = AppServer(application, host, port)
            seconds = application.config.sessions.shutdown_seconds + LAST_REQUESTS_SECONDS
            on_end_signal(server.end, within=seconds + 2)
            announcing = asyncio.create_task(_announced(server, application))
            try:
                await server.serve(sockets)
            finally:
                announcing.cancel()
    finally:
        for each in sockets:
            each.close()


async def _announced(server: "AppServer", application: "AgentApp") -> None:
    """Tell where it listens, once it does."""
    from stepwell.app.config import shown_database
    from stepwell.cli.serving import address_of

    address = await address_of(server)
    click.echo(f"Stepwell serves {', '.join(application.agents.names)} on {address}")
    click.echo(f"Database: {shown_database(application.config.db)}")
    if not application.works:
        click.echo("Executions are run by `stepwell worker`, on the same database: none runs here.")

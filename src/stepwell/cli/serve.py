"""``stepwell serve``: serve an application over HTTP, with a worker on SQLite."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import configuration, configuration_options, start_logging

if TYPE_CHECKING:
    from stepwell.app.agent_app import AgentApp
    from stepwell.cli.http_server import AppServer


@click.command("serve")
@configuration_options
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 0 picks a free one.  [default: 8400]"
)
@click.option(
    "--worker/--no-worker",
    default=None,
    help="Run executions in this process.  [default: only on SQLite]",
)
def command(app: str | None, config: Path | None, **options: Any) -> None:
    """Serve agents: a web page for people, the HTTP API and live channels for programs.

    APP is an AgentApp, an agent, or agents by name, as module:name. Without it, a small built-in
    agent is served, with scripted answers unless --model is given.

    \b
    stepwell serve                          the built-in agent on http://127.0.0.1:8400
    stepwell serve my_module:app --port 0   your own agents on a free port
    """
    from msgspec.structs import replace

    from stepwell.app.app_loader import load_app
    from stepwell.cli.process import run_process
    from stepwell.server.auth import is_loopback_bind

    configured = configuration(config, app=app, **options)
    start_logging(configured.log_level, configured.log_format)
    if not is_loopback_bind(configured.host):
        names = (*configured.server.allowed_hosts, configured.host)
        configured = replace(configured, server=replace(configured.server, allowed_hosts=names))
    application = load_app(configured)
    application.refuse_open_bind(configured.host)
    run_process(_serve(application, configured.host, configured.port))


async def _serve(application: "AgentApp", host: str, port: int) -> None:
    from stepwell.cli.http_server import LAST_REQUESTS_SECONDS, AppServer, bind_sockets
    from stepwell.cli.process import on_end_signal, start_application

    # Before the server, so that a configuration error is reported as one.
    sockets = await bind_sockets(host, port)
    try:
        await start_application(application)
        async with application.running():
            server = AppServer(application, host, port)
            seconds = application.config.sessions.shutdown_seconds + LAST_REQUESTS_SECONDS
            on_end_signal(server.end, within=seconds + 2)
            announcing = asyncio.create_task(_announce(server, application))
            try:
                await server.serve(sockets)
            finally:
                announcing.cancel()
    finally:
        for each in sockets:
            each.close()


async def _announce(server: "AppServer", application: "AgentApp") -> None:
    """Print the address once the server listens."""
    from stepwell.app.config import shown_database
    from stepwell.cli.http_server import address_of

    address = await address_of(server)
    click.echo(f"Stepwell serves {', '.join(application.agents.names)} on {address}")
    click.echo(f"Database: {shown_database(application.config.db)}")
    if not application.works:
        click.echo(
            "No executions run in this process; start `stepwell worker` on the same database."
        )

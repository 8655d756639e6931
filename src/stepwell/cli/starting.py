"""What commands that run an application do alike: start with words about the database, end on a
signal."""

import asyncio
import gc
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import NoReturn

import click
from msgspec.structs import replace

from stepwell.app.agent_app import AgentApp
from stepwell.app.config import Config, shown_database
from stepwell.cli.exit_codes import ExitCode
from stepwell.errors import ConfigurationError
from stepwell.sessions.errors import StoreUnavailableError

QUIET_SECONDS = 2.0
"""How long the database may take before it is said that it is waited for."""

logger = logging.getLogger("stepwell.cli")


async def started(application: AgentApp, *, quiet_seconds: float = QUIET_SECONDS) -> None:
    """Start it; a database that does not answer is a fault of the configuration, told as such."""
    database = shown_database(application.config.db)
    loop = asyncio.get_running_loop()
    telling = loop.call_later(
        quiet_seconds, logger.warning, "waiting for the database %s", database
    )
    try:
        await application.start()
    except StoreUnavailableError as error:
        why = error.__cause__ or error
        raise ConfigurationError(
            f"the database {database} does not answer: {' '.join(str(why).split())}; "
            "start it, or name another one with --db"
        ) from None
    finally:
        telling.cancel()
    # A search for garbage stops everything; what was loaded by now stays loaded and is left out.
    gc.collect()
    gc.freeze()


def unsigned(configured: Config) -> Config:
    """For a process that nobody asks for signatures: any secret does, and none is missed."""
    if configured.server.app_secret:
        return configured
    server = replace(configured.server, app_secret=secrets.token_urlsafe(32))
    return replace(configured, server=server)


def on_end_signal(end: Callable[[], None]) -> None:
    """Call that for SIGTERM and Ctrl-C. The second Ctrl-C does not wait any longer."""
    loop = asyncio.get_running_loop()
    times = count()

    def interrupted() -> None:
        if next(times):
            # Not by an exception: it would end the tasks that a good end waits for.
            leave_at_once()
        end()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, end)


def leave_at_once() -> NoReturn:
    """End the process as it is: what is stored is whole, and another worker goes on with it."""
    with suppress(OSError):  # of a terminal that was closed
        click.echo("\nleft at once; what was running is taken up by the next worker", err=True)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(ExitCode.CANCELLED)

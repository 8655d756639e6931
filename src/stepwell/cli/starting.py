"""What commands that run an application do alike: start with words about the database, end on a
signal."""

import asyncio
import atexit
import gc
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Any, NoReturn

import click
from msgspec.structs import replace

from stepwell.app.agent_app import AgentApp
from stepwell.app.config import Config, shown_database
from stepwell.cli.exit_codes import ExitCode
from stepwell.errors import ConfigurationError
from stepwell.foreign import is_anything_abandoned, run_event_loop
from stepwell.sessions.errors import StoreUnavailableError

QUIET_SECONDS = 2.0
"""How long the database may take before it is said that it is waited for."""

LEFT_TASKS_SECONDS = 0.5
"""How long tasks and threads that are left behind have to end by themselves."""

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


def on_end_signal(end: Callable[[], None], *, within: float) -> None:
    """Call that for SIGTERM and Ctrl-C. The second Ctrl-C does not wait any longer.

    A process that has not ended ``within`` so many seconds is ended: a tool may block the event
    loop, where nothing else can be done.
    """
    loop = asyncio.get_running_loop()
    times = count()

    def interrupted() -> None:
        if next(times):
            # Not by an exception: it would end the tasks that a good end waits for.
            leave_at_once()
        end()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, end)
    watchdog = threading.Timer(within, _end_overdue, (within,))
    watchdog.daemon = True

    def start_watchdog(_number: int, _frame: object) -> None:
        with suppress(RuntimeError):  # it was started by an earlier signal
            watchdog.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Python calls this one between two instructions of whatever blocks the event loop; the
        # loop is woken all the same.
        signal.signal(number, start_watchdog)
        signal.siginterrupt(number, False)


def run_process(main: Coroutine[Any, Any, None]) -> None:
    """Run a server or a worker. Whatever tasks and threads its tools left, the process exits."""
    run_event_loop(main, grace=LEFT_TASKS_SECONDS)
    others = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    ends = threading.Event()
    for _ in range(10):
        if not is_anything_abandoned() and not any(thread.is_alive() for thread in others):
            return
        ends.wait(LEFT_TASKS_SECONDS / 10)
    # Python would wait for these threads. Everything of ours is closed already.
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - flushes logs and exporters
    _flush()
    os._exit(0)


def _end_overdue(seconds: float) -> None:
    logger.error("the process did not end within %g s of the signal and is ended now", seconds)
    logging.shutdown()
    _flush()
    os._exit(ExitCode.FAILED)


def _flush() -> None:
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()


def leave_at_once() -> NoReturn:
    """End the process as it is: what is stored is whole, and another worker goes on with it."""
    with suppress(OSError):  # of a terminal that was closed
        click.echo("\nleft at once; what was running is taken up by the next worker", err=True)
    _flush()
    os._exit(ExitCode.CANCELLED)

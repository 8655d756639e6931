"""Starts and ends processes that run an application: database errors, signals, exit."""

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
"""Seconds to wait for the database before logging it."""

LEFT_TASKS_SECONDS = 0.5
"""Seconds that remaining tasks and threads have to end by themselves."""

logger = logging.getLogger("stepwell.cli")


async def start_application(application: AgentApp, *, quiet_seconds: float = QUIET_SECONDS) -> None:
    """Start the application. Raises ``ConfigurationError`` if the database does not answer."""
    database = shown_database(application.config.db)
    loop = asyncio.get_running_loop()
    warning = loop.call_later(
        quiet_seconds, logger.warning, "waiting for the database %s", database
    )
    try:
        await application.start()
    except StoreUnavailableError as error:
        why = error.__cause__ or error
        raise ConfigurationError(
            f"the database {database} does not answer: {' '.join(str(why).split())}; "
            "start it, or set another one with --db"
        ) from None
    finally:
        warning.cancel()
    # A garbage collection stops the world. What is loaded by now stays loaded: exempt it.
    gc.collect()
    gc.freeze()


def with_random_secret(configured: Config) -> Config:
    """Add a random secret, for a process that signs nothing and so needs no configured one."""
    if configured.server.app_secret:
        return configured
    server = replace(configured.server, app_secret=secrets.token_urlsafe(32))
    return replace(configured, server=server)


def on_end_signal(end: Callable[[], None], *, within: float) -> None:
    """Call ``end`` for SIGTERM and Ctrl-C. A second Ctrl-C exits immediately.

    A process that does not end ``within`` that many seconds is killed: a tool may block the event
    loop.
    """
    loop = asyncio.get_running_loop()
    times = count()

    def on_interrupt() -> None:
        if next(times):
            # Not by an exception, which would cancel the tasks that the shutdown waits for.
            leave_at_once()
        end()

    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    loop.add_signal_handler(signal.SIGTERM, end)
    watchdog = threading.Timer(within, _end_overdue, (within,))
    watchdog.daemon = True

    def start_watchdog(_number: int, _frame: object) -> None:
        with suppress(RuntimeError):  # an earlier signal started it
            watchdog.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Python runs this handler even while something blocks the event loop, and still wakes the
        # loop.
        signal.signal(number, start_watchdog)
        signal.siginterrupt(number, False)


def run_process(main: Coroutine[Any, Any, None]) -> None:
    """Run a server or a worker, then exit, whatever tasks and threads its tools left behind."""
    run_event_loop(main, grace=LEFT_TASKS_SECONDS)
    others = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    ends = threading.Event()
    for _ in range(10):
        if not is_anything_abandoned() and not any(thread.is_alive() for thread in others):
            return
        ends.wait(LEFT_TASKS_SECONDS / 10)
    # Python would wait for these threads. Our own resources are closed.
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - flushes logs and exporters
    _flush()
    os._exit(0)


def _end_overdue(seconds: float) -> None:
    logger.error("the process did not end within %g s after the signal; exiting now", seconds)
    logging.shutdown()
    _flush()
    os._exit(ExitCode.FAILED)


def _flush() -> None:
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()


def leave_at_once() -> NoReturn:
    """Exit immediately. Stored data is consistent, and another worker takes the execution over."""
    with suppress(OSError):  # the terminal was closed
        click.echo("\nexiting now; another worker takes over what was running", err=True)
    _flush()
    os._exit(ExitCode.CANCELLED)

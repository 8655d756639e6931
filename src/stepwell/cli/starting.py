"""What ``serve`` and ``worker`` do alike: start with words about the database, end on a signal."""

import asyncio
import logging
import signal
from collections.abc import Callable

from stepwell.app.agent_app import AgentApp
from stepwell.app.config import shown_database
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


def on_end_signal(end: Callable[[], None]) -> None:
    """Call that for SIGTERM and Ctrl-C. The second Ctrl-C does not wait any longer."""
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        end()

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, end)

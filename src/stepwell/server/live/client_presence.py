"""Cancels a run when the client that follows it disconnects and does not come back.

Stock clients have no other way to stop a run: the AI SDK's ``stop()`` and AG-UI's ``abortRun()``
close the connection. A page that is loaded again closes it as well, and then follows the run again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from stepwell.journal.status import ExecutionStatus
from stepwell.server.policy import NotAllowedError, require
from stepwell.sessions.bus import BusSubscription
from stepwell.sessions.errors import SessionError, StoreUnavailableError
from stepwell.sessions.principal import Principal

if TYPE_CHECKING:
    from stepwell.server.services import Services

logger = logging.getLogger("stepwell.server")

DISCONNECTED = "the client disconnected"
_CANCELLABLE = (ExecutionStatus.PENDING, ExecutionStatus.RUNNING)


class ClientPresence:
    """One client that follows an execution."""

    def __init__(self, services: "Services", who: Principal, execution_id: str) -> None:
        self._services = services
        self._who = who
        self._execution_id = execution_id
        self._others: BusSubscription | None = None

    @asynccontextmanager
    async def announce(self) -> AsyncGenerator[None]:
        """Announce the client to those who followed before; hear of those who come later."""
        bus, topic = self._services.store.bus, _topic(self._execution_id)
        bus.publish(topic)
        async with bus.subscribe(topic) as others:
            await others.wait(0)  # a bus that has just connected says that there is news of all
            self._others = others
            yield

    async def handle_disconnect(self, server_ends: asyncio.Event) -> None:
        """Cancel the execution, unless a client follows it again in time or the server ends."""
        settings = self._services.settings
        if not settings.cancel_on_disconnect or self._others is None:
            return
        if not await self._is_cancellable():
            return
        back = asyncio.create_task(self._others.wait(settings.reconnect_seconds))
        ends = asyncio.create_task(server_ends.wait())
        try:
            await asyncio.wait({back, ends}, return_when=asyncio.FIRST_COMPLETED)
            is_abandoned = back.done() and not back.result()
        finally:
            for task in (back, ends):
                task.cancel()
            await asyncio.gather(back, ends, return_exceptions=True)
        if is_abandoned and await self._is_cancellable():
            await self._cancel()

    async def _is_cancellable(self) -> bool:
        services, id = self._services, self._execution_id
        try:
            execution = await services.store.read(lambda tx: tx.execution(id))
            if execution is None or execution.status not in _CANCELLABLE:
                return False
            await require(services, self._who, "executions.cancel", execution)
        except (StoreUnavailableError, NotAllowedError) as error:
            logger.info("execution %s goes on without its client: %s", id, error)
            return False
        return True

    async def _cancel(self) -> None:
        services, id = self._services, self._execution_id
        try:
            await services.lifecycle.cancel(id, reason=DISCONNECTED)
        except SessionError as error:  # such as: it is over by now
            logger.info("execution %s is not cancelled: %s", id, error)


def _topic(execution_id: str) -> str:
    return f"client:{execution_id}"

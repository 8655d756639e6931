"""The response to an OpenAI client that does not stream: sent as a whole when the run has ended."""

from collections.abc import Callable
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from stepwell.protocols.client_stream import WireEvent
from stepwell.protocols.openai import RunFailedError
from stepwell.server.live.access_watch import until_access_is_lost
from stepwell.server.live.client_connection import connection_of
from stepwell.server.live.client_presence import ClientPresence
from stepwell.server.live.execution_stream import SESSION_HEADER, ExecutionStream
from stepwell.server.live.response import first_of, wait_for_disconnect
from stepwell.server.live.seats import count_connection
from stepwell.server.live.session_feed import LiveSubscription
from stepwell.server.problems import problem
from stepwell.sessions.principal import Principal
from stepwell.text import json_bytes

if TYPE_CHECKING:
    from stepwell.server.services import Services

NO_RETRY = {"x-should-retry": "false"}
"""Keeps OpenAI's clients from sending the message again."""


class WholeResponse(Response):
    """Follows an execution to its end, then sends its result. The run is cancelled if the client
    disconnects before."""

    def __init__(
        self,
        services: "Services",
        who: Principal,
        stream: ExecutionStream,
        result: Callable[[], WireEvent],
        seat: ExitStack,
    ) -> None:
        super().__init__()
        self._services = services
        self._who = who
        self._stream = stream
        self._result = result
        self._seat = seat
        self._has_left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wait for the end, then send the result."""
        followed = self._stream.followed
        presence = ClientPresence(self._services, self._who, followed.execution_id)
        async with presence.announce():
            await self._follow(scope, receive)
            if self._has_left:
                await presence.handle_disconnect(connection_of(scope).ending)
            else:
                await self._response()(scope, receive, send)

    async def _follow(self, scope: Scope, receive: Receive) -> None:
        services, followed = self._services, self._stream.followed
        with self._seat, count_connection(services.metrics, "stream"):
            subscribed = await services.feeds.subscribe(followed.session_id, followed.after)
            async with subscribed as subscription:
                await first_of(
                    self._read(subscription),
                    self._wait_for_disconnect(receive),
                    connection_of(scope).ending.wait(),
                    until_access_is_lost(services, self._who, followed.session_id),
                )

    async def _read(self, subscription: LiveSubscription) -> None:
        batches = self._stream.batches(subscription, self._services.settings.ping_seconds)
        async with aclosing(batches):
            async for _ in batches:
                pass

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        await wait_for_disconnect(receive)
        self._has_left = True

    def _response(self) -> Response:
        headers = {SESSION_HEADER: self._stream.followed.session_id}
        try:
            result = self._result()
        except RunFailedError as error:
            return problem(500, error.code, str(error), headers={**headers, **NO_RETRY})
        return Response(json_bytes(result), media_type="application/json", headers=headers)

"""A WebSocket for the Pusher protocol, version 7, so that pusher-js and Laravel Echo connect
unchanged. It has private channels of sessions only, each signed at the auth endpoint.

As an extension a subscription may have ``after``, a number of the journal: then it starts with the
events after that number.
"""

import asyncio
import contextlib
import hmac
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from stepwell.server.live.access_watch import until_access_is_lost
from stepwell.server.live.channel_auth import Subscriber, subscriber_of
from stepwell.server.live.client_connection import ClientConnection, connection_of
from stepwell.server.live.pusher_protocol import (
    PusherError,
    check_protocol,
    frame_of,
    message,
    read_message,
)
from stepwell.server.live.response import SlowReaderError, first_of, send_or_cut
from stepwell.server.live.seats import count_connection
from stepwell.server.live.session_feed import LiveSubscription, Reset
from stepwell.server.policy import may_follow
from stepwell.sessions.errors import StoreUnavailableError, TooManyError

if TYPE_CHECKING:
    from stepwell.server.services import Services

logger = logging.getLogger("stepwell.server")

_UNAUTHORIZED, _TOO_MANY, _UNAVAILABLE = 401, 429, 503
_OVER_CAPACITY = 4100
"""Clients reconnect after a pause."""
_Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class SocketLimits(Struct, frozen=True, kw_only=True):
    """The limits of one socket."""

    activity_seconds: float = 120.0
    pong_seconds: float = 30.0
    join_seconds: float = 10.0
    """Seconds after the opening in which it must join a channel."""
    channels: int = 100
    message_characters: int = 10_240


async def serve_pusher(
    services: "Services", websocket: WebSocket, app_key: str, limits: SocketLimits
) -> None:
    """Serve one client until it leaves or is disconnected."""
    line = connection_of(websocket.scope)
    address = "" if websocket.client is None else websocket.client.host
    with contextlib.ExitStack() as waiting:
        try:
            waiting.enter_context(services.feeds.waiting_sockets.hold(address))
        except TooManyError:
            # Before it is accepted: a close frame would have to be waited for.
            services.metrics.refused.add(limit="sockets")
            await websocket.close(_OVER_CAPACITY)
            return
        await websocket.accept()
        await _serve_accepted(_Socket(services, websocket, limits, waiting), app_key, line)


async def _serve_accepted(socket: "_Socket", app_key: str, line: ClientConnection) -> None:
    try:
        with count_connection(socket.services.metrics, "socket"):
            await socket.converse(app_key)
    except SlowReaderError as error:
        logger.info("disconnected a socket: %s", error)
        line.abort()
    except PusherError as error:
        with contextlib.suppress(WebSocketDisconnect, SlowReaderError):
            await socket.send("pusher:error", {"code": error.code, "message": str(error)})
            await socket.close(error.code, str(error))
    except WebSocketDisconnect:
        pass


class _RefusedError(Exception):
    """Raised when a channel can't be joined; the client gets the message."""

    def __init__(self, kind: str, message: str, *, status: int = _UNAUTHORIZED) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class _Socket:
    """One client and its channels."""

    def __init__(
        self,
        services: "Services",
        websocket: WebSocket,
        limits: SocketLimits,
        waiting: contextlib.ExitStack,
    ) -> None:
        """``waiting`` is its place among the sockets that have not joined; released when it has."""
        self.id = f"{secrets.randbelow(2**53)}.{secrets.randbelow(2**53)}"
        self.services = services
        self._waiting = waiting
        self._websocket = websocket
        self._limits = limits
        self._channels: dict[str, asyncio.Task[None]] = {}
        self._sending = asyncio.Lock()
        self._joined = asyncio.Event()

    async def converse(self, app_key: str) -> None:
        """Serve the client until it leaves. Raises ``PusherError`` to disconnect it."""
        if not hmac.compare_digest(app_key.encode(), self.services.settings.app_key.encode()):
            raise PusherError(4001, "there is no app with this key")
        check_protocol(self._websocket.query_params.get("protocol"))
        about = {"socket_id": self.id, "activity_timeout": int(self._limits.activity_seconds)}
        await self.send("pusher:connection_established", about)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._expect_to_join())
                await self._listen(group.create_task)
        except BaseExceptionGroup as several:
            # One reason is enough.
            raise several.exceptions[0] from None

    async def _expect_to_join(self) -> None:
        """Raise ``PusherError`` unless it joins a channel in time: until then it is anonymous."""
        try:
            async with asyncio.timeout(self._limits.join_seconds):
                await self._joined.wait()
            self._waiting.close()
        except TimeoutError:
            seconds = f"{self._limits.join_seconds:g} s"
            raise PusherError(_OVER_CAPACITY, f"no channel was joined within {seconds}") from None

    async def send(self, event: str, data: Mapping[str, Any], channel: str | None = None) -> None:
        """Send one message of the protocol."""
        await self._send(message(event, data, channel))

    async def close(self, code: int, reason: str) -> None:
        """Close the socket; the reason is truncated to fit into the frame."""
        await self._put({"type": "websocket.close", "code": code, "reason": reason[:100]})

    # Messages of the client

    async def _listen(self, start: _Start) -> None:
        while True:
            text = await self._next_message()
            try:
                if len(text) > self._limits.message_characters:
                    raise PusherError(
                        4301,
                        f"a message of {len(text)} characters is too long; "
                        f"{self._limits.message_characters} may be sent",
                    )
                await self._answer(text, start)
            except PusherError as error:
                if error.closes:
                    raise
                await self.send("pusher:error", {"code": error.code, "message": str(error)})
            # Thousands of messages can arrive at once, and none of the above has to wait.
            await asyncio.sleep(0)

    async def _next_message(self) -> str:
        """Return the next message; ping a client that is silent."""
        try:
            async with asyncio.timeout(self._limits.activity_seconds):
                return await self._receive()
        except TimeoutError:
            await self.send("pusher:ping", {})
        try:
            async with asyncio.timeout(self._limits.pong_seconds):
                return await self._receive()
        except TimeoutError:
            raise PusherError(4201, "no pong came in time") from None

    async def _receive(self) -> str:
        heard = await self._websocket.receive()
        if heard["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(heard.get("code") or 1005)
        return heard.get("text") or ""

    async def _answer(self, text: str, start: _Start) -> None:
        said = read_message(text)
        match said.event:
            case "pusher:ping":
                await self.send("pusher:pong", {})
            case "pusher:subscribe":
                await self._subscribe(said.data, start)
            case "pusher:unsubscribe":
                await self._unsubscribe(said.data.get("channel"))
            case event if event.startswith("client-"):
                raise PusherError(4301, "client events are not taken; send messages by HTTP")
            case _:
                pass  # including a pong: any message is activity

    async def _subscribe(self, data: Mapping[str, Any], start: _Start) -> None:
        channel, after = data.get("channel"), data.get("after")
        if not isinstance(channel, str) or channel in self._channels:
            return
        found = subscriber_of(
            self.services, self.id, channel, data.get("auth"), data.get("channel_data")
        )
        if found is None:
            error = _RefusedError("AuthError", "the signature does not fit this channel")
            await self._refuse(channel, error)
        elif len(self._channels) >= self._limits.channels:
            most = f"a socket may follow {self._limits.channels} channels"
            await self._refuse(channel, _RefusedError("LimitReached", most, status=_TOO_MANY))
        else:
            cursor = after if type(after) is int and after >= 0 else None
            self._channels[channel] = start(self._follow(channel, found, cursor))

    async def _unsubscribe(self, channel: object) -> None:
        task = self._channels.pop(channel, None) if isinstance(channel, str) else None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    # Messages to the client

    async def _follow(self, channel: str, found: Subscriber, after: int | None) -> None:
        """Follow one channel. Raises ``PusherError`` when they may not follow it any longer."""
        with contextlib.ExitStack() as leaving:
            try:
                subscription = await self._enter(found, after, leaving)
            except _RefusedError as refused:
                self._channels.pop(channel, None)
                return await self._refuse(channel, refused)
            leaving.callback(subscription.close)
            self._joined.set()
            await self.send("pusher_internal:subscription_succeeded", {}, channel)
            await first_of(
                self._pump(channel, subscription),
                until_access_is_lost(self.services, found.who, found.session_id),
            )
        raise PusherError(4009, f"channel {channel} may not be followed any longer")

    async def _enter(
        self, found: Subscriber, after: int | None, leaving: contextlib.ExitStack
    ) -> LiveSubscription:
        try:
            if not await self._may_follow(found):
                raise _RefusedError("AuthError", "you may not follow this channel")
            if found.who is not None:
                leaving.enter_context(self.services.feeds.seats.hold(found.who))
            return await self.services.feeds.subscribe(found.session_id, after)
        except TooManyError as error:
            raise _RefusedError("LimitReached", str(error), status=_TOO_MANY) from None
        except StoreUnavailableError as error:
            raise _RefusedError("Unavailable", str(error), status=_UNAVAILABLE) from None

    async def _may_follow(self, found: Subscriber) -> bool:
        if found.who is not None:
            return await may_follow(self.services, found.who, found.session_id)
        session = await self.services.store.read(lambda tx: tx.session(found.session_id))
        return session is not None

    async def _pump(self, channel: str, subscription: LiveSubscription) -> None:
        while (batch := await subscription.take()) is not None:
            for item in batch:
                if isinstance(item, Reset):
                    await self.send("reset", {"newest": item.newest}, channel)
                else:
                    await self._send(frame_of(item, channel))
        raise PusherError(4200, "the server shuts down; reconnect")

    async def _refuse(self, channel: str, why: _RefusedError) -> None:
        error = {"type": why.kind, "error": str(why), "status": why.status}
        await self.send("pusher:subscription_error", error, channel)

    async def _send(self, text: str) -> None:
        await self._put({"type": "websocket.send", "text": text})

    async def _put(self, said: Message) -> None:
        async with self._sending:
            seconds = self.services.settings.live_cut_seconds
            await send_or_cut(self._websocket.send, said, seconds)

"""A WebSocket that speaks the Pusher protocol, version 7, so that pusher-js and Laravel Echo can
connect as they are. Channels of sessions only, private ones, each signed at the auth endpoint.

Beyond the protocol a subscription may carry ``after``, a number of the log: then what happened
since is told first.
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
from stepwell.server.live.client_connection import (
    ClientConnection,
    SlowReaderError,
    connection_of,
    send_or_cut,
)
from stepwell.server.live.feed import LiveSubscription, Reset
from stepwell.server.live.pusher_protocol import (
    PusherError,
    check_protocol,
    frame_of,
    message,
    read_message,
)
from stepwell.server.live.response import first_of
from stepwell.server.live.seats import count_connection
from stepwell.server.policy import may_follow
from stepwell.sessions.errors import StoreUnavailableError, TooManyError

if TYPE_CHECKING:
    from stepwell.server.services import Services

logger = logging.getLogger("stepwell.server")

_UNAUTHORIZED, _TOO_MANY, _UNAVAILABLE = 401, 429, 503
_OVER_CAPACITY = 4100
"""Clients come again, after a pause: one that joins later than others do is not lost."""
_Start = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class SocketLimits(Struct, frozen=True, kw_only=True):
    """What one socket may do, and how long it may be silent."""

    activity_seconds: float = 120.0
    pong_seconds: float = 30.0
    join_seconds: float = 10.0
    """How long it may follow nothing after it was opened."""
    channels: int = 100
    message_characters: int = 10_240


async def serve_pusher(
    services: "Services", websocket: WebSocket, app_key: str, limits: SocketLimits
) -> None:
    """Talk with one client until it leaves or has to."""
    line = connection_of(websocket.scope)
    address = "" if websocket.client is None else websocket.client.host
    with contextlib.ExitStack() as waiting:
        try:
            waiting.enter_context(services.feeds.waiting_sockets.hold(address))
        except TooManyError:
            # Before it is accepted: a good-bye would have to be waited for.
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
        logger.info("a socket is cut: %s", error)
        line.abort()
    except PusherError as error:
        with contextlib.suppress(WebSocketDisconnect, SlowReaderError):
            await socket.tell("pusher:error", {"code": error.code, "message": str(error)})
            await socket.close(error.code, str(error))
    except WebSocketDisconnect:
        pass


class _RefusedError(Exception):
    """A channel that can't be followed, as its client is told."""

    def __init__(self, kind: str, message: str, *, status: int = _UNAUTHORIZED) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status


class _Socket:
    """One client: its channels, and what it may say."""

    def __init__(
        self,
        services: "Services",
        websocket: WebSocket,
        limits: SocketLimits,
        waiting: contextlib.ExitStack,
    ) -> None:
        """``waiting`` is its place among those that have not joined; left when it has."""
        self.id = f"{secrets.randbelow(2**53)}.{secrets.randbelow(2**53)}"
        self.services = services
        self._waiting = waiting
        self._websocket = websocket
        self._limits = limits
        self._channels: dict[str, asyncio.Task[None]] = {}
        self._sending = asyncio.Lock()
        self._joined = asyncio.Event()

    async def converse(self, app_key: str) -> None:
        """Until the client leaves. Raises ``PusherError`` when it has to."""
        if not hmac.compare_digest(app_key.encode(), self.services.settings.app_key.encode()):
            raise PusherError(4001, "there is no app with this key here")
        check_protocol(self._websocket.query_params.get("protocol"))
        about = {"socket_id": self.id, "activity_timeout": int(self._limits.activity_seconds)}
        await self.tell("pusher:connection_established", about)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._expect_to_join())
                await self._listen(group.create_task)
        except BaseExceptionGroup as several:
            # One reason is enough: who is cut in two channels is cut.
            raise several.exceptions[0] from None

    async def _expect_to_join(self) -> None:
        """Nobody has signed in before a channel is joined, so nobody may keep a socket for it."""
        try:
            async with asyncio.timeout(self._limits.join_seconds):
                await self._joined.wait()
            self._waiting.close()
        except TimeoutError:
            seconds = f"{self._limits.join_seconds:g} s"
            raise PusherError(_OVER_CAPACITY, f"no channel was joined within {seconds}") from None

    async def tell(self, event: str, data: Mapping[str, Any], channel: str | None = None) -> None:
        """One message of the protocol."""
        await self._send(message(event, data, channel))

    async def close(self, code: int, reason: str) -> None:
        """Say good-bye; the reason is cut to what fits into the frame."""
        await self._put({"type": "websocket.close", "code": code, "reason": reason[:100]})

    # What the client says

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
                await self.tell("pusher:error", {"code": error.code, "message": str(error)})
            # Thousands of messages can arrive at once, and none of the above has to wait.
            await asyncio.sleep(0)

    async def _next_message(self) -> str:
        """The next message; who is silent is asked whether it is there."""
        try:
            async with asyncio.timeout(self._limits.activity_seconds):
                return await self._receive()
        except TimeoutError:
            await self.tell("pusher:ping", {})
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
                await self.tell("pusher:pong", {})
            case "pusher:subscribe":
                await self._subscribe(said.data, start)
            case "pusher:unsubscribe":
                await self._unsubscribe(said.data.get("channel"))
            case event if event.startswith("client-"):
                raise PusherError(4301, "client events are not taken; send messages by HTTP")
            case _:
                pass  # also a pong: that something came is enough

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

    # What it is told

    async def _follow(self, channel: str, found: Subscriber, after: int | None) -> None:
        """One channel, until it is left. Raises ``PusherError`` when they may follow no more."""
        with contextlib.ExitStack() as leaving:
            try:
                subscription = await self._enter(found, after, leaving)
            except _RefusedError as refused:
                self._channels.pop(channel, None)
                return await self._refuse(channel, refused)
            leaving.callback(subscription.close)
            self._joined.set()
            await self.tell("pusher_internal:subscription_succeeded", {}, channel)
            await first_of(
                self._pump(channel, subscription),
                until_access_is_lost(self.services, found.who, found.session_id),
            )
        raise PusherError(4009, f"channel {channel} may be followed no more")

    async def _enter(
        self, found: Subscriber, after: int | None, leaving: contextlib.ExitStack
    ) -> LiveSubscription:
        try:
            if not await self._may_follow(found):
                raise _RefusedError("AuthError", "this channel is not yours to follow")
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
                    await self.tell("reset", {"newest": item.newest}, channel)
                else:
                    await self._send(frame_of(item, channel))
        raise PusherError(4200, "the server ends; come again")

    async def _refuse(self, channel: str, why: _RefusedError) -> None:
        told = {"type": why.kind, "error": str(why), "status": why.status}
        await self.tell("pusher:subscription_error", told, channel)

    async def _send(self, text: str) -> None:
        await self._put({"type": "websocket.send", "text": text})

    async def _put(self, said: Message) -> None:
        async with self._sending:
            seconds = self.services.settings.live_cut_seconds
            await send_or_cut(self._websocket.send, said, seconds)

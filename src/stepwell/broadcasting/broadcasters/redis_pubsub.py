"""Publishes envelopes over Redis pub/sub, with the extra ``stepwell[redis]``."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from stepwell.broadcasting.broadcasters.broadcast_error import BroadcastError
from stepwell.errors import ConfigurationError, describe
from stepwell.secrets import Secret, hide
from stepwell.text import json_bytes

if TYPE_CHECKING:
    from redis.asyncio import Redis


class PublishesToRedis(Protocol):
    """The method of a client that is used, such as ``redis.asyncio.Redis``."""

    def publish(self, channel: str, message: bytes, /) -> Awaitable[Any]:
        """Publish it."""
        ...


class RedisBroadcaster:
    """Publishes each envelope, as JSON, to the Redis channel ``{prefix}{channel}``.

    Given an address (``redis://``, ``rediss://`` or ``unix://``), it connects when the first
    envelope is sent, once per event loop; a broken connection is reopened once, for the next
    envelope. A client that is passed in is used as it is and closed by its owner. A failure raises
    ``BroadcastError``, which the queue counts.

    Redis keeps nothing: a client that was not subscribed at that moment reads the stored history.

    >>> RedisBroadcaster("redis://:very-secret@127.0.0.1:6379/0", prefix="app:")
    RedisBroadcaster('redis://127.0.0.1:6379', prefix='app:')
    """

    def __init__(
        self, url_or_client: str | PublishesToRedis, *, prefix: str = "", timeout: float = 5.0
    ) -> None:
        if not timeout > 0:
            raise ConfigurationError(
                f"RedisBroadcaster: timeout is {timeout}; give a number above zero"
            )
        self._prefix = prefix
        self._timeout = timeout
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _OpenClient] = (
            WeakKeyDictionary()
        )
        if isinstance(url_or_client, str):
            self._place, self._password = _parse_address(url_or_client)
            self._url, self._given = Secret(url_or_client), None
        else:
            _refuse_blocking(url_or_client)
            self._place, self._password = "the client it was given", ""
            self._url, self._given = None, url_or_client

    async def broadcast(self, channel: str, envelope: Mapping[str, Any]) -> None:
        """Publish an envelope. Raises ``BroadcastError``."""
        from redis.exceptions import RedisError

        try:
            client = self._given or await self._client()
            await client.publish(self._prefix + channel, json_bytes(envelope))
        except (RedisError, OSError, TimeoutError) as error:
            raise BroadcastError(self._in_words(error)) from None

    async def aclose(self) -> None:
        """Close the connections of this event loop; those of earlier loops are closed already."""
        known = self._clients.pop(asyncio.get_running_loop(), None)
        if known is not None:
            await known.closer.aclose()

    async def _client(self) -> PublishesToRedis:
        """Return the client of the running event loop. It is closed when the loop shuts down its
        async generators, as ``asyncio.run`` does."""
        assert self._url is not None
        url = await self._url.reveal()
        loop = asyncio.get_running_loop()
        known = self._clients.get(loop)
        if known is None:
            known = self._clients[loop] = _OpenClient(_new_client(url, self._timeout))
            await anext(known.closer)
        return known.client

    def _in_words(self, error: Exception) -> str:
        from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

        match error:
            case AuthenticationError():
                advice = "check user and password in the address"
            case NoPermissionError():
                advice = "allow this user PUBLISH on the channel"
            case ResponseError():
                advice = "see what the server says"
            case _:
                advice = "check that the server is up and that the address is right"
        said = hide(describe(error), [self._password])
        return f"Redis ({self._place}) did not accept the envelope: {said}; {advice}"

    def __repr__(self) -> str:
        return f"RedisBroadcaster({self._place!r}, prefix={self._prefix!r})"


class _OpenClient:
    """A client, and the generator whose end closes it."""

    def __init__(self, client: "Redis") -> None:
        self.client: PublishesToRedis = client
        self.closer = _close_at_end(client)


async def _close_at_end(client: "Redis") -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.aclose()


def _new_client(url: str, timeout: float) -> "Redis":
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    # One retry at once, for a connection that broke while it was idle.
    return Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
        url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 1),
    )


def _parse_address(url: str) -> tuple[str, str]:
    """Return an address without its credentials, to show, and its password."""
    _refuse_without_package()
    try:
        client = _new_client(url, 1.0)
        parts = urlsplit(url)
        where = parts.hostname or ""
        where = f"{where}:{parts.port}" if parts.port else where
    except (ValueError, TypeError):
        # Their text may show the address with its password.
        raise ConfigurationError(
            "RedisBroadcaster: the address can't be read; write it like redis://127.0.0.1:6379/0, "
            "rediss://user:password@host:6379/0 or unix:///path/to/redis.sock"
        ) from None
    path = parts.path if parts.scheme == "unix" else ""
    password = client.connection_pool.connection_kwargs.get("password")
    return f"{parts.scheme}://{where}{path}", str(password or "")


def _refuse_blocking(client: object) -> None:
    _refuse_without_package()
    from redis import Redis

    if isinstance(client, Redis) or not hasattr(client, "publish"):
        raise ConfigurationError(
            f"RedisBroadcaster was given a {type(client).__module__}.{type(client).__name__}; give "
            "an address, or a client of redis.asyncio"
        )


def _refuse_without_package() -> None:
    if find_spec("redis") is None:
        raise ConfigurationError(
            "RedisBroadcaster needs the package redis: pip install 'stepwell[redis]'"
        )

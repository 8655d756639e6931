"""Frames through Redis: PUBLISH and SUBSCRIBE, with the package of ``stepwell[redis]``."""

import socket
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stepwell.errors import ConfigurationError
from stepwell.stores.bus.remote_bus import SendFrames

if TYPE_CHECKING:
    from redis.asyncio import Redis

_TIMEOUT_SECONDS = 5.0
_HEALTH_CHECK_SECONDS = 5
_KEEPALIVE = {
    getattr(socket, name): value
    for name, value in (
        ("TCP_KEEPIDLE", 10),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", 15_000),
    )
    if hasattr(socket, name)
}
_SCHEMES = ("redis", "rediss", "unix")


class RedisLink:
    """See ``remote_bus.Link``.

    Redis' channels are the same in all its databases, so the number of the database is part of
    the channel's name: two deployments can share a server under two numbers.
    """

    name = "Redis"
    max_frame_bytes = 256 * 1024

    def __init__(self, url: str) -> None:
        client = _client(url)
        database = client.connection_pool.connection_kwargs.get("db") or 0
        self._channel = f"stepwell:{database}"
        self._url = url

    @property
    def faults(self) -> tuple[type[Exception], ...]:
        """What a broken connection raises."""
        from redis.exceptions import RedisError

        return (RedisError, OSError, TimeoutError)

    @asynccontextmanager
    async def open_sender(self) -> AsyncGenerator[SendFrames]:
        """Connect to send frames, those of one call in one trip."""
        async with _client(self._url) as client:

            async def send(frames: Sequence[bytes]) -> None:
                pipeline: Any = client.pipeline(transaction=False)
                for frame in frames:
                    pipeline.publish(self._channel, frame)
                await pipeline.execute()

            yield send

    @asynccontextmanager
    async def open_receiver(self) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Connect to receive frames."""
        async with _client(self._url) as client:
            subscriber: Any = client.pubsub()  # pyright: ignore[reportUnknownMemberType]
            async with subscriber:
                await subscriber.subscribe(self._channel)
                while (await subscriber.get_message(timeout=_TIMEOUT_SECONDS)) is None:
                    pass
                yield _frames(subscriber)


async def _frames(subscriber: Any) -> AsyncGenerator[bytes, None]:
    while True:
        # Ends after a while, so that a connection which says nothing is asked for a sign of life.
        message = await subscriber.get_message(timeout=_HEALTH_CHECK_SECONDS)
        if message is None:
            continue
        if message["type"] == "subscribe":
            raise ConnectionError("the client has reconnected, so frames may be missing")
        yield message["data"]


def _client(url: str) -> "Redis":
    if urlsplit(url).scheme not in _SCHEMES:
        raise ConfigurationError(
            "bus_url must be like redis://127.0.0.1:6379/0, rediss://user:password@host:6379/0 or "
            "unix:///path/to/redis.sock"
        )
    if find_spec("redis") is None:
        raise ConfigurationError("bus_url needs the package redis: pip install 'stepwell[redis]'")
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    # A server that vanished without a word is noticed, as on connections to PostgreSQL.
    keepalive: dict[str, Any] = {"socket_keepalive": True, "socket_keepalive_options": _KEEPALIVE}
    try:
        return Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            **({} if url.startswith("unix:") else keepalive),
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            health_check_interval=_HEALTH_CHECK_SECONDS,
            # The bus reconnects itself, and must know that it did.
            retry=Retry(NoBackoff(), 0),
        )
    except (ValueError, TypeError):
        # The text of these may show the address, password and all.
        raise ConfigurationError(
            "bus_url can't be read; write it like redis://host:6379/0"
        ) from None

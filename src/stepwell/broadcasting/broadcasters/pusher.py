"""Sends envelopes through the Pusher HTTP API, which Pusher, Soketi and Laravel Reverb accept.

Signs requests and channels, and explains error responses.
"""

import asyncio
import hashlib
import hmac
import re
from collections.abc import Mapping
from http import HTTPStatus
from math import inf
from typing import Any, NoReturn
from urllib.parse import urlsplit

from stepwell.broadcasting.broadcasters.broadcast_error import BroadcastError
from stepwell.broadcasting.broadcasters.envelope_size import fit_envelope
from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError, ModelError
from stepwell.models.http import (
    HttpCall,
    HttpReply,
    certificates,
    send,
)
from stepwell.parameters import check_flag
from stepwell.secrets import Secret, SecretSource, hide
from stepwell.text import json_bytes

LONGEST_CHANNEL = 164
LONGEST_EVENT_NAME = 200
MAX_BYTES = 9_000
"""Pusher accepts 10,240 bytes of data; Reverb by default 10,000 with all headers."""
LEAST_BYTES = 1_000
"""The size of an envelope without its texts."""
SHORTEST_TIMEOUT = 0.001

_CHANNEL = re.compile(r"[-a-zA-Z0-9_=@,.;]+")
_SOCKET_ID = re.compile(r"[0-9]+\.[0-9]+")
_WORD = re.compile(r"[-a-zA-Z0-9_.]+")
_LONGEST_COMPLAINT = 200


class PusherBroadcaster:
    """Sends each envelope as one event of a Pusher channel, ``private-{channel}`` if private.

    The name of the event is the envelope's type, its data the envelope as JSON text. Give the
    ``cluster`` of an app at Pusher, or the ``base_url`` of your own server. The secret is a
    text, a function that gives it, or a ``Secret``; it is never shown.

    An envelope of more than ``max_bytes`` has its longest texts truncated and ``truncated: true``
    in its payload. That includes streamed text, which is never split, since a client knows each
    envelope by its id; the stored history, fetched at the terminal status, has the whole text.

    Nothing is retried: a failure raises ``BroadcastError``, which the queue counts.

    >>> PusherBroadcaster("3", "278d425bdf160c739803", "7ad3773142a6692b25b8", cluster="eu")
    PusherBroadcaster(app_id='3', base_url='https://api-eu.pusher.com', private=True)
    """

    def __init__(
        self,
        app_id: str | int,
        key: str,
        secret: str | SecretSource | Secret,
        *,
        cluster: str | None = None,
        base_url: str | None = None,
        private: bool = True,
        timeout: float = 5.0,
        max_bytes: int = MAX_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self._app_id = _word("app_id", str(app_id))
        self._key = _word("key", key)
        self._secret = _as_api_key(secret)
        self._base_url = _base_url(cluster, base_url)
        self._private = check_flag(private, "private")
        self._timeout = _at_least("timeout", timeout, SHORTEST_TIMEOUT)
        self._max_bytes = int(_at_least("max_bytes", max_bytes, LEAST_BYTES))
        self._clock = clock or SystemClock()
        self._is_ready = False

    async def broadcast(self, channel: str, envelope: Mapping[str, Any]) -> None:
        """Send an envelope. Raises ``BroadcastError``."""
        name = check_channel(f"private-{channel}" if self._private else channel)
        body = _body(name, envelope, self._max_bytes)
        secret = await self._reveal()
        await self._get_ready()
        path = f"/apps/{self._app_id}/events"
        query = sign_query(path, body, self._key, secret, int(self._clock.now().timestamp()))
        hidden = (secret, query)
        call = HttpCall(
            owner="Pusher",
            url=f"{self._base_url}{path}?{query}",
            headers={"content-type": "application/json"},
            body=body,
            connect_timeout=self._timeout,
            read_timeout=self._timeout,
        )
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                await self._post(call, hidden)
        except TimeoutError:
            if not limit.expired():
                raise
            raise BroadcastError(
                f"{self._base_url} did not answer within {self._timeout:g} seconds; check that it "
                "is up, or give PusherBroadcaster a longer timeout"
            ) from None

    async def _get_ready(self) -> None:
        """Load the HTTP package and the certificates in a thread; that takes a while."""
        if not self._is_ready:
            await asyncio.to_thread(certificates)
            self._is_ready = True

    async def _reveal(self) -> str:
        try:
            return await self._secret.reveal()
        except (ConfigurationError, ModelError) as error:
            raise BroadcastError(f"no secret for {self._base_url}: {error}") from error

    async def _post(self, call: HttpCall, hidden: tuple[str, ...]) -> None:
        try:
            reply = await send(call)
        except ModelError as error:
            # The cause would show the address with the signature.
            raise BroadcastError(
                f"{hide(str(error), hidden)}; check base_url or cluster, and the network"
            ) from None
        try:
            if HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
                await reply.drain()
            else:
                await self._raise_refusal(reply, hidden)
        finally:
            await reply.close()

    async def _raise_refusal(self, reply: HttpReply, hidden: tuple[str, ...]) -> NoReturn:
        complaint = (await reply.error_body()).decode(errors="replace").strip()
        said = hide(complaint, hidden)[:_LONGEST_COMPLAINT]
        raise BroadcastError(
            f"{self._base_url} answered {reply.status} for app {self._app_id}: "
            f"{_advice(reply.status)}{f'; it said: {said}' if said else ''}",
            status=reply.status,
        )

    def __repr__(self) -> str:
        return (
            f"PusherBroadcaster(app_id={self._app_id!r}, base_url={self._base_url!r}, "
            f"private={self._private})"
        )


def channel_auth(key: str, secret: str, socket_id: str, channel: str) -> str:
    """Return the ``auth`` value with which a socket may follow a private channel.

    Check first whether this user may follow it. Raises ``BroadcastError`` if the socket id or the
    channel, which come from the browser, are malformed.

    >>> channel_auth("278d425bdf160c739803", "7ad3773142a6692b25b8", "1234.1234", "private-foobar")
    '278d425bdf160c739803:58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4'
    """
    if not _SOCKET_ID.fullmatch(socket_id):
        raise BroadcastError(
            f"{socket_id[:50]!r} is not the id of a socket; it is two numbers with a dot between"
        )
    if not check_channel(channel).startswith("private-"):
        raise BroadcastError(f"channel {channel!r} is not private: its name begins with private-")
    return f"{key}:{_hmac(secret, f'{socket_id}:{channel}')}"


def sign_query(path: str, body: bytes, key: str, secret: str, timestamp: int) -> str:
    """Return the query of a POST with its signature."""
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest()
    query = f"auth_key={key}&auth_timestamp={timestamp}&auth_version=1.0&body_md5={digest}"
    signature = _hmac(secret, "\n".join(("POST", path, query)))
    return f"{query}&auth_signature={signature}"


def check_channel(name: str) -> str:
    """Return the name of a channel. Raises ``BroadcastError`` if Pusher does not allow it."""
    if len(name) > LONGEST_CHANNEL:
        raise BroadcastError(
            f"channel {name[:50]!r}... has {len(name)} characters; Pusher allows {LONGEST_CHANNEL}"
        )
    if not _CHANNEL.fullmatch(name):
        raise BroadcastError(
            f"channel {name!r} has characters that Pusher does not allow; use a to z, digits "
            "and -_=@,.; only"
        )
    return name


def _body(channel: str, envelope: Mapping[str, Any], max_bytes: int) -> bytes:
    name = str(envelope["type"])
    if len(name) > LONGEST_EVENT_NAME:
        raise BroadcastError(
            f"event {name[:50]!r}... has a name of {len(name)} characters; Pusher allows "
            f"{LONGEST_EVENT_NAME}"
        )

    def body(of: Mapping[str, Any]) -> bytes:
        return json_bytes({"name": name, "channels": [channel], "data": json_bytes(of).decode()})

    return body(fit_envelope(envelope, lambda it: len(body(it)) <= max_bytes))


def _hmac(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()


def _advice(status: int) -> str:
    match status:
        case HTTPStatus.BAD_REQUEST:
            return "the server does not accept the request: check the names of channels"
        case HTTPStatus.UNAUTHORIZED:
            return "the key or the secret is wrong, or this machine's clock is off by minutes"
        case HTTPStatus.FORBIDDEN:
            return "the app is disabled or over its quota of messages: look at its dashboard"
        case HTTPStatus.NOT_FOUND:
            return "there is no such app: check app_id, and cluster or base_url"
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return "the event is too large for this server: give a smaller max_bytes"
        case HTTPStatus.TOO_MANY_REQUESTS:
            return "too many events for this app: send fewer, e.g. BroadcastConfig.minimal()"
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "the server failed; later envelopes may get through"
        case _:
            return "this is not a response of the Pusher HTTP API: check cluster or base_url"


def _base_url(cluster: str | None, base_url: str | None) -> str:
    if (cluster is None) == (base_url is None):
        raise ConfigurationError(
            'PusherBroadcaster needs one address: cluster="eu" for an app at Pusher, or '
            'base_url="http://127.0.0.1:8080" for a server of your own'
        )
    if base_url is None:
        return f"https://api-{_word('cluster', str(cluster))}.pusher.com"
    if not _is_scheme_host_and_port(base_url):
        # Not shown: it may contain a password.
        raise ConfigurationError(
            "PusherBroadcaster: base_url is scheme, host and port only, such as "
            "http://127.0.0.1:8080; the rest follows from app_id, key and secret"
        )
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}"


def _is_scheme_host_and_port(url: str) -> bool:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is not a valid port
    except (ValueError, AttributeError, TypeError):
        return False
    extra = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not extra


def _as_api_key(secret: str | SecretSource | Secret | None) -> Secret:
    if isinstance(secret, Secret):
        return secret
    if secret is None or secret == "":
        raise ConfigurationError(
            "PusherBroadcaster: the secret is missing; copy it from the app's keys"
        )
    try:
        return Secret(secret)
    except ConfigurationError as error:
        raise ConfigurationError(f"PusherBroadcaster can't use the secret: {error}") from None


def _word(what: str, value: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"PusherBroadcaster: {what} is empty or has odd characters; copy it from the app's keys"
        )
    return value


def _at_least(what: str, value: float, least: float) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not is_number or not least <= value < inf:
        raise ConfigurationError(
            f"PusherBroadcaster: {what} is {value!r}; give a number of {least:g} or more"
        )
    return value

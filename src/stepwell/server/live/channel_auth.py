"""Signs private channels for those who may follow their session, and checks such signatures.

Who signed travels with the signature, as the ``channel_data`` of the Pusher protocol, so that any
process can ask again later whether they still may.
"""

import hashlib
import hmac
import re
from typing import TYPE_CHECKING

from msgspec import DecodeError, Struct, ValidationError, json

from stepwell.errors import ConfigurationError
from stepwell.server.live.signed_principal import signable_principal
from stepwell.server.policy import channel_policy, may_follow
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.principal import Principal

if TYPE_CHECKING:
    from stepwell.server.services import Services

_SOCKET_ID = re.compile(r"\d{1,20}\.\d{1,20}")


class ChannelAuth(Struct, frozen=True, kw_only=True):
    """The response of the auth endpoint, which clients pass on unchanged."""

    auth: str
    channel_data: str


class Subscriber(Struct, frozen=True, kw_only=True):
    """Who may follow a session by a signature. Without ``who`` it was signed by the application's
    own server, which knows the secret."""

    session_id: str
    who: Principal | None


async def authorize_channel(
    services: "Services", who: Principal, socket_id: str, channel: str
) -> ChannelAuth:
    """Sign a channel for a socket. Raises ``RefusedError`` for an invalid socket id, and
    ``NotThereError`` for a channel that does not exist or is not theirs."""
    if not _SOCKET_ID.fullmatch(socket_id):
        raise RefusedError(
            f"socket_id is {socket_id[:50]!r}; it must be two numbers with a dot between, as in "
            "pusher:connection_established",
            code="bad_socket_id",
        )
    known = channel_policy(channel)
    if known is None or not await may_follow(services, who, known[1]):
        raise NotThereError("channel", channel[:200])
    settings = services.settings
    data = json.encode(signable_principal(who, settings.live_claims)).decode()
    signature = sign(settings.app_secret, socket_id, channel, data)
    return ChannelAuth(auth=f"{settings.app_key}:{signature}", channel_data=data)


def sign(secret: str, socket_id: str, channel: str, channel_data: str | None = None) -> str:
    """Return the signature of the Pusher protocol. Raises ``ConfigurationError`` without a
    secret: everybody could make the same.

    >>> sign("7ad3773142a6692b25b8", "1234.1234", "private-foobar")[:16]
    '58df8b0c36d6982b'
    """
    if not secret:
        raise ConfigurationError("channel signatures need a secret; set app_secret")
    parts = [socket_id, channel] if channel_data is None else [socket_id, channel, channel_data]
    return hmac.new(secret.encode(), ":".join(parts).encode(), hashlib.sha256).hexdigest()


def subscriber_of(
    services: "Services", socket_id: str, channel: str, auth: object, channel_data: object
) -> Subscriber | None:
    """Return who may follow by the signature of a subscription; None if it is invalid."""
    known = channel_policy(channel)
    settings = services.settings
    if known is None or not isinstance(auth, str) or not isinstance(channel_data, str | None):
        return None
    if not settings.app_secret:
        return None
    signature = sign(settings.app_secret, socket_id, channel, channel_data)
    is_good = hmac.compare_digest(f"{settings.app_key}:{signature}".encode(), auth.encode())
    if not is_good:
        return None
    if channel_data is None:
        return Subscriber(session_id=known[1], who=None)
    try:
        return Subscriber(session_id=known[1], who=json.decode(channel_data, type=Principal))
    except (DecodeError, ValidationError):
        return None

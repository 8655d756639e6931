"""Short-lived tokens with which a browser's EventSource, which can send no headers, opens a stream.

A token is bound to who asked for it and to one session, and opens nothing but its stream of events.
"""

import base64
import binascii
import hashlib
import hmac
from datetime import datetime, timedelta

from msgspec import DecodeError, Struct, ValidationError, json
from starlette.requests import HTTPConnection

from stepwell.clock import Clock
from stepwell.errors import ConfigurationError
from stepwell.server.live.signed_principal import signable_principal
from stepwell.sessions.principal import Principal

TOKEN_SECONDS = 60.0
_LONGEST = 8192


class StreamToken(Struct, frozen=True, kw_only=True):
    """A token and its expiry; an open stream outlives it."""

    token: str
    expires_at: datetime


class _Claims(Struct, frozen=True, kw_only=True):
    who: Principal
    session_id: str
    until: datetime


class StreamTokens:
    """Makes and checks them; also an authenticator, for the one route that takes them. Of a
    principal's claims only the named ones travel, since browsers can read them.

    >>> from stepwell.testing import FakeClock
    >>> tokens = StreamTokens("secret", FakeClock())
    >>> made = tokens.make(Principal(user_id="ada"), "s1")
    >>> tokens.principal_of(made.token, "s1").user_id
    'ada'
    >>> tokens.principal_of(made.token, "s2") is None
    True
    """

    def __init__(self, secret: str, clock: Clock, *, claims: tuple[str, ...] = ()) -> None:
        if not secret:
            raise ConfigurationError("stream tokens need a secret; set app_secret")
        self._claims = claims
        self._key = hmac.digest(secret.encode(), b"stepwell stream token", hashlib.sha256)
        self._clock = clock

    def make(self, who: Principal, session_id: str) -> StreamToken:
        """Create a token for a principal who may follow that session."""
        until = self._clock.now() + timedelta(seconds=TOKEN_SECONDS)
        who = signable_principal(who, self._claims)
        claims = json.encode(_Claims(who=who, session_id=session_id, until=until))
        token = f"{_text(claims)}.{_text(self._signature(claims))}"
        return StreamToken(token=token, expires_at=until)

    def principal_of(self, token: str, session_id: str) -> Principal | None:
        """Return the principal of a token, if it is valid for that session now."""
        claims, dot, signature = token.partition(".")
        try:
            signed, given = _bytes(claims), _bytes(signature)
        except (binascii.Error, ValueError):
            return None
        if not dot or not hmac.compare_digest(self._signature(signed), given):
            return None
        try:
            read = json.decode(signed, type=_Claims)
        except (DecodeError, ValidationError):
            return None
        is_good = read.session_id == session_id and read.until > self._clock.now()
        return read.who if is_good else None

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Return the principal of a stream whose address has a token."""
        scope = request.scope
        token = request.query_params.get("token", "")
        is_stream = scope.get("method") == "GET" and scope["path"].endswith("/events")
        if not is_stream or not 0 < len(token) <= _LONGEST:
            return None
        return self.principal_of(token, str(request.path_params.get("session_id", "")))

    def _signature(self, claims: bytes) -> bytes:
        return hmac.digest(self._key, claims, hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))

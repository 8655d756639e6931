"""Authentication: authenticators, API keys, tokens, and the allowed hosts and origins."""

from stepwell.server.auth.authenticator import (
    Authenticate,
    Authenticator,
    as_authenticator,
    several,
)
from stepwell.server.auth.bind_address import is_loopback_bind, refuse_open_bind
from stepwell.server.auth.dev import DevAuthenticator
from stepwell.server.auth.keys import ApiKeys, KeyRing, accepts_keys
from stepwell.server.auth.refusals import NotAllowedError, NotSignedInError
from stepwell.server.auth.tokens import ClaimNames, JwtAuthenticator, has_expired

__all__ = [
    "ApiKeys",
    "Authenticate",
    "Authenticator",
    "ClaimNames",
    "DevAuthenticator",
    "JwtAuthenticator",
    "KeyRing",
    "NotAllowedError",
    "NotSignedInError",
    "accepts_keys",
    "as_authenticator",
    "has_expired",
    "is_loopback_bind",
    "refuse_open_bind",
    "several",
]

"""The bookshop's login: a signed cookie. The assistant asks it who sent a request."""

import hashlib
import hmac
import secrets

from starlette.requests import HTTPConnection
from starlette.responses import Response

from examples.bookshop.orders import USERS

COOKIE = "bookshop"
_KEY = secrets.token_bytes(32)
"""New for each start of the shop: everybody signs in again then."""


def sign_in(response: Response, user: str) -> None:
    """Set the cookie of a user."""
    response.set_cookie(COOKIE, f"{user}.{_signature(user)}", httponly=True, samesite="strict")


def signed_in_user(request: HTTPConnection) -> str | None:
    """Return who sent a request; None if nobody signed in."""
    user, _, signature = request.cookies.get(COOKIE, "").partition(".")
    is_signed = hmac.compare_digest(signature.encode(), _signature(user).encode())
    return user if is_signed and user in USERS else None


def _signature(user: str) -> str:
    return hmac.new(_KEY, user.encode(), hashlib.sha256).hexdigest()

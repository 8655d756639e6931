"""The authenticator protocol. The application may pass its own, as an object or a function."""

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from starlette.requests import HTTPConnection

from stepwell.errors import ConfigurationError
from stepwell.sessions.principal import Principal

Authenticate = Callable[[HTTPConnection], Awaitable[Principal | None]]


@runtime_checkable
class Authenticator(Protocol):
    """Identifies who sent a request."""

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Return the principal; None if this authenticator does not know them."""
        ...


class FunctionAuthenticator:
    """Wraps a function of the application."""

    def __init__(self, function: Authenticate) -> None:
        self._function = function
        self.accepts_keys = getattr(function, "accepts_keys", False) is True

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Return what the function returns."""
        return await self._function(request)


class SeveralAuthenticators:
    """Asks authenticators in order; the first that knows the principal decides."""

    def __init__(self, authenticators: tuple[Authenticator, ...]) -> None:
        self.authenticators = authenticators

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Return the principal of the first authenticator that knows them."""
        for one in self.authenticators:
            principal = await one.authenticate(request)
            if principal is not None:
                return principal
        return None


def as_authenticator(given: Authenticator | Authenticate) -> Authenticator:
    """Return an authenticator, or wrap an ``async def authenticate(request)``."""
    if isinstance(given, Authenticator):
        return given
    if not callable(given):
        raise ConfigurationError(
            f"authenticate is {given!r}; give an object with an async authenticate(request), or "
            "such a function"
        )
    return FunctionAuthenticator(given)


def several(*authenticators: Authenticator | Authenticate) -> Authenticator:
    """Combine authenticators, in order."""
    if not authenticators:
        raise ConfigurationError("several() needs at least one authenticator")
    return SeveralAuthenticators(tuple(as_authenticator(one) for one in authenticators))

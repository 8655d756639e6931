"""What an authenticator is. The application may give its own, as an object or as a function."""

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from starlette.requests import HTTPConnection

from stepwell.errors import ConfigurationError
from stepwell.sessions.principal import Principal

Authenticate = Callable[[HTTPConnection], Awaitable[Principal | None]]


@runtime_checkable
class Authenticator(Protocol):
    """Says who sent a request."""

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Who it is; None if this authenticator does not know them."""
        ...


class FunctionAuthenticator:
    """The application's own function as an authenticator."""

    def __init__(self, function: Authenticate) -> None:
        self._function = function
        self.accepts_keys = getattr(function, "accepts_keys", False) is True

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """What the function says."""
        return await self._function(request)


class SeveralAuthenticators:
    """Asks one after the other; the first that knows who it is decides."""

    def __init__(self, authenticators: tuple[Authenticator, ...]) -> None:
        self.authenticators = authenticators

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Who it is for the first that knows them."""
        for one in self.authenticators:
            principal = await one.authenticate(request)
            if principal is not None:
                return principal
        return None


def as_authenticator(given: Authenticator | Authenticate) -> Authenticator:
    """An authenticator, or an ``async def authenticate(request)`` made into one."""
    if isinstance(given, Authenticator):
        return given
    if not callable(given):
        raise ConfigurationError(
            f"authenticate is {given!r}; give an object with an async authenticate(request), or "
            "such a function"
        )
    return FunctionAuthenticator(given)


def several(*authenticators: Authenticator | Authenticate) -> Authenticator:
    """All of these, in order."""
    if not authenticators:
        raise ConfigurationError("several() needs one authenticator at least")
    return SeveralAuthenticators(tuple(as_authenticator(one) for one in authenticators))

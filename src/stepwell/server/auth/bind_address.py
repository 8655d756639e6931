"""Refuses to listen beyond this machine without authentication."""

import socket
from collections.abc import Callable, Iterable

from stepwell.errors import ConfigurationError
from stepwell.server.auth.authenticator import Authenticator, SeveralAuthenticators
from stepwell.server.auth.dev import DevAuthenticator
from stepwell.server.auth.hosts import is_loopback_address

Resolve = Callable[[str], Iterable[str]]


def resolve_host(host: str) -> Iterable[str]:
    """Return the addresses of a name, perhaps none."""
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None)]
    except (OSError, UnicodeError):
        return []


def is_loopback_bind(host: str, *, resolve: Resolve = resolve_host) -> bool:
    """Whether a socket bound to that host accepts connections of this machine only.

    A name counts if every address of it is loopback. The empty name means all addresses.
    """
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if is_loopback_address(plain):
        return True
    if not plain or "\0" in plain:
        return False
    addresses = list(resolve(plain))
    return bool(addresses) and all(is_loopback_address(address) for address in addresses)


def refuse_open_bind(
    host: str, authenticator: Authenticator | None, *, resolve: Resolve = resolve_host
) -> None:
    """Raise ``ConfigurationError`` if others could use the server without signing in."""
    if not _lets_everybody_in(authenticator) or is_loopback_bind(host, resolve=resolve):
        return
    what = "the dev authenticator" if authenticator else "no authenticator"
    raise ConfigurationError(
        f"the server would listen on {host!r}, beyond this machine, with {what}: anybody who "
        "reaches it could use its agents. Give AgentApp(authenticate=...) API keys, a "
        "JwtAuthenticator or your own function, or listen on 127.0.0.1"
    )


def _lets_everybody_in(authenticator: Authenticator | None) -> bool:
    if isinstance(authenticator, SeveralAuthenticators):
        return any(_lets_everybody_in(one) for one in authenticator.authenticators)
    return authenticator is None or isinstance(authenticator, DevAuthenticator)

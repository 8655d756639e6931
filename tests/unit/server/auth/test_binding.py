"""No server listens beyond its machine while everybody could use it."""

import pytest

from stepwell.errors import ConfigurationError
from stepwell.server.auth import DevAuthenticator, as_authenticator, refuse_open_bind, several
from stepwell.sessions.principal import Principal

ADDRESSES = {
    "localhost": ["127.0.0.1", "::1"],
    "devbox.example": ["192.0.2.7"],
    "both.example": ["127.0.0.1", "192.0.2.7"],
    "0": ["0.0.0.0"],
    "127.1": ["127.0.0.1"],
}


def resolve(host: str) -> list[str]:
    return ADDRESSES.get(host, [])


async def own(request: object) -> Principal | None:
    return None


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "::ffff:127.0.0.1", "localhost", "127.1"],
)
def test_on_this_machine_everything_goes(host: str) -> None:
    refuse_open_bind(host, None, resolve=resolve)
    refuse_open_bind(host, DevAuthenticator(), resolve=resolve)


OPEN = ["0.0.0.0", "::", "[::]", "", "192.0.2.7", "2001:db8::1", "::ffff:0.0.0.0", "0", "a\0b"]
OPEN += ["::ffff:192.0.2.7", "devbox.example", "both.example", "unknown.example"]


@pytest.mark.parametrize("host", OPEN)
def test_beyond_it_somebody_must_ask_who_it_is(host: str) -> None:
    with pytest.raises(ConfigurationError, match="no authenticator") as raised:
        refuse_open_bind(host, None, resolve=resolve)
    assert "authenticate=" in str(raised.value)
    with pytest.raises(ConfigurationError, match="dev authenticator"):
        refuse_open_bind(host, DevAuthenticator(), resolve=resolve)
    with pytest.raises(ConfigurationError):
        refuse_open_bind(host, several(own, DevAuthenticator()), resolve=resolve)


@pytest.mark.parametrize("host", OPEN)
def test_with_an_authenticator_every_bind_is_fine(host: str) -> None:
    refuse_open_bind(host, as_authenticator(own), resolve=resolve)
    refuse_open_bind(host, several(own, own), resolve=resolve)

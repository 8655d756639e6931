"""In dev mode everybody on this machine is signed in, and nobody else."""

import pytest

from stepwell.errors import ConfigurationError
from stepwell.server.auth import DevAuthenticator, as_authenticator, several
from stepwell.sessions.principal import Principal
from tests.unit.server.auth.rows import connection

HOST = ("Host", "localhost:8000")


async def test_everybody_is_dev_an_administrator() -> None:
    found = await DevAuthenticator().authenticate(connection([HOST]))
    assert found == Principal(user_id="dev", is_admin=True)


async def test_or_who_they_say_a_plain_user() -> None:
    request = connection([HOST, ("X-Stepwell-User", "ada")])
    assert await DevAuthenticator().authenticate(request) == Principal(user_id="ada")


async def test_or_who_they_say_as_configured() -> None:
    request = connection([HOST, ("X-Stepwell-User", " ada ")])
    assert await DevAuthenticator(tenant_id="t", is_admin=True).authenticate(request) == Principal(
        user_id="ada", tenant_id="t", is_admin=True
    )


@pytest.mark.parametrize("name", ["", " ", "a" * 201, "a\x00b", "a\x85b"])
async def test_a_name_that_is_none_signs_nobody_in(name: str) -> None:
    request = connection([HOST, ("X-Stepwell-User", name)])
    assert await DevAuthenticator().authenticate(request) is None


async def test_two_names_sign_nobody_in() -> None:
    request = connection([HOST, ("X-Stepwell-User", "ada"), ("X-Stepwell-User", "bob")])
    assert await DevAuthenticator().authenticate(request) is None


@pytest.mark.parametrize("address", ["192.0.2.7", "::ffff:192.0.2.7", "testclient", ""])
async def test_other_machines_are_refused(address: str) -> None:
    request = connection([HOST], client=(address, 1))
    assert await DevAuthenticator().authenticate(request) is None


async def test_a_connection_without_an_address_is_refused() -> None:
    assert await DevAuthenticator().authenticate(connection([HOST], client=None)) is None


@pytest.mark.parametrize(
    "host", ["rebound.example", "rebound.example:8000", "localhost.evil.example", "", "a@localhost"]
)
async def test_a_name_that_was_pointed_here_is_refused(host: str) -> None:
    assert await DevAuthenticator().authenticate(connection([("Host", host)])) is None


@pytest.mark.parametrize("header",
    ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Server", "Via", "X-Real-Ip",
     "CF-Connecting-IP", "CF-Ray", "True-Client-IP", "X-Client-IP"],
)  # fmt: skip
async def test_what_a_proxy_passed_on_is_refused(header: str) -> None:
    assert await DevAuthenticator().authenticate(connection([HOST, (header, "x")])) is None


async def test_several_ask_one_after_the_other() -> None:
    async def nobody(request: object) -> Principal | None:
        return None

    async def ada(request: object) -> Principal | None:
        return Principal(user_id="ada")

    both = several(nobody, ada, DevAuthenticator())
    assert await both.authenticate(connection([HOST])) == Principal(user_id="ada")
    assert await several(nobody, nobody).authenticate(connection([HOST])) is None


def test_what_is_no_authenticator_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match="authenticate is 'ada'"):
        as_authenticator("ada")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="at least"):
        several()

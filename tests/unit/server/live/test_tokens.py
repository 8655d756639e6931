"""Stream tokens and channel signatures: what travels with them, and with which secret."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import json

from stepwell.errors import ConfigurationError
from stepwell.server.live.channel_auth import authorize_channel, sign, subscriber_of
from stepwell.server.live.tokens import StreamTokens
from stepwell.server.settings import ServerSettings
from stepwell.sessions.principal import Principal
from stepwell.testing import FakeClock
from tests.unit.server.live.logs import LogInMemory

CLAIMS: dict[str, Any] = {
    "exp": 4_000_000_000,
    "team": "blue",
    "salary": "SECRET-100",
    "made": object(),
    "half": "\ud800",
}
ADA = Principal(user_id="ada", tenant_id="default", key_id="k1", claims=CLAIMS)
CHANNEL = "private-agent.session.s1"


class Anybody:
    """Believes every key."""

    async def is_valid(self, _who: Principal) -> bool:
        return True


def services(**settings: Any) -> Any:
    chosen = ServerSettings(**{"app_secret": "s" * 32, **settings})
    return SimpleNamespace(
        store=LogInMemory().as_store,
        clock=FakeClock(),
        settings=chosen,
        authorize=None,
        keys=Anybody(),
    )


def test_a_token_holds_no_claims_but_those_that_are_named() -> None:
    tokens = StreamTokens("s" * 32, FakeClock(), claims=("team", "made", "half", "missing"))
    found = tokens.principal_of(tokens.make(ADA, "s1").token, "s1")
    assert found is not None
    assert (found.user_id, found.key_id) == ("ada", "k1")
    assert found.claims == {"exp": 4_000_000_000, "team": "blue"}
    plain = StreamTokens("s" * 32, FakeClock())
    found = plain.principal_of(plain.make(ADA, "s1").token, "s1")
    assert found is not None
    assert found.claims == {"exp": 4_000_000_000}


async def test_a_channel_signature_holds_no_claims_but_those_that_are_named() -> None:
    signed = await authorize_channel(services(), ADA, "1.2", CHANNEL)
    assert "SECRET" not in signed.channel_data
    assert json.decode(signed.channel_data)["claims"] == {"exp": 4_000_000_000}
    chosen = services(live_claims=("team", "made"))
    signed = await authorize_channel(chosen, ADA, "1.2", CHANNEL)
    found = subscriber_of(chosen, "1.2", CHANNEL, signed.auth, signed.channel_data)
    assert found is not None
    assert found.who is not None
    assert found.who.claims == {"exp": 4_000_000_000, "team": "blue"}


def test_without_a_secret_nothing_is_signed() -> None:
    with pytest.raises(ConfigurationError, match="app_secret"):
        StreamTokens("", FakeClock())
    with pytest.raises(ConfigurationError, match="app_secret"):
        sign("", "1.2", CHANNEL)
    none = SimpleNamespace(settings=ServerSettings())
    assert subscriber_of(none, "1.2", CHANNEL, "stepwell:x", None) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("secret", ["x", "s" * 31])
def test_a_short_secret_is_refused_with_a_command_that_makes_one(secret: str) -> None:
    with pytest.raises(ConfigurationError, match=r"32 or more.*token_urlsafe") as refused:
        ServerSettings(app_secret=secret)
    assert f"{secret!r}" not in str(refused.value)
    assert ServerSettings(app_secret="s" * 32).app_secret


def test_a_time_that_was_given_as_one_does_not_break_a_token() -> None:
    who = Principal(user_id="ada", claims={"exp": datetime(2100, 1, 1, tzinfo=UTC)})
    tokens = StreamTokens("s" * 32, FakeClock())
    assert tokens.principal_of(tokens.make(who, "s1").token, "s1") is not None

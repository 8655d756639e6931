"""Configuration: defaults, file, environment, command line; the later one wins."""

from pathlib import Path
from typing import cast

import pytest

from stepwell.app.authenticators import authenticator_for
from stepwell.app.config import AuthConfig, AuthMode, load_config, shown_database
from stepwell.errors import ConfigurationError
from stepwell.server.auth import KeyRing
from stepwell.testing import FakeClock

NO_FOLDER = Path("does-not-exist")


def config_of(environment: dict[str, str] | None = None, **overrides: object):
    return load_config(overrides, folder=NO_FOLDER, environment=environment or {})


def test_without_anything_there_are_defaults() -> None:
    config = config_of()
    assert (config.db, config.host, config.port) == ("sqlite:///stepwell.db", "127.0.0.1", 8400)
    assert config.auth.mode is AuthMode.DEV


def test_the_environment_sets_fields_and_fields_of_sections() -> None:
    config = config_of(
        {
            "STEPWELL_DB": "postgresql://localhost/agents",
            "STEPWELL_PORT": "9000",
            "STEPWELL_SESSIONS__LEASE_SECONDS": "6",
            "STEPWELL_AUTH__MODE": "keys",
            "STEPWELL_SERVER__ALLOWED_ORIGINS": "https://a.example, https://b.example",
            "PATH": "/bin",
        }
    )
    assert (config.db, config.port) == ("postgresql://localhost/agents", 9000)
    assert config.sessions.lease_seconds == 6.0
    assert config.auth.mode is AuthMode.KEYS
    assert config.server.allowed_origins == ("https://a.example", "https://b.example")


def test_the_command_line_wins_over_the_environment() -> None:
    assert config_of({"STEPWELL_PORT": "9000"}, port=9001, db=None).port == 9001


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "STEPWELL_DATABASE",
            "x",
            "setting STEPWELL_DATABASE; known settings: STEPWELL_APP",
        ),
        ("STEPWELL_SESSIONS__LEASE", "1", "known settings: STEPWELL_SESSIONS__LEASE_SECONDS"),
        ("STEPWELL_SESSIONS", "1", "unknown setting STEPWELL_SESSIONS;"),
        ("STEPWELL_PORT", "many", "STEPWELL_PORT: port must be a whole number, got 'many'"),
        ("STEPWELL_TELEMETRY__ENABLED", "x", "STEPWELL_TELEMETRY__ENABLED: .* true or false"),
        ("STEPWELL_AUTH__MODE", "magic", "auth.mode \\('magic'\\) must be dev or keys or jwt"),
        ("STEPWELL_SESSIONS__HEARTBEAT_SECONDS", "9", "a lease of 3.0 is renewed twice"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(name: str, value: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        config_of({name: value})


def test_names_that_other_parts_use_are_left_alone() -> None:
    assert config_of({"STEPWELL_PYTHON": "python3", "STEPWELL_TEST_POSTGRES": "x"}).port == 8400


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter2@localhost:5432/agents",
        "postgresql://ada:hun:ter2@localhost/agents",
        "postgresql://ada:a/hunter2@localhost/agents",
        "postgresql//ada:hunter2@localhost/agents",
        "postgresql://localhost/agents?user=ada&password=hunter2",
        "postgresql://ada:a@b//hunter2@localhost/agents",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    shown = repr(config_of({"STEPWELL_DB": url}))
    assert "ter2" not in shown
    assert "localhost" in shown
    assert "app_secret" not in repr(config_of({"STEPWELL_SERVER__APP_SECRET": "s" * 40}))


def test_a_short_secret_is_refused_without_being_shown() -> None:
    with pytest.raises(ConfigurationError, match="token_urlsafe") as refused:
        config_of({"STEPWELL_SERVER__APP_SECRET": "hunter2"})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:hunter2@localhost:5432/agents", "localhost:5432/agents"),
        ("postgresql://ada@/agents?host=/run/pg&password=hun@ter2", "/run/pg/agents"),
        ("sqlite:////data/a.db", "/data/a.db"),
        ("sqlite:///a.db", "a.db"),
    ],
)
def test_a_database_is_named_by_its_place(url: str, shown: str) -> None:
    assert shown_database(url) == shown


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        (AuthConfig(mode=AuthMode.JWT, jwks_url="u", issuer="i"), "audience is not set; set it"),
        (AuthConfig(mode=AuthMode.JWT, issuer="i"), "jwks_url, audience are not set; set them"),
    ],
)
def test_what_jwt_lacks_is_named(auth: AuthConfig, said: str) -> None:
    clock = FakeClock()
    with pytest.raises(ConfigurationError, match=said):
        authenticator_for(auth, cast("KeyRing", None), clock)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[auth]\njwks_url = "https://example.com/keys"', "auth.jwks_url has no effect without"),
        ("[telemetry]\ncontent = true", "telemetry.content has no effect without"),
    ],
)
def test_settings_whose_switch_was_never_set_are_refused(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "stepwell.toml").write_text(text)

    with pytest.raises(ConfigurationError, match=told):
        load_config(folder=tmp_path, environment={})


def test_the_switch_of_a_section_may_come_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "stepwell.toml").write_text('[auth]\njwks_url = "https://example.com/keys"')
    config = load_config(folder=tmp_path, environment={"STEPWELL_AUTH__MODE": "keys"})

    assert config.auth.mode == "keys"

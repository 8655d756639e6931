"""``stepwell.toml``."""

from pathlib import Path

import pytest

from stepwell.app.config import load_config
from stepwell.errors import ConfigurationError


def test_the_file_is_read_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "stepwell.toml").write_text(
        'db = "sqlite:///agents.db"\nport = 8500\n'
        "[sessions]\nconcurrency = 3\nlease_seconds = 4\n[retention]\nevents_days = 30\n"
    )
    config = load_config(folder=tmp_path, environment={"STEPWELL_SESSIONS__LEASE_SECONDS": "8"})
    assert (config.db, config.port) == ("sqlite:///agents.db", 8500)
    assert (config.sessions.concurrency, config.sessions.lease_seconds) == (3, 8.0)
    assert config.retention.events_days == 30


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("db = ", "can't be read"),
        ("database = 'x'", "unknown setting 'database'; known settings: app, model, db"),
        (
            "[sessions]\nconcurency = 3",
            r"unknown setting 'concurency' in \[sessions\]; .*concurrency",
        ),
        ("[server]\nhost = 'x'", r"unknown setting 'host' in \[server\]; .*allowed_hosts"),
        ("[sessions.broadcast]\nx = 1", r"in \[sessions\.broadcast\]; .*max_queued"),
        ("[auth]\nmode = 'magic'", "auth.mode \\('magic'\\) must be dev or keys or jwt"),
        ("port = 99999", "port must be a whole number <= 65535, got 99999"),
        ('port = "abc"', "port must be a whole number, got 'abc'"),
        ("worker = 3.5", "worker must be true or false, got 3.5"),
        ("[server]\napp_secret = 12", "server.app_secret must be a text, got a whole number"),
        ("[sessions]\nlease_seconds = 'x'", "sessions.lease_seconds must be a number, got 'x'"),
        ("[sessions]\nconcurrency = 0", "concurrency must be 1 or more"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "stepwell.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=rf"(?s)stepwell\.toml.*{said}"):
        load_config(folder=tmp_path, environment={})


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"file not found: .*nowhere\.toml"):
        load_config(file=tmp_path / "nowhere.toml", environment={})

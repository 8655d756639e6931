"""The reference of settings names every setting."""

from pathlib import Path

import pytest
from msgspec import Struct, structs

from stepwell.app.config import AuthConfig, Config
from stepwell.server.settings import ServerSettings
from stepwell.sessions.retention import RetentionPolicy
from stepwell.sessions.settings import SessionSettings

PAGE = (Path(__file__).parents[2] / "docs/reference/settings.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "section", [Config, AuthConfig, SessionSettings, ServerSettings, RetentionPolicy]
)
def test_every_setting_is_in_the_reference(section: type[Struct]) -> None:
    missing = [
        field.name
        for field in structs.fields(section)
        if f"`{field.name}`" not in PAGE and f"`[{field.name}]`" not in PAGE
    ]
    assert missing == []

"""Older versions become newer ones, one migration after the other."""

import pytest

from stepwell.errors import SerializationError
from stepwell.serialization.document import SCHEMA_VERSION, WHOLE
from stepwell.serialization.versions import MIGRATIONS, check_version, migrate


def test_migrations_run_in_order_from_the_document_s_version_on() -> None:
    migrations = {
        (WHOLE, 1): lambda data: {**data, "path": [*data["path"], "1 to 2"]},
        (WHOLE, 2): lambda data: {**data, "path": [*data["path"], "2 to 3"]},
    }
    for version, path in [(1, ["1 to 2", "2 to 3"]), (2, ["2 to 3"]), (3, [])]:
        data = migrate({"path": []}, WHOLE, version, newest=3, migrations=migrations)
        assert data == {"path": path}


def test_every_older_version_has_a_migration() -> None:
    formats = (WHOLE, f"{WHOLE}.increment")
    wanted = {(name, version) for name in formats for version in range(1, SCHEMA_VERSION)}
    assert set(MIGRATIONS) == wanted


@pytest.mark.parametrize("version", [0, -1, SCHEMA_VERSION + 1])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(SerializationError, match=f"schema_version is {version}"):
        check_version(version)

"""Older versions of the full format, and how each becomes the next one.

To make a new version: raise ``SCHEMA_VERSION``, add the migration here, and golden files of the new
version beside those of the old ones, which are never changed.
"""

from collections.abc import Callable, Mapping
from typing import Any

from stepwell.errors import SerializationError
from stepwell.serialization.document import SCHEMA_VERSION

Migration = Callable[[dict[str, Any]], dict[str, Any]]

MIGRATIONS: Mapping[tuple[str, int], Migration] = {}
"""By format and version: what makes data of that version into data of the next."""


def check_version(version: int) -> None:
    """Refuse what this Stepwell can't know."""
    if not 1 <= version <= SCHEMA_VERSION:
        newer = "; it was written by a newer one: upgrade" if version > 0 else ""
        raise SerializationError(
            f"schema_version is {version}, and this Stepwell reads 1 to {SCHEMA_VERSION}{newer}"
        )


def migrate(
    data: dict[str, Any],
    format: str,
    version: int,
    *,
    newest: int = SCHEMA_VERSION,
    migrations: Mapping[tuple[str, int], Migration] = MIGRATIONS,
) -> dict[str, Any]:
    """Data of an older version as data of the newest."""
    for older in range(version, newest):
        data = migrations[format, older](data)
    return data

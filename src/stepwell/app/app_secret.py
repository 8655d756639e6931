"""The secret for channel signatures and stream tokens: configured, or created once beside the
SQLite file, so that all processes of an application share it.
"""

import contextlib
import logging
import os
import secrets
import stat
import tempfile
from pathlib import Path

from msgspec.structs import replace

from stepwell.errors import ConfigurationError
from stepwell.server.settings import MAKE_A_SECRET, SHORTEST_SECRET, ServerSettings

logger = logging.getLogger("stepwell.app")


def with_app_secret(settings: ServerSettings, db: str) -> ServerSettings:
    """Return the settings with a secret."""
    if settings.app_secret:
        return settings
    path = _beside(db)
    if path is None:
        logger.warning(
            "app_secret is not configured: live channels work only with the process that signed "
            "them. For several processes set STEPWELL_SERVER__APP_SECRET to a random text: %s",
            MAKE_A_SECRET,
        )
        return replace(settings, app_secret=secrets.token_urlsafe(32))
    return replace(settings, app_secret=_stored_secret(path))


def _beside(db: str) -> Path | None:
    scheme, _, rest = db.partition("://")
    if not scheme.startswith("sqlite") or ":memory:" in rest:
        return None
    return Path(f"{rest.removeprefix('/').partition('?')[0]}.secret")


def _stored_secret(path: Path) -> str:
    try:
        if not os.path.lexists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path)
        kept = _read(path)
    except OSError as error:
        raise ConfigurationError(
            f"can't create or read the secret {path} ({error}); set STEPWELL_SERVER__APP_SECRET "
            f"to a random text: {MAKE_A_SECRET}"
        ) from None
    if len(kept) < SHORTEST_SECRET:
        raise ConfigurationError(f"{path} contains no secret; delete it to create a new one")
    return kept


def _make(path: Path) -> None:
    """Create the file atomically and once: another process may start at the same time."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(32))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def _read(path: Path) -> str:
    """Read the secret if nobody else can have read or written it. Links are not followed: they
    could lead to a file that others know."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigurationError(
                f"{path} is not a file of the current user; delete it to create a new one"
            )
        if found.st_mode & 0o077:
            raise ConfigurationError(
                f"{path} can be read or changed by other users; delete it to create a new one"
            )
        return file.read(1000).strip()

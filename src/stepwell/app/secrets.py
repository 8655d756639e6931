"""The secret that channel signatures and stream tokens are made with: configured, or made once and
kept beside the SQLite file, so that every process of one application has the same.
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
    """The settings with a secret."""
    if settings.app_secret:
        return settings
    path = _beside(db)
    if path is None:
        logger.warning(
            "no app_secret is configured: live channels only work with the process that signed "
            "them. With several processes set STEPWELL_SERVER__APP_SECRET to a random text: %s",
            MAKE_A_SECRET,
        )
        return replace(settings, app_secret=secrets.token_urlsafe(32))
    return replace(settings, app_secret=_kept(path))


def _beside(db: str) -> Path | None:
    scheme, _, rest = db.partition("://")
    if not scheme.startswith("sqlite") or ":memory:" in rest:
        return None
    return Path(f"{rest.removeprefix('/').partition('?')[0]}.secret")


def _kept(path: Path) -> str:
    try:
        if not os.path.lexists(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _make(path)
        kept = _read(path)
    except OSError as error:
        raise ConfigurationError(
            f"the secret {path} can't be made or read ({error}); set STEPWELL_SERVER__APP_SECRET "
            f"to a random text: {MAKE_A_SECRET}"
        ) from None
    if len(kept) < SHORTEST_SECRET:
        raise ConfigurationError(f"{path} holds no secret; delete it, and a new one is made")
    return kept


def _make(path: Path) -> None:
    """All of it or nothing, and once: another process may start at the same time."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(32))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)


def _read(path: Path) -> str:
    """What is in it, if nobody else can have read or written it. No link is followed: it could
    lead to a file that others know."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigurationError(
                f"{path} is not a file of the user that runs this; delete it, and a new one is made"
            )
        if found.st_mode & 0o077:
            raise ConfigurationError(
                f"{path} can be read or changed by others, so it is no secret; delete it, and a "
                "new one is made"
            )
        return file.read(1000).strip()

"""The secret that channel signatures and stream tokens are made with: configured, or made once and
kept beside the SQLite file, so that every process of one application has the same.
"""

import logging
import os
import secrets
from pathlib import Path

from msgspec.structs import replace

from stepwell.errors import ConfigurationError
from stepwell.server.settings import ServerSettings

logger = logging.getLogger("stepwell.app")


def with_app_secret(settings: ServerSettings, db: str) -> ServerSettings:
    """The settings with a secret."""
    if settings.app_secret:
        return settings
    path = _beside(db)
    if path is None:
        logger.warning(
            "no app_secret is configured: live channels only work with the process that signed "
            "them. With several processes set STEPWELL_SERVER__APP_SECRET to a random text."
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
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(32))
    except FileExistsError:
        pass
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be written ({error}); set STEPWELL_SERVER__APP_SECRET to a random text"
        ) from None
    kept = path.read_text("utf-8").strip()
    if len(kept) < 16:
        raise ConfigurationError(f"{path} holds no secret; delete it, and a new one is made")
    return kept

"""The configuration of the app server: defaults, ``stepwell.toml``, the environment, the command
line; a later one wins. The only place that reads the environment.

``STEPWELL_DB`` sets ``db``; ``STEPWELL_SESSIONS__LEASE_SECONDS`` sets ``lease_seconds`` in the
section ``[sessions]``.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, cast

from msgspec import Meta, Struct, ValidationError, convert, structs

from stepwell.app.config_names import at, check_names, in_words
from stepwell.errors import ConfigurationError
from stepwell.server.settings import ServerSettings
from stepwell.sessions.retention import RetentionPolicy
from stepwell.sessions.settings import SessionSettings

FILE = "stepwell.toml"
PREFIX = "STEPWELL_"
NOT_SETTINGS = ("STEPWELL_PYTHON", "STEPWELL_TEST_", "STEPWELL_COMMAND_")
"""Names of the environment that other parts of Stepwell use."""
_PASSWORD_PARAMETER = re.compile(r"(?<=password=)[^&]*", re.IGNORECASE)


class AuthMode(StrEnum):
    """Who may use the server."""

    DEV = "dev"
    """Everybody on this machine; for development, on loopback only."""
    KEYS = "keys"
    JWT = "jwt"


class AuthConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How users sign in; ``jwt`` needs ``jwks_url``, ``issuer`` and ``audience``."""

    mode: AuthMode = AuthMode.DEV
    jwks_url: str | None = None
    issuer: str | None = None
    audience: str | None = None
    user_claim: str = "sub"
    tenant_claim: str | None = None
    admin_claim: str | None = None
    roles_claim: str | None = None
    """The claim that lists the roles of a principal."""


class LogFormat(StrEnum):
    """How a command writes its log."""

    TEXT = "text"
    JSON = "json"
    """One object per line."""


class TelemetryConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether agents emit OpenTelemetry data, and whether it includes message contents."""

    enabled: bool = False
    content: bool = False


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be configured.

    >>> Config().db
    'sqlite:///stepwell.db'
    """

    app: str | None = None
    """``module:name`` of an AgentApp, an agent, or agents by name."""
    model: str | None = None
    """The model preset of the built-in agent, if no app is given."""
    db: str = "sqlite:///stepwell.db"
    bus_url: str | None = None
    """A Redis server that carries notifications and streamed text between processes, such as
    ``redis://127.0.0.1:6379/0``; the default is PostgreSQL itself, and nothing on SQLite. If ``db``
    is PgBouncer in transaction mode: the URL of PostgreSQL itself."""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8400
    worker: bool | None = None
    """Whether ``serve`` also runs executions; by default only on SQLite."""
    log_level: str = "info"
    log_format: LogFormat = LogFormat.TEXT
    auth: AuthConfig = AuthConfig()
    sessions: SessionSettings = SessionSettings()
    server: ServerSettings = ServerSettings()
    retention: RetentionPolicy = RetentionPolicy()
    telemetry: TelemetryConfig = TelemetryConfig()

    def __repr__(self) -> str:
        """Omit passwords: configurations end up in logs."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        shown["db"] = without_password(self.db)
        shown["bus_url"] = None if self.bus_url is None else without_password(self.bus_url)
        return f"Config({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def without_password(url: str) -> str:
    """Return the URL of a database without its password.

    >>> without_password("postgresql://ada:se:cret@localhost/agents?password=x")
    'postgresql://ada:***@localhost/agents?password=***'
    """
    scheme, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    shown = f"{scheme}{slashes}{user}{colon}{'***' if colon else ''}{at}{place}"
    return _PASSWORD_PARAMETER.sub("***", shown)


def shown_database(url: str) -> str:
    """Return the host and name of a database, without credentials.

    >>> shown_database("postgresql://ada:se:cret@localhost:5432/agents?password=x")
    'localhost:5432/agents'
    >>> shown_database("sqlite:///data/stepwell.db")
    'data/stepwell.db'
    """
    # Imported here: commands without a database run without SQLAlchemy.
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return "of an unknown kind"
    if not parsed.host and "host" not in parsed.query:
        return parsed.database or "of an unknown kind"
    host = parsed.host or parsed.query["host"]
    port = f":{parsed.port}" if parsed.port else ""
    return f"{host}{port}/{parsed.database or ''}"


def load_config(
    overrides: Mapping[str, Any] | None = None,
    *,
    folder: Path | None = None,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """The configuration for that folder, by default the current one.

    ``overrides`` are those of the command line; None among them means not given. Whatever is wrong
    raises ``ConfigurationError`` with the place it was written at.
    """
    data: dict[str, Any] = {}
    path = file or (folder or Path.cwd()) / FILE
    if file is not None or path.is_file():
        data = _file_data(path)
        _validate(data, str(path))
    variables = _environment_data(os.environ if environment is None else environment)
    _merge(data, variables)
    _merge(data, {key: value for key, value in (overrides or {}).items() if value is not None})
    _refuse_unused(data)
    return _validate(data, "the configuration", variables)


def _refuse_unused(data: Mapping[str, Any]) -> None:
    """Raise for settings without effect, because the switch of their section is not set."""
    for section, switch, needed in (("auth", "mode", "jwt"), ("telemetry", "enabled", "true")):
        values: Any = data.get(section)
        if not isinstance(values, Mapping) or switch in values:
            continue
        unused = ", ".join(f"{section}.{name}" for name in cast("Mapping[str, Any]", values))
        if unused:
            raise ConfigurationError(
                f"the configuration: {unused} has no effect without {section}.{switch}; set "
                f"{section}.{switch} (to {needed}, to use them)"
            )


def is_database_named(
    given: str | None,
    *,
    folder: Path | None = None,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> bool:
    """Whether the database was named explicitly; a configuration file in the folder counts."""
    variables = os.environ if environment is None else environment
    path = file or (folder or Path.cwd()) / FILE
    return given is not None or f"{PREFIX}DB" in variables or path.is_file()


def _file_data(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"file not found: {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}") from None


def _environment_data(environment: Mapping[str, str]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, value in environment.items():
        if not name.startswith(PREFIX) or name.startswith(NOT_SETTINGS):
            continue
        section, _, key = name.removeprefix(PREFIX).lower().partition("__")
        _check_known(name, section, key)
        if key:
            data.setdefault(section, {})[key] = value
        else:
            data[section] = value
    return data


def _check_known(name: str, section: str, key: str) -> None:
    sections = {field.name: field.type for field in structs.fields(Config)}
    shape = sections.get(section)
    known: list[str] = [f"{PREFIX}{field.upper()}" for field in sections]
    if shape is not None and isinstance(shape, type) and issubclass(shape, Struct):
        fields = [field.name for field in structs.fields(shape)]
        known = [f"{PREFIX}{section.upper()}__{field.upper()}" for field in fields]
        if key in fields:
            return
    elif shape is not None and not key:
        return
    raise ConfigurationError(f"unknown setting {name}; known settings: {', '.join(known)}")


def _merge(data: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(data.get(key), dict):
            data[key].update(value)
        else:
            data[key] = value


def _validate(
    data: Mapping[str, Any], where: str, variables: Mapping[str, Any] | None = None
) -> Config:
    """Return the configuration. Errors say where the wrong value was written."""
    try:
        check_names(Config, data)
        return convert(_split_lists(data), Config, strict=False)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    except ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, ConfigurationError):
            raise ConfigurationError(f"{where}: {cause}") from None
        path, words = in_words(str(error), data)
        if at(variables or {}, path) is not None:
            where = f"{PREFIX}{'__'.join(path).upper()}"
        raise ConfigurationError(f"{where}: {words}") from None


def _split_lists(data: Mapping[str, Any]) -> dict[str, Any]:
    """Split lists, which are comma-separated in the environment."""
    shapes = {
        field.name: field.type
        for field in structs.fields(Config)
        if isinstance(field.type, type) and issubclass(field.type, Struct)
    }
    made = dict(data)
    for section, shape in shapes.items():
        if not isinstance(made.get(section), Mapping):
            continue
        values = cast("Mapping[str, Any]", made[section])
        lists = {f.name for f in structs.fields(shape) if str(f.type).startswith("tuple")}
        made[section] = {
            key: [part.strip() for part in value.split(",") if part.strip()]
            if isinstance(value, str) and key in lists
            else value
            for key, value in values.items()
        }
    return made

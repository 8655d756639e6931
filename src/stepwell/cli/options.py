"""Options shared by several commands, and the configuration they produce."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

if TYPE_CHECKING:
    from stepwell.app.config import Config

Command = Callable[..., Any]
USER = "dev"
"""The user id of the command line and of the page of a development server."""
LOG_LEVELS = ("debug", "info", "warning", "error")

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file.  [default: stepwell.toml, if it exists]",
)
db_option = click.option(
    "--db", help="Database URL, sqlite:/// or postgresql://.  [default: sqlite:///stepwell.db]"
)
model_option = click.option("--model", help="Model for the built-in agent, such as openai:gpt-5.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def log_level_option(default: str) -> Callable[[Command], Command]:
    """Return ``--log-level``. The default is only documented: the configuration may set another."""
    return click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS, case_sensitive=False),
        help=f"Log level; the log goes to standard error.  [default: {default}]",
    )


def configuration_options(command: Command) -> Command:
    """Add ``APP``, ``--db``, ``--config``, ``--model`` and ``--log-level``."""
    for decorate in (
        config_option,
        log_level_option("info"),
        model_option,
        db_option,
        click.argument("app", required=False),
    ):
        command = decorate(command)
    return command


def database_options(command: Command) -> Command:
    """Add ``--db``, ``--config`` and ``--json``, for commands that read a database."""
    for decorate in (json_option, config_option, db_option):
        command = decorate(command)
    return command


class DatabaseOptions(Struct, frozen=True):
    """The options of a group. Those of a subcommand take precedence."""

    db: str | None
    config: Path | None
    as_json: bool

    def database(self, db: str | None, config: Path | None) -> str:
        """Return the database URL."""
        return configuration(config or self.config, db=db or self.db).db

    def bus_url(self, db: str | None, config: Path | None) -> str | None:
        """Return the URL of the bus that notifies running processes, if one is configured."""
        return configuration(config or self.config, db=db or self.db).bus_url


def configuration(config: Path | None, **overrides: Any) -> "Config":
    """Load the configuration with the overrides of the command line."""
    from stepwell.app.config import load_config

    loaded = load_config(overrides, file=config)
    if overrides.get("model") is not None and loaded.app is not None:
        raise click.UsageError(
            f"--model applies to the built-in agent, but {loaded.app} is configured; omit one of "
            f"them, or set the model in {loaded.app}."
        )
    return loaded


def start_logging(level: str, format: str = "text") -> None:
    """Log to standard error, as lines with indented tracebacks or as ``json``."""
    import logging

    from stepwell.cli.log_lines import log_handler

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        from stepwell.errors import ConfigurationError

        raise ConfigurationError(f"log_level ({level!r}) must be debug, info, warning or error")
    logging.basicConfig(level=number, handlers=[log_handler(format)], force=True)
    # aiosqlite, for one, logs every statement with its values, which are what users wrote.
    for chatty in ("aiosqlite", "alembic", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(number, logging.WARNING))

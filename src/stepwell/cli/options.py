"""Options that several commands have, and the configuration they lead to."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

if TYPE_CHECKING:
    from stepwell.app.config import Config

Command = Callable[..., Any]
USER = "dev"
"""As whom the command line and the page of a development server write."""
LOG_LEVELS = ("debug", "info", "warning", "error")

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The configuration file; otherwise stepwell.toml, if there is one.",
)
db_option = click.option(
    "--db", help="sqlite:///file.db or postgresql://...  [default: sqlite:///stepwell.db]"
)
model_option = click.option(
    "--model", help="The model of the built-in agent, such as openai:gpt-5."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead.")


def log_level_option(default: str) -> Callable[[Command], Command]:
    """``--log-level``; the default is only told here, since a configuration may say otherwise."""
    return click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS, case_sensitive=False),
        help=f"What is logged, to standard error.  [default: {default}]",
    )


def configuration_options(command: Command) -> Command:
    """``APP``, ``--db``, ``--config``, ``--model`` and ``--log-level``."""
    for decorate in (
        config_option,
        log_level_option("info"),
        model_option,
        db_option,
        click.argument("app", required=False),
    ):
        command = decorate(command)
    return command


def stored_options(command: Command) -> Command:
    """``--db``, ``--config`` and ``--json``, for commands that read what is stored."""
    for decorate in (json_option, config_option, db_option):
        command = decorate(command)
    return command


class Where(Struct, frozen=True):
    """Which database, and how to answer; an option of a subcommand wins over the group's."""

    db: str | None
    config: Path | None
    as_json: bool

    def database(self, db: str | None, config: Path | None) -> str:
        """The address of the database."""
        return configuration(config or self.config, db=db or self.db).db

    def bus_url(self, db: str | None, config: Path | None) -> str | None:
        """The Redis server by which running processes hear of a change, if there is one."""
        return configuration(config or self.config, db=db or self.db).bus_url


def configuration(config: Path | None, **overrides: Any) -> "Config":
    """The configuration under what the command line says."""
    from stepwell.app.config import load_config

    loaded = load_config(overrides, file=config)
    if overrides.get("model") is not None and loaded.app is not None:
        raise click.UsageError(
            f"--model is for the built-in agent, and {loaded.app} is used; leave one of them "
            f"out, or set the model in {loaded.app}."
        )
    return loaded


def start_logging(level: str, format: str = "text") -> None:
    """Log to standard error: one line for each record and its traceback indented, or ``json``."""
    import logging

    from stepwell.cli.log_lines import log_handler

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        from stepwell.errors import ConfigurationError

        raise ConfigurationError(f"log_level is {level!r}; give debug, info, warning or error")
    logging.basicConfig(level=number, handlers=[log_handler(format)], force=True)
    # Among others aiosqlite logs every statement with its values: the words of users.
    for chatty in ("aiosqlite", "alembic", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(number, logging.WARNING))

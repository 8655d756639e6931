"""Options that several commands have, and the configuration they lead to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stepwell.app.config import Config, load_config

Command = Callable[..., Any]
LOG_LEVELS = ("debug", "info", "warning", "error")


def configuration_options(command: Command) -> Command:
    """``APP``, ``--db``, ``--config``, ``--model`` and ``--log-level``."""
    for decorate in (
        click.option(
            "--config",
            type=click.Path(path_type=Path, dir_okay=False),
            help="The configuration file; otherwise stepwell.toml, if there is one.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(LOG_LEVELS, case_sensitive=False),
            help="What is logged, to standard error.  [default: info]",
        ),
        click.option("--model", help="The model of the built-in agent, such as openai:gpt-5."),
        click.option(
            "--db", help="sqlite:///file.db or postgresql://...  [default: sqlite:///stepwell.db]"
        ),
        click.argument("app", required=False),
    ):
        command = decorate(command)
    return command


def configuration(config: Path | None, **overrides: Any) -> Config:
    """The configuration under what the command line says."""
    loaded = load_config(overrides, file=config)
    if overrides.get("model") is not None and loaded.app is not None:
        raise click.UsageError(
            f"--model is for the built-in agent, and {loaded.app} is served; leave one of them "
            f"out, or set the model in {loaded.app}."
        )
    return loaded


def start_logging(level: str) -> None:
    """Log to standard error, one line for each record and its traceback indented."""
    import logging

    from stepwell.cli.log_lines import FewOfAKind, OneLineFormatter

    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        from stepwell.errors import ConfigurationError

        raise ConfigurationError(f"log_level is {level!r}; give debug, info, warning or error")
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    handler.addFilter(FewOfAKind())
    logging.basicConfig(level=number, handlers=[handler], force=True)
    for chatty in ("alembic", "procrastinate", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(number, logging.WARNING))

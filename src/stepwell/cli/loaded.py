"""The application of commands that talk with agents, in this process and with its own worker."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import configuration, start_logging
from stepwell.errors import AgentNotFoundError, ConfigurationError

if TYPE_CHECKING:
    from stepwell.app.agent_app import AgentApp
    from stepwell.sessions.directory import RegisteredAgent

DEFAULT_DB = "sqlite:///stepwell.db"


def loaded_app(
    app: str | None, config: Path | None, log_level: str | None, **options: Any
) -> "AgentApp":
    """The application, configured to run executions here, on PostgreSQL as well."""
    from stepwell.app.loading import load_app
    from stepwell.cli.starting import unsigned

    configured = configuration(config, app=app, worker=True, **options)
    start_logging(log_level or "error")
    application = load_app(unsigned(configured))
    wanted = options.get("db")
    if wanted is not None and application.config.db != wanted:
        raise click.UsageError(
            f"{configured.app} names its own database; leave --db out, or let the app name none."
        )
    return application


def agent_that_ran(application: "AgentApp", name: str) -> "RegisteredAgent":
    """The agent of something stored, which need not have run with this application."""
    try:
        return application.agents.get(name)
    except AgentNotFoundError as error:
        raise ConfigurationError(f"{error}; name the app it ran with: module:name") from None


class Hints:
    """Commands that can be typed as they are, for the same configuration, application and
    database."""

    def __init__(
        self, application: "AgentApp", app: str | None, config: Path | None = None
    ) -> None:
        from stepwell.app.config import load_config, without_password

        db = application.config.db
        has_password = without_password(db) != db
        shown = "DATABASE" if has_password else shlex.quote(db)
        self._app = f" {app}" if app else ""
        file = "" if config is None else f" --config {shlex.quote(str(config))}"
        # Only what the configuration does not say by itself.
        self._where = file + ("" if load_config(file=config).db == db else f" --db {shown}")

    def why(self, execution_id: str) -> str:
        """Explains an execution."""
        return f"stepwell why {execution_id}{self._where}"

    def chat(self, session_id: str | None) -> str:
        """Goes on with a session."""
        return f"stepwell chat{self._app} --session {session_id}{self._where}"


def ending_lines(trace: Mapping[str, Any]) -> list[str]:
    """How an execution ended, in few lines; who wants all asks why."""
    from stepwell.cli.terminal import shown

    stop = trace["stop"]
    lines = [stop["headline"]]
    if stop["why"]:
        by = f"Decided by {stop['decided_by']}: " if stop["decided_by"] else ""
        lines.append(f"  {by}{stop['why']}")
    return [shown(line) for line in lines]

"""Loads the application for commands that run agents in this process, with its own worker."""

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


def load_application(
    app: str | None, config: Path | None, log_level: str | None, **options: Any
) -> "AgentApp":
    """Load the application, configured to run executions here, on PostgreSQL as well."""
    from stepwell.app.app_loader import load_app
    from stepwell.cli.process import with_random_secret

    configured = configuration(config, app=app, worker=True, **options)
    start_logging(log_level or "error")
    application = load_app(with_random_secret(configured))
    wanted = options.get("db")
    if wanted is not None and application.config.db != wanted:
        raise click.UsageError(
            f"{configured.app} sets its own database; omit --db, or remove db from the app."
        )
    return application


def agent_that_ran(application: "AgentApp", name: str) -> "RegisteredAgent":
    """Return the agent of a stored execution, which another application may have run."""
    try:
        return application.agents.get(name)
    except AgentNotFoundError as error:
        raise ConfigurationError(f"{error}; give the app that it ran with: module:name") from None


class Hints:
    """Commands that a user can paste, for the same configuration, application and database."""

    def __init__(
        self, application: "AgentApp", app: str | None, config: Path | None = None
    ) -> None:
        from stepwell.app.config import load_config, without_password

        db = application.config.db
        has_password = without_password(db) != db
        address = "DATABASE" if has_password else shlex.quote(db)
        self._app = f" {app}" if app else ""
        file = "" if config is None else f" --config {shlex.quote(str(config))}"
        # Only options that the configuration does not set.
        self._where = file + ("" if load_config(file=config).db == db else f" --db {address}")

    def why(self, execution_id: str) -> str:
        """Return the command that explains an execution."""
        return f"stepwell why {execution_id}{self._where}"

    def chat(self, session_id: str | None) -> str:
        """Return the command that continues a session."""
        return f"stepwell chat{self._app} --session {session_id}{self._where}"


def ending_lines(trace: Mapping[str, Any]) -> list[str]:
    """Summarize how an execution ended; ``stepwell why`` has the details."""
    from stepwell.cli.terminal import printable

    stop = trace["stop"]
    lines = [stop["headline"]]
    if stop["why"]:
        by = f"Decided by {stop['decided_by']}: " if stop["decided_by"] else ""
        lines.append(f"  {by}{stop['why']}")
    return [printable(line) for line in lines]

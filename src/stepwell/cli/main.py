"""``stepwell``: the app server, its workers and its keys. Commands are loaded when used."""

import sys
from importlib import import_module

import click

from stepwell.errors import ConfigurationError
from stepwell.sessions.errors import SessionError

CONFIGURATION_FAULT = 5
REFUSED = 1

EXTRA_OF = {
    **dict.fromkeys(("aiosqlite", "alembic", "fastapi", "jwt", "sqlalchemy", "uvicorn"), "server"),
    **dict.fromkeys(("procrastinate", "psycopg"), "postgres"),
}
"""Which extra brings a package."""


COMMANDS = {
    "serve": "Serve agents: the HTTP API, live channels and a worker.",
    "worker": "Work on executions, beside servers on the same database.",
    "keys": "Make, list and revoke API keys.",
}
"""Each is the ``command`` of the module of its name."""


class LazyCommands(click.Group):
    """A group whose commands are imported when one of them runs, so that ``--help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order in which they are used."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        return import_module(f"stepwell.cli.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyCommands)
@click.version_option(package_name="stepwell")
def stepwell() -> None:
    """Agents that run inside products: every step and every stop is explained.

    `stepwell serve` starts an agent application with its database in the current folder.
    """


def main() -> None:
    """Run the command line; a fault in the configuration ends it with code 5 and its text,
    a wish that can't be fulfilled with code 1."""
    try:
        stepwell()
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        extra = EXTRA_OF[error.name]
        click.echo(f"stepwell: {error}; install it with: pip install 'stepwell[{extra}]'", err=True)
        sys.exit(CONFIGURATION_FAULT)
    except ConfigurationError as error:
        click.echo(f"stepwell: {error}", err=True)
        sys.exit(CONFIGURATION_FAULT)
    except SessionError as error:
        click.echo(f"stepwell: {' '.join(str(error).split())}", err=True)
        sys.exit(REFUSED)

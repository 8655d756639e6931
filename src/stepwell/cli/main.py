"""``stepwell``: try, run, serve and explain agents. Commands are loaded when they are used."""

import errno
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from stepwell.cli.closed_pipes import forget_output
from stepwell.cli.exit_codes import ExitCode
from stepwell.cli.streams import make_usable
from stepwell.errors import AgentNotFoundError, ConfigurationError, SerializationError
from stepwell.sessions.errors import SessionError, StoreUnavailableError

EXTRA_OF = {
    **dict.fromkeys(("aiosqlite", "alembic", "cryptography", "fastapi", "jwt"), "server"),
    **dict.fromkeys(("sqlalchemy", "starlette", "uvicorn", "websockets"), "server"),
    "psycopg": "postgres",
}
"""Which extra brings a package."""


COMMANDS = {
    "demo": "Open the page with a scripted agent at work; needs no key.",
    "init": "Make a runnable project: agent, tool, skill, test.",
    "run": "Ask an agent one thing; the answer comes on standard output.",
    "chat": "Talk with an agent in the terminal.",
    "serve": "Serve agents: the page, the HTTP API, live channels and a worker.",
    "worker": "Work on executions, beside servers on the same database.",
    "sessions": "List conversations; show, rename, archive or close one.",
    "why": "Why did it stop? The decision after each step of an execution.",
    "trace": "All that an execution did: steps, tools, times, tokens, subagents.",
    "snapshots": "List the stored states of an execution; show one as whole JSON.",
    "replay": "Run a stored execution again, without its model and tools.",
    "tools": "The tools of an agent, as its model sees them.",
    "models": "Which models can be asked; test one.",
    "keys": "Make, list and revoke API keys.",
    "doctor": "Check this machine and say how to mend what is missing.",
}
"""Each is the ``command`` of the module of its name."""
_READING = {
    *(
        "sessions",
        "why",
        "trace",
        "snapshots",
        "replay",
        "tools",
        "models",
        "keys",
        "doctor",
        "init",
    )
}
"""Those whose result may be read in part."""


class LazyCommands(click.Group):
    """A group whose commands are imported when one of them runs, so that ``--help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order in which they are used."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported now; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = f"stepwell.cli.{cmd_name}"
        try:
            return import_module(module).command
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
            return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; one that is not there is answered with those like it."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            like = " or ".join(get_close_matches(name, COMMANDS, cutoff=0.5))
            if like:
                ctx.fail(f"No such command {name!r}; did you mean {like}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it. Who read enough of a result went away, as in ``| head``, and that is no fault;
        a conversation ends by that, which click tells by 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if ctx.invoked_subcommand not in _READING:
                raise
            forget_output()
            return ExitCode.COMPLETED

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stepwell")
def stepwell() -> None:
    """Agents that run inside products: every step and every stop is explained.

    \b
    stepwell run "What time is it?"    one question, with the built-in agent
    stepwell why                       why the newest execution stopped
    stepwell serve my_module:app       your own agents, for people and programs

    Exit codes: 0 completed, 1 failed, 2 wrong usage, 3 stopped at a limit, 4 paused, 5 wrong
    configuration, 130 cancelled.
    """


def main() -> None:
    """Run the command line; whatever a user can put right ends it with a text and a code."""
    make_usable()
    try:
        # Its result is None: commands that end with another code than 0 exit by themselves.
        code = stepwell.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        click.echo("", err=True)
        sys.exit(ExitCode.CANCELLED)
    except ModuleNotFoundError as error:
        if error.name not in EXTRA_OF:
            raise
        extra = EXTRA_OF[error.name]
        _refuse(f"{error}; install it with: pip install 'stepwell[{extra}]'")
    except (
        ConfigurationError,
        AgentNotFoundError,
        SerializationError,
        StoreUnavailableError,
    ) as error:
        _refuse(str(error))
    except SessionError as error:
        _refuse(" ".join(str(error).split()), ExitCode.FAILED)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _is_folder_gone():
            _refuse("the current folder is gone; go to another one")
        if error.filename is not None or error.errno not in _NOT_WRITTEN:
            raise
        forget_output()
        _refuse(f"the output can't be written: {error.strerror or error}", ExitCode.FAILED)
    else:
        sys.exit(code if isinstance(code, int) else ExitCode.COMPLETED)


def _is_folder_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _refuse(text: str, code: ExitCode = ExitCode.CONFIGURATION) -> None:
    try:
        click.echo(f"stepwell: {text}", err=True)
    except OSError:  # a full disk takes no text about it either
        forget_output()
    sys.exit(code)


_NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

"""The ``stepwell`` command: try, run, serve and explain agents. Commands are imported on use."""

import errno
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from stepwell.cli.exit_codes import ExitCode
from stepwell.cli.streams import forget_output, make_usable
from stepwell.errors import AgentNotFoundError, ConfigurationError, SerializationError
from stepwell.sessions.errors import SessionError, StoreUnavailableError

EXTRA_OF = {
    **dict.fromkeys(("aiosqlite", "alembic", "cryptography", "fastapi", "jwt"), "server"),
    **dict.fromkeys(("sqlalchemy", "starlette", "uvicorn", "websockets"), "server"),
    "psycopg": "postgres",
}
"""The extra that installs each optional package."""


COMMANDS = {
    "demo": "Open the page with a scripted agent at work; needs no key.",
    "init": "Create a runnable project: agent, tool, skill and tests.",
    "run": "Send one prompt to an agent and print the answer.",
    "chat": "Chat with an agent in the terminal.",
    "serve": "Serve agents: web page, HTTP API, live channels and a worker.",
    "worker": "Run executions for servers on the same database.",
    "sessions": "List sessions; show, rename, archive or close one.",
    "why": "Explain why an execution stopped, with the decision after each step.",
    "trace": "Show everything an execution did: steps, tools, times, tokens, subagents.",
    "snapshots": "List the stored states of an execution; print one as JSON.",
    "replay": "Replay a stored execution without calling its model or tools.",
    "tools": "List the tools of an agent as its model sees them.",
    "models": "List the available models; test one.",
    "keys": "Create, list and revoke API keys.",
    "doctor": "Check this machine and explain how to fix problems.",
}
"""Each command is the object ``command`` of the module with its name."""
_MAY_BE_CUT = COMMANDS.keys() - {"demo", "run", "chat", "serve", "worker"}
"""Commands whose reader may stop early, as in ``| head``."""


class LazyCommands(click.Group):
    """A group that imports a command when it runs, so that ``--help`` is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the command names in the order of a typical workflow."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command, or None if there is no such command."""
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
        """Resolve the command; suggest similar names for an unknown one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            like = " or ".join(get_close_matches(name, COMMANDS, cutoff=0.5))
            if like:
                ctx.fail(f"No such command {name!r}; did you mean {like}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. A reader that closes the pipe early, such as ``head``, is no error for a
        command that only prints a result; it ends a conversation with exit code 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if ctx.invoked_subcommand not in _MAY_BE_CUT:
                raise
            forget_output()
            return ExitCode.COMPLETED

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stepwell")
def stepwell() -> None:
    """Run tool-calling agents inside products, with every step and stop explained.

    \b
    stepwell run "What time is it?"    ask the built-in agent
    stepwell why                       explain why the newest execution stopped
    stepwell serve my_module:app       serve your own agents

    Exit codes: 0 completed, 1 failed, 2 usage error, 3 stopped at a limit, 4 paused, 5
    configuration error, 130 cancelled.
    """


def main() -> None:
    """Run the command line. Errors that the user can fix end it with a message and an exit code."""
    make_usable()
    try:
        # Commands that end with a code other than 0 call sys.exit themselves.
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
            _refuse("the current folder no longer exists; change to another one")
        if error.filename is not None or error.errno not in _NOT_WRITTEN:
            raise
        forget_output()
        _refuse(f"can't write the output: {error.strerror or error}", ExitCode.FAILED)
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
    except OSError:  # for example, the disk is full
        forget_output()
    sys.exit(code)


_NOT_WRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

"""What the exit code of a command says; the same for all commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended.

    >>> ExitCode.PAUSED == 4
    True
    """

    COMPLETED = 0
    FAILED = 1
    """The execution failed, or what was asked for can't be done."""
    USAGE = 2
    """The command line itself was wrong."""
    LIMIT = 3
    """The execution was stopped, by a limit or a guard."""
    PAUSED = 4
    """The execution waits for an answer, an approval or more budget."""
    CONFIGURATION = 5
    """The configuration, the application or the database can't be used."""
    CANCELLED = 130
    """Somebody ended it: Ctrl-C, SIGTERM, or a wish to cancel the execution."""


_AFTER = {
    "completed": ExitCode.COMPLETED,
    "failed": ExitCode.FAILED,
    "stopped": ExitCode.LIMIT,
    "paused": ExitCode.PAUSED,
    "cancelled": ExitCode.CANCELLED,
}


def code_after(status: str) -> ExitCode:
    """The code for an execution that came to rest in that status.

    >>> code_after("stopped").name
    'LIMIT'
    """
    return _AFTER.get(status, ExitCode.FAILED)

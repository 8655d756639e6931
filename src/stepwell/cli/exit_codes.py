"""Exit codes, the same for all commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended.

    >>> ExitCode.PAUSED == 4
    True
    """

    COMPLETED = 0
    FAILED = 1
    """The execution failed, or the request can't be fulfilled."""
    USAGE = 2
    """The command line is invalid."""
    LIMIT = 3
    """A limit or a guard stopped the execution."""
    PAUSED = 4
    """The execution waits for an answer, an approval or more budget."""
    CONFIGURATION = 5
    """The configuration, the application or the database is unusable."""
    CANCELLED = 130
    """Ctrl-C, SIGTERM or a cancel request ended it."""


_AFTER = {
    "completed": ExitCode.COMPLETED,
    "failed": ExitCode.FAILED,
    "stopped": ExitCode.LIMIT,
    "paused": ExitCode.PAUSED,
    "cancelled": ExitCode.CANCELLED,
}


def code_after(status: str) -> ExitCode:
    """Return the exit code for the final status of an execution.

    >>> code_after("stopped").name
    'LIMIT'
    """
    return _AFTER.get(status, ExitCode.FAILED)

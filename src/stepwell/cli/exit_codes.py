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


COMPLETED = ExitCode.COMPLETED
FAILED = ExitCode.FAILED
USAGE = ExitCode.USAGE
LIMIT = ExitCode.LIMIT
PAUSED = ExitCode.PAUSED
CONFIGURATION = ExitCode.CONFIGURATION
CANCELLED = ExitCode.CANCELLED

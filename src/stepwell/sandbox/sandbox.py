"""What a sandbox is to those who run commands in one, and what comes of a command."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from stepwell.sandbox.policy import ExecutionPolicy


class Channel(StrEnum):
    """Which output of a command."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Ending(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    IDLE = "idle"
    """It gave no output for longer than the policy allows."""


OutputListener = Callable[[Channel, str], None]


class SandboxResult(Struct, frozen=True, kw_only=True):
    """What a command said and how it ended.

    ``stdout_bytes`` and ``stderr_bytes`` count all output. Of more than the policy keeps,
    ``stdout`` and ``stderr`` are the last part.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    ending: Ending = Ending.EXITED
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    duration_seconds: float = 0.0
    out_of_memory: bool = False
    """Whether a process of it was ended for the memory that they all used, as far as is known."""


class Sandbox(Protocol):
    """Runs commands under a policy, or refuses: it never runs one with less confinement.

    Whatever ends the command, also a cancellation of ``run``, no process it started lives on.
    """

    @property
    def name(self) -> str:
        """What to call it in messages."""
        ...

    async def run(
        self,
        argv: Sequence[str],
        policy: ExecutionPolicy,
        *,
        stdin: bytes = b"",
        on_output: OutputListener | None = None,
    ) -> SandboxResult:
        """Run a command to its end.

        A program that does not exist gives exit code 127 and a text. Raises ``SandboxError`` if
        this sandbox can't enforce a part of the policy, or does not work here.
        """
        ...

"""The sandbox protocol and the result of a command."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from stepwell.sandbox.policy import ExecutionPolicy


class Channel(StrEnum):
    """An output stream of a command."""

    STDOUT = "stdout"
    STDERR = "stderr"


class Ending(StrEnum):
    """How a command ended."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    IDLE = "idle"
    """Killed after no output for longer than the policy allows."""


OutputListener = Callable[[Channel, str], None]


class SandboxResult(Struct, frozen=True, kw_only=True):
    """The output of a command and how it ended.

    ``stdout_bytes`` and ``stderr_bytes`` count all output. If it exceeds the policy's limit,
    ``stdout`` and ``stderr`` hold the end.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    ending: Ending = Ending.EXITED
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    duration_seconds: float = 0.0
    out_of_memory: bool = False
    """Whether one of its processes was killed for their total memory use, as far as known."""


class Sandbox(Protocol):
    """Runs commands under a policy, or refuses; never runs one with less confinement.

    However the command ends, even by a cancellation of ``run``, no process it started survives.
    """

    @property
    def name(self) -> str:
        """The name for messages."""
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

        A missing program gives exit code 127 and a text. Raises ``SandboxError`` if this sandbox
        can't enforce a part of the policy, or does not work here.
        """
        ...

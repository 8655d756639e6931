"""What a command may do: where it works, what it may read and write, and how much it may use."""

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

from msgspec import Struct

from stepwell.errors import ConfigurationError

DEFAULT_TIMEOUT = 120.0
DEFAULT_MAX_OUTPUT = 1_000_000
MEBIBYTE = 1024 * 1024


class ExecutionPolicy(Struct, frozen=True, kw_only=True):
    """The limits of whatever a sandbox runs; None means no limit of that kind.

    The command works in ``directory`` and may write there, and in ``writable``; it may read those,
    ``readable`` and the system's programs and libraries, and nothing else. It sees only
    ``environment`` and the variables that ``inherited_environment`` names.

    >>> policy = ExecutionPolicy.in_("/tmp", timeout=5, network=True)
    >>> policy.timeout, policy.network, policy.max_processes
    (5, True, 256)
    """

    directory: Path
    timeout: float | None = DEFAULT_TIMEOUT
    """Seconds until the command and all it started are ended."""
    idle_timeout: float | None = None
    """Seconds without output until they are ended."""
    max_memory: int | None = 1024 * MEBIBYTE
    """Bytes."""
    max_processes: int | None = 256
    network: bool = False
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = {}
    inherited_environment: tuple[str, ...] = ()
    """Names of variables that are passed on from this process; those of provider keys never are."""
    max_output: int = DEFAULT_MAX_OUTPUT
    """Bytes kept of each of the two outputs; of more, the last are kept."""

    @classmethod
    def in_(
        cls,
        directory: str | PathLike[str],
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
        idle_timeout: float | None = None,
        max_memory: int | None = 1024 * MEBIBYTE,
        max_processes: int | None = 256,
        network: bool = False,
        readable: Iterable[str | PathLike[str]] = (),
        writable: Iterable[str | PathLike[str]] = (),
        environment: Mapping[str, str] | None = None,
        inherited_environment: Iterable[str] = (),
        max_output: int = DEFAULT_MAX_OUTPUT,
    ) -> "ExecutionPolicy":
        """The policy for commands that work in this directory, its paths resolved."""
        root = Path(directory).resolve()
        if not root.is_dir():
            raise ConfigurationError(f"{root} is not a directory; give one that exists")
        return cls(
            directory=root,
            timeout=timeout,
            idle_timeout=idle_timeout,
            max_memory=max_memory,
            max_processes=max_processes,
            network=network,
            readable=tuple(Path(path).resolve() for path in readable),
            writable=tuple(Path(path).resolve() for path in writable),
            environment=dict(environment or {}),
            inherited_environment=tuple(inherited_environment),
            max_output=max_output,
        )

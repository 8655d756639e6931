"""What a command may do: where it works, what it may read and write, and how much it may use."""

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.parameters import check_path
from stepwell.sandbox.host.names import HIDDEN_NAMES, PROTECTED_NAMES, check_names
from stepwell.sandbox.secret_names import names_a_secret

DEFAULT_TIMEOUT = 120.0
DEFAULT_MAX_OUTPUT = 1_000_000
MEBIBYTE = 1024 * 1024
MOST_MEMORY, MOST_PROCESSES = 2**63 - 1, 4_000_000
"""Linux counts no further: some larger limits it refuses, others it takes for very small ones."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KERNELS_OWN = tuple(Path(path) for path in ("/proc", "/sys", "/dev"))
_SYSTEMS_OWN = tuple(
    Path(path)
    for path in ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/run", "/sbin", "/usr")
)


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
    """Bytes: of all its processes together, but of each where neither sandlock nor a container runs
    it and no control group can be made."""
    max_processes: int | None = 256
    """How many run at once, at most; threads count as well."""
    network: bool = False
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = {}
    inherited_environment: tuple[str, ...] = ()
    """Names of variables that are passed on from this process; those of provider keys never are."""
    max_output: int = DEFAULT_MAX_OUTPUT
    """Bytes kept of each of the two outputs; of more, the last are kept."""
    protected: tuple[str, ...] = PROTECTED_NAMES
    """Names at the top of ``directory`` and ``writable`` that are read-only where they exist."""
    protect_host: bool = True
    """Whether what this process executes and imports is read-only too; else a command that can
    write it can leave the sandbox by way of this process."""
    hidden: tuple[str, ...] = HIDDEN_NAMES
    """Names at the top of ``directory``, ``writable`` and ``readable`` that can neither be read nor
    written where they exist."""

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
        protected: Iterable[str] = PROTECTED_NAMES,
        protect_host: bool = True,
        hidden: Iterable[str] = HIDDEN_NAMES,
    ) -> "ExecutionPolicy":
        """The policy for commands that work in this directory, its paths resolved."""
        root = _resolved(directory, "directory")
        if not root.is_dir():
            raise ConfigurationError(f"{root} is not a directory; give one that exists")
        return cls(
            directory=root,
            timeout=timeout,
            idle_timeout=idle_timeout,
            max_memory=max_memory,
            max_processes=max_processes,
            network=network,
            readable=_existing(readable, "readable"),
            writable=_existing(writable, "writable"),
            environment=dict(environment or {}),
            inherited_environment=_names(inherited_environment),
            max_output=max_output,
            protected=check_names(protected),
            protect_host=protect_host,
            hidden=check_names(hidden, "hidden"),
        )

    def __post_init__(self) -> None:
        _check_paths(self)
        for name in ("timeout", "idle_timeout"):
            _check_number(name, getattr(self, name), (int, float), "a positive number of seconds")
        _check_number("max_memory", self.max_memory, (int,), "a positive number of bytes")
        _check_number("max_processes", self.max_processes, (int,), "a positive number")
        _check_countable("max_memory", self.max_memory, MOST_MEMORY)
        _check_countable("max_processes", self.max_processes, MOST_PROCESSES)
        if type(self.max_output) is not int or self.max_output < 0:
            raise ConfigurationError(
                f"max_output is a number of bytes, at least 0, not {self.max_output!r}"
            )
        for name in ("network", "protect_host"):
            if type(getattr(self, name)) is not bool:
                raise ConfigurationError(f"{name} is True or False, not {getattr(self, name)!r}")
        check_names(self.protected)
        check_names(self.hidden, "hidden")
        for name, value in self.environment.items():
            _check_variable(name, value)
        for name in self.inherited_environment:
            if names_a_secret(_check_name(name, "inherited_environment")):
                raise ConfigurationError(
                    f"inherited_environment names {name}, which looks like a secret, and commands "
                    "never inherit those; if one really needs it, pass its value in environment="
                )

    def __repr__(self) -> str:
        """All of it but the values of ``environment``, which may be secrets."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        shown["environment"] = sorted(self.environment)
        return f"ExecutionPolicy({', '.join(f'{name}={it!r}' for name, it in shown.items())})"


def _resolved(path: str | PathLike[str], part: str) -> Path:
    try:
        return Path(check_path(path, part)).expanduser().resolve()
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        raise ConfigurationError(f"{part} has {path!r}, which is not a path: {error}") from error


def _existing(paths: Iterable[str | PathLike[str]], part: str) -> tuple[Path, ...]:
    if isinstance(paths, str | PathLike):
        raise ConfigurationError(f"{part} is a list of paths; write {part}=[{str(paths)!r}]")
    resolved = tuple(_resolved(path, part) for path in paths)
    for path in resolved:
        if not path.exists():
            raise ConfigurationError(f"{part} names {path}, which does not exist; make it first")
    return resolved


def _names(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ConfigurationError(
            f"inherited_environment is a list of names; write inherited_environment=[{names!r}]"
        )
    return tuple(names)


def _check_paths(policy: ExecutionPolicy) -> None:
    """What would open the whole system is never meant, so it is refused whatever the sandbox."""
    for part, path in (
        ("directory", policy.directory),
        *(("writable", path) for path in policy.writable),
        *(("readable", path) for path in policy.readable),
    ):
        if not isinstance(path, Path) or not path.is_absolute():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{part} has {path!r}, which is not an absolute path; ExecutionPolicy.in_ makes one"
            )
        own = path == Path("/") or any(path == top or top in path.parents for top in _KERNELS_OWN)
        if own or (part != "readable" and path in _SYSTEMS_OWN):
            raise ConfigurationError(
                f"{part} has {path}, which would open the system itself to commands; give the "
                "folder they are to work in"
            )


def _check_number(
    name: str, value: object, kinds: tuple[type[int] | type[float], ...], wanted: str
) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < float("inf"):
        raise ConfigurationError(f"{name} is {wanted}, or None for no limit, not {value!r}")


def _check_countable(name: str, value: int | None, most: int) -> None:
    if value is not None and value > most:
        raise ConfigurationError(f"{name} is at most {most}, or None for no limit, not {value!r}")


def _check_variable(name: object, value: object) -> None:
    """Says nothing of the value: it may be a secret."""
    checked = _check_name(name, "environment")
    if not isinstance(value, str):
        raise ConfigurationError(
            f"environment[{checked!r}] is a {type(value).__name__}; a variable's value is a text"
        )
    if "\0" in value:
        raise ConfigurationError(f"environment[{checked!r}] holds a NUL, which no variable can")
    try:
        value.encode()
    except UnicodeEncodeError:
        # Not chained: that error shows the value.
        raise ConfigurationError(
            f"environment[{checked!r}] holds half of a character; give a text that is UTF-8"
        ) from None


def _check_name(name: object, part: str) -> str:
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise ConfigurationError(
            f"{part} names {name!r}, which is no variable's name: letters, digits and underscores, "
            "no digit first"
        )
    return name

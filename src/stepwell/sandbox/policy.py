"""The execution policy: what a command may read, write, reach and use."""

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.parameters import check_flag, check_integer, check_path, check_seconds, check_texts
from stepwell.sandbox.host.names import HIDDEN_NAMES, PROTECTED_NAMES, check_names
from stepwell.secrets import is_secret_variable
from stepwell.text import HALF_CHARACTER, is_encodable

DEFAULT_TIMEOUT = 120.0
DEFAULT_MAX_OUTPUT = 1_000_000
MEBIBYTE = 1024 * 1024
MAX_MEMORY, MAX_PROCESSES = 2**63 - 1, 4_000_000
"""Linux limits. Larger values are refused or silently treated as very small ones."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KERNEL_PATHS = tuple(Path(path) for path in ("/proc", "/sys", "/dev"))
_SYSTEM_PATHS = tuple(
    Path(path)
    for path in ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/run", "/sbin", "/usr")
)


class ExecutionPolicy(Struct, frozen=True, kw_only=True):
    """The limits of a command in a sandbox; None means no limit.

    The command starts in ``directory`` and may write there and in ``writable``. It may read those
    paths, ``readable`` and the system's programs and libraries, and nothing else. Its environment
    has only ``environment`` and the variables named in ``inherited_environment``.

    >>> policy = ExecutionPolicy.in_("/tmp", timeout=5, network=True)
    >>> policy.timeout, policy.network, policy.max_processes
    (5, True, 256)
    """

    directory: Path
    timeout: float | None = DEFAULT_TIMEOUT
    """Seconds until the command and all its processes are killed."""
    idle_timeout: float | None = None
    """Seconds without output until they are killed."""
    max_memory: int | None = 1024 * MEBIBYTE
    """Bytes, for all its processes together. Applies to each process alone if neither sandlock nor
    a container runs the command and no control group can be created."""
    max_processes: int | None = 256
    """Processes that run at the same time; threads count as well."""
    network: bool = False
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    environment: Mapping[str, str] = {}
    inherited_environment: tuple[str, ...] = ()
    """Names of variables to inherit from this process; secrets are refused."""
    max_output: int = DEFAULT_MAX_OUTPUT
    """Bytes kept of each output; of a longer output, the end is kept."""
    protected: tuple[str, ...] = PROTECTED_NAMES
    """Names directly in ``directory`` and ``writable`` that are read-only if they exist."""
    protect_host: bool = True
    """Whether what this process executes and imports is read-only too. Otherwise a command that can
    write it can escape the sandbox through this process."""
    hidden: tuple[str, ...] = HIDDEN_NAMES
    """Names directly in ``directory``, ``writable`` and ``readable`` that can be neither read nor
    written if they exist."""

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
        """Make a policy for commands in this directory, with resolved paths."""
        root = _resolve(directory, "directory")
        if not root.is_dir():
            raise ConfigurationError(f"{root} is not an existing directory")
        return cls(
            directory=root,
            timeout=timeout,
            idle_timeout=idle_timeout,
            max_memory=max_memory,
            max_processes=max_processes,
            network=network,
            readable=_resolve_existing(readable, "readable"),
            writable=_resolve_existing(writable, "writable"),
            environment=dict(environment or {}),
            inherited_environment=check_texts(inherited_environment, "inherited_environment"),
            max_output=max_output,
            protected=check_names(protected),
            protect_host=protect_host,
            hidden=check_names(hidden, "hidden"),
        )

    def __post_init__(self) -> None:
        _check_paths(self)
        for name in ("timeout", "idle_timeout"):
            if getattr(self, name) is not None:
                check_seconds(getattr(self, name), name)
        for name, maximum in (("max_memory", MAX_MEMORY), ("max_processes", MAX_PROCESSES)):
            _check_limit(name, getattr(self, name), maximum)
        check_integer(self.max_output, "max_output", least=0)
        check_flag(self.network, "network")
        check_flag(self.protect_host, "protect_host")
        check_names(self.protected)
        check_names(self.hidden, "hidden")
        for name, value in self.environment.items():
            _check_variable(name, value)
        for name in self.inherited_environment:
            if is_secret_variable(_check_name(name, "inherited_environment")):
                raise ConfigurationError(
                    f"inherited_environment names {name}, which looks like a secret, and commands "
                    "never inherit secrets; if a command needs it, pass its value in environment="
                )

    def __repr__(self) -> str:
        """Show everything except the values of ``environment``, which may be secrets."""
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        shown["environment"] = sorted(self.environment)
        return f"ExecutionPolicy({', '.join(f'{name}={it!r}' for name, it in shown.items())})"


def _resolve(path: str | PathLike[str], part: str) -> Path:
    try:
        return Path(check_path(path, part)).expanduser().resolve()
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        raise ConfigurationError(f"{part} has {path!r}, which is not a path: {error}") from error


def _resolve_existing(paths: Iterable[str | PathLike[str]], part: str) -> tuple[Path, ...]:
    if isinstance(paths, str | PathLike):
        raise ConfigurationError(f"{part} must be a list of paths; write {part}=[{str(paths)!r}]")
    resolved = tuple(_resolve(path, part) for path in paths)
    for path in resolved:
        if not path.exists():
            raise ConfigurationError(f"{part} names {path}, which does not exist; create it first")
    return resolved


def _check_paths(policy: ExecutionPolicy) -> None:
    """Refuse paths that would open the whole system, for every sandbox."""
    for part, path in (
        ("directory", policy.directory),
        *(("writable", path) for path in policy.writable),
        *(("readable", path) for path in policy.readable),
    ):
        if not isinstance(path, Path) or not path.is_absolute():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{part} has {path!r}, which is not an absolute path; use ExecutionPolicy.in_"
            )
        is_kernel_path = path == Path("/") or any(
            path == top or top in path.parents for top in _KERNEL_PATHS
        )
        if is_kernel_path or (part != "readable" and path in _SYSTEM_PATHS):
            raise ConfigurationError(
                f"{part} has {path}, which would open the system itself to commands; use the "
                "directory they should work in"
            )


def _check_limit(name: str, value: int | None, maximum: int) -> None:
    if value is not None and check_integer(value, name, least=1) > maximum:
        raise ConfigurationError(
            f"{name} must be at most {maximum}, or None for no limit, got {value!r}"
        )


def _check_variable(name: object, value: object) -> None:
    """Check a variable. Errors never show the value, which may be secret."""
    checked = _check_name(name, "environment")
    if not isinstance(value, str):
        raise ConfigurationError(
            f"environment[{checked!r}] is a {type(value).__name__}; a variable's value must be text"
        )
    if "\0" in value:
        raise ConfigurationError(f"environment[{checked!r}] contains a NUL character")
    if not is_encodable(value):
        raise ConfigurationError(f"environment[{checked!r}] contains {HALF_CHARACTER}")


def _check_name(name: object, part: str) -> str:
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise ConfigurationError(
            f"{part} names {name!r}, which is not a valid name of a variable: use letters, digits "
            "and underscores, no digit first"
        )
    return name

"""Which paths no tool may write: what this process executes or imports, wherever it lies, and the
protected names. One definition for sandboxes and file tools.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from stepwell.errors import SandboxError
from stepwell.sandbox.environment import PATH, path_entries
from stepwell.sandbox.policy import ExecutionPolicy

_PACKAGE = Path(__file__).parents[2]
_SHARED_PREFIXES = ("/", "/usr", "/usr/local", "/opt")
_MAX_LINKS = 40


class HostPath(Struct, frozen=True):
    """A path that this process executes or imports from."""

    path: str
    use: str
    """What it is to this process, for messages."""
    is_tree: bool = True
    """Whether what lies in its subdirectories counts as well."""


class Protection(Struct, frozen=True):
    """What must stay as it is within the writable paths of a policy."""

    read_only: tuple[Path, ...] = ()
    pinned: tuple[Path, ...] = ()
    """The directories between a writable path and what is read-only in it: as mount points of
    their own they can't be moved away."""


def host_paths() -> Iterator[HostPath]:
    """Every path that this process may execute or import from, but for ``sys.path`` entries of the
    application, which the import guard covers."""
    yield HostPath(str(_PACKAGE), "the package stepwell")
    prefixes = (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)
    for prefix in dict.fromkeys(prefixes):
        if prefix in _SHARED_PREFIXES:
            yield HostPath(f"{prefix}/lib/python{_version()}", "Python's library")
            yield HostPath(f"{prefix}/lib", "libraries of Python", is_tree=False)
            continue
        yield HostPath(prefix, "the Python environment of this process", is_tree=False)
        for part in ("bin", "lib", "lib64"):
            yield HostPath(f"{prefix}/{part}", "the Python environment of this process")
    for entry in dict.fromkeys(sys.path):
        if os.path.basename(entry) in ("site-packages", "dist-packages"):
            yield HostPath(entry, "where this Python imports packages from")
    for entry in dict.fromkeys((*path_entries(), *PATH.split(":"))):
        yield HostPath(os.path.abspath(entry), "on the PATH of this process", is_tree=False)


def protect(policy: ExecutionPolicy) -> Protection:
    """What a sandbox keeps read-only. Raises ``SandboxError`` for what can't be kept so."""
    roots = tuple(dict.fromkeys((policy.directory, *policy.writable)))
    found: dict[Path, None] = {}
    if policy.protect_host:
        found.update(dict.fromkeys(_protect_host(roots)))
    for root in roots:
        for pattern in policy.protected:
            for path in _existing(root, pattern.split("/")):
                if path not in roots and any(_is_inside(path, other) for other in roots):
                    found[path] = None
    read_only = tuple(path for path in found if not any(_is_inside(path, other) for other in found))
    pinned = {
        folder
        for path in read_only
        for folder in path.parents
        if folder not in roots and _is_writable(folder, roots, policy.readable)
    }
    return Protection(read_only, tuple(sorted(pinned)))


def hidden_paths(policy: ExecutionPolicy) -> tuple[Path, ...]:
    """What commands must not read in the paths of a policy, as far as it exists."""
    roots = tuple(dict.fromkeys((policy.directory, *policy.writable, *policy.readable)))
    found = (
        path
        for root in roots
        for pattern in policy.hidden
        for path in _existing(root, pattern.split("/"))
        if path not in roots and any(_is_inside(path, other) for other in roots)
    )
    return tuple(dict.fromkeys(found))


def host_path_of(path: str) -> HostPath | None:
    """The host path that a real path lies in, if any."""
    for host in host_paths():
        real = os.path.realpath(host.path)
        if path == real or (host.is_tree and path.startswith(f"{real}/")):
            return host
        if not host.is_tree and os.path.dirname(path) == real:
            return host
    return None


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _protect_host(roots: tuple[Path, ...]) -> list[Path]:
    inside: list[Path] = []
    unsafe: list[tuple[HostPath, Path, str]] = []
    for host in host_paths():
        real, links = _follow(host.path)
        for root in roots:
            is_file_of = root.parent == real and not root.is_dir()
            if root == real or is_file_of or (host.is_tree and _is_inside(root, real)):
                raise _refusal(host, root, "is the same, or lies in it")
            unsafe += [(host, link, "is a symlink") for link in links if _is_inside(link, root)]
            if not _is_inside(real, root):
                continue
            if real.exists():
                inside.append(real)
            else:
                unsafe.append((host, real, "does not exist yet"))
    for host, path, why in unsafe:
        if not any(path == kept or _is_inside(path, kept) for kept in inside):
            raise _refusal(host, path, f"{why}, and a command could put another in its place")
    return inside


def _refusal(host: HostPath, path: Path, why: str) -> SandboxError:
    return SandboxError(
        f"commands could change what this process executes: {host.path} is {host.use}, and {path} "
        f"{why}; work in another directory, take it off the PATH or start Python by its real path, "
        "or set protect_host=False in the policy to allow it"
    )


def _follow(path: str) -> tuple[Path, list[Path]]:
    """Where a path leads, and the symlinks on the way."""
    ahead = [name for name in reversed(path.split("/")) if name]
    here = "/"
    links: list[Path] = []
    while ahead:
        name = ahead.pop()
        if name in (".", ".."):
            here = os.path.dirname(here) if name == ".." else here
            continue
        step = os.path.join(here, name)
        try:
            target = os.readlink(step)
        except OSError:  # no symlink, or not there
            here = step
            continue
        links.append(Path(step))
        if len(links) > _MAX_LINKS:
            break
        here = "/" if target.startswith("/") else here
        ahead += [part for part in reversed(target.split("/")) if part]
    return Path(here), links


def _existing(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The real paths in a folder that match, or the file that is in the way of a match."""
    first, *rest = parts
    names = [first]
    if any(mark in first for mark in "*?["):
        try:
            names = [name for name in os.listdir(folder) if fnmatchcase(name, first)]
        except OSError:
            names = []
    for name in names:
        path = folder / name
        if not os.path.lexists(path):
            continue
        real = Path(os.path.realpath(path))
        if rest and real.is_dir():
            yield from _existing(real, rest)
        elif real.exists():
            yield real


def _is_writable(folder: Path, roots: Iterable[Path], readable: Iterable[Path]) -> bool:
    """Whether the nearest path of the policy that a folder lies in is a writable one."""

    def nearest(paths: Iterable[Path]) -> int:
        inside = (path for path in paths if path == folder or _is_inside(folder, path))
        return max((len(path.parts) for path in inside), default=-1)

    return nearest(roots) > nearest(readable)


def _is_inside(path: Path, folder: Path) -> bool:
    return folder in path.parents

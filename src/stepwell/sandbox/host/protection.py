"""Which paths no tool may write: what this process executes or imports, and protected names. Used
by sandboxes and file tools.
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
    """What this process uses it for, in messages."""
    is_tree: bool = True
    """Whether subdirectories count as well."""


class Protection(Struct, frozen=True):
    """What must not change within the writable paths of a policy."""

    read_only: tuple[Path, ...] = ()
    pinned: tuple[Path, ...] = ()
    """The directories between a writable path and a read-only path in it. As separate mount points
    they can't be moved away."""


def host_paths() -> Iterator[HostPath]:
    """Yield every path that this process may execute or import from, except the application's
    ``sys.path`` entries, which the import guard covers."""
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
    """Return what a sandbox keeps read-only. Raises ``SandboxError`` if that is impossible."""
    roots = tuple(dict.fromkeys((policy.directory, *policy.writable)))
    found: dict[Path, None] = {}
    if policy.protect_host:
        found.update(dict.fromkeys(_protect_host(roots)))
    for root in roots:
        for pattern in policy.protected:
            for path in _matching_paths(root, pattern.split("/")):
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
    """Return the existing paths within a policy's paths that commands must not read."""
    roots = tuple(dict.fromkeys((policy.directory, *policy.writable, *policy.readable)))
    found = (
        path
        for root in roots
        for pattern in policy.hidden
        for path in _matching_paths(root, pattern.split("/"))
        if path not in roots and any(_is_inside(path, other) for other in roots)
    )
    return tuple(dict.fromkeys(found))


def host_path_of(path: str) -> HostPath | None:
    """Return the host path that contains a real path, or None."""
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
        if not any(path == protected or _is_inside(path, protected) for protected in inside):
            raise _refusal(host, path, f"{why}, and a command could put another in its place")
    return inside


def _refusal(host: HostPath, path: Path, why: str) -> SandboxError:
    return SandboxError(
        f"commands could change what this process executes: {host.path} is {host.use}, and {path} "
        f"{why}; work in another directory, take it off the PATH or start Python by its real path, "
        "or set protect_host=False in the policy to allow it"
    )


def _follow(path: str) -> tuple[Path, list[Path]]:
    """Resolve a path. Return its target and the symlinks on the way."""
    queue = [name for name in reversed(path.split("/")) if name]
    current = "/"
    links: list[Path] = []
    while queue:
        name = queue.pop()
        if name in (".", ".."):
            current = os.path.dirname(current) if name == ".." else current
            continue
        step = os.path.join(current, name)
        try:
            target = os.readlink(step)
        except OSError:  # missing, or not a symlink
            current = step
            continue
        links.append(Path(step))
        if len(links) > _MAX_LINKS:
            break
        current = "/" if target.startswith("/") else current
        queue += [part for part in reversed(target.split("/")) if part]
    return Path(current), links


def _matching_paths(folder: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the real paths in a folder that match, or a file that blocks a match."""
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
            yield from _matching_paths(real, rest)
        elif real.exists():
            yield real


def _is_writable(folder: Path, roots: Iterable[Path], readable: Iterable[Path]) -> bool:
    """Return whether the nearest path of the policy that contains a folder is writable."""

    def nearest(paths: Iterable[Path]) -> int:
        inside = (path for path in paths if path == folder or _is_inside(folder, path))
        return max((len(path.parts) for path in inside), default=-1)

    return nearest(roots) > nearest(readable)


def _is_inside(path: Path, folder: Path) -> bool:
    return folder in path.parents

"""Control groups, versions 1 and 2, which limit memory and processes of a command and all it
starts. One group per command, removed with it.
"""

import asyncio
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from stepwell.errors import SandboxError
from stepwell.sandbox.policy import ExecutionPolicy
from stepwell.sandbox.sandbox import SandboxResult

MEMORY, PIDS = "memory", "pids"
REMOVAL_ROUNDS = 400
ROUND_SECONDS = 0.005

_PARTS = {MEMORY: "max_memory", PIDS: "max_processes"}
_NAME = re.compile(r"stepwell-(?P<namespace>\d+)-(?P<pid>\d+)-(?P<start>\d+)-\d+")
_numbers = count(1)


class ControlGroup:
    """The group of one command, with the limits that can be set on this machine."""

    def __init__(self, folders: tuple[Path, ...], enforced: frozenset[str]) -> None:
        self._folders = folders
        self.enforced = enforced
        """Names of the policy's fields that it enforces."""
        self.out_of_memory = False
        """Whether the kernel killed a process for its memory use; known after the removal."""

    @property
    def join_files(self) -> tuple[Path, ...]:
        """The files to which a process writes its pid to join the group."""
        return tuple(folder / "cgroup.procs" for folder in self._folders)

    def add(self, pid: int) -> None:
        """Add a process, and whatever it starts from then on."""
        for file in self.join_files:
            try:
                _write(file, str(pid))
            except OSError as error:
                raise SandboxError(
                    f"the command can't be put under its limits ({file}: {error.strerror}); set "
                    "max_memory=None and max_processes=None to run without them"
                ) from error

    def remove_empty(self) -> None:
        """Remove it before any process joined."""
        for folder in self._folders:
            _remove(folder)

    async def remove(self) -> None:
        """Kill the processes in it and remove it."""
        self.out_of_memory = any(_oom_kills(folder) for folder in self._folders)
        for folder in self._folders:
            for _ in range(REMOVAL_ROUNDS):
                if _remove(folder):
                    break
                await asyncio.sleep(ROUND_SECONDS)


def with_memory_outcome(result: SandboxResult, group: ControlGroup | None) -> SandboxResult:
    """Set ``out_of_memory`` on the result if the removed group had it."""
    ran_out = group is not None and group.out_of_memory
    return replace(result, out_of_memory=True) if ran_out else result


def control_group(policy: ExecutionPolicy, *, spare_processes: int = 0) -> ControlGroup | None:
    """Create a group with the limits of the policy; None if it has none, or none can be set.

    ``spare_processes`` is the number of processes that are the sandbox's own.
    """
    limits: dict[str, int] = {}
    if policy.max_memory is not None:
        limits[MEMORY] = policy.max_memory
    if policy.max_processes is not None:
        limits[PIDS] = policy.max_processes + spare_processes
    folders: list[Path] = []
    enforced: set[str] = set()
    try:
        for parent, controllers in _group_by_parent(limits):
            folder = parent / _new_name()
            folder.mkdir()
            folders.append(folder)
            for controller in controllers:
                _limit(folder, controller, limits[controller])
                enforced.add(_PARTS[controller])
    except OSError as error:
        for folder in folders:
            _remove(folder)
        raise SandboxError(
            f"a limit can't be set ({error.filename}: {error.strerror}); set max_memory=None and "
            "max_processes=None to run without limits"
        ) from error
    return ControlGroup(tuple(folders), frozenset(enforced)) if folders else None


def _group_by_parent(limits: Mapping[str, int]) -> Iterator[tuple[Path, list[str]]]:
    """Yield where to create groups and for which controllers; in version 2 one for all."""
    found: dict[Path, list[str]] = {}
    for controller in limits:
        parent = _parent(controller)
        if parent is not None:
            found.setdefault(parent, []).append(controller)
    yield from found.items()


@cache
def _parent(controller: str) -> Path | None:
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8")
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:
        return None
    parent = find_parent(controller, mounts, own)
    if parent is not None:
        _remove_leftovers(parent)
    return parent


def find_parent(controller: str, mounts: str, own: str) -> Path | None:
    """Find the folder in which this process may create groups with that controller.

    ``mounts`` and ``own`` are the content of the process's ``mountinfo`` and ``cgroup``. In version
    2 a group with processes can't have child groups with controllers, so the nearest ancestor that
    allows it is used.
    """
    found = _own_folder(controller, mounts, own)
    if found is None:
        return None
    top, folder, has_version_2 = found
    while not _accepts_groups(folder, controller if has_version_2 else None):
        if folder == top or not has_version_2:
            return None
        folder = folder.parent
    return folder


def _own_folder(controller: str, mounts: str, own: str) -> tuple[Path, Path, bool] | None:
    """Return the mount point, the group of this process, and whether it is version 2."""
    paths = {names: path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        root, top = fields.split()[3:5]
        kind, _, options = rest.split()[:3]
        if kind == "cgroup" and controller in options.split(","):
            path = next((p for names, p in paths.items() if controller in names.split(",")), None)
        elif kind == "cgroup2" and _has(Path(top), "cgroup.controllers", controller):
            path = paths.get("")
        else:
            continue
        if path is not None:
            inside = path.removeprefix(root if root != "/" else "").lstrip("/")
            folder = Path(top, inside)
            return Path(top), folder if folder.is_dir() else Path(top), kind == "cgroup2"
    return None


def _accepts_groups(folder: Path, controller: str | None) -> bool:
    if controller is not None and not _has(folder, "cgroup.subtree_control", controller):
        return False
    # Moving a process needs write access to its old and its new group.
    if not os.access(folder / "cgroup.procs", os.W_OK):
        return False
    trial = folder / _new_name()
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def _has(folder: Path, file: str, word: str) -> bool:
    try:
        return word in (folder / file).read_text(encoding="utf-8").split()
    except OSError:
        return False


def _limit(folder: Path, controller: str, value: int) -> None:
    if controller == PIDS:
        _write(folder / "pids.max", str(value))
        return
    has_version_2 = (folder / "memory.max").exists()
    _write(folder / ("memory.max" if has_version_2 else "memory.limit_in_bytes"), str(value))
    # Otherwise what does not fit would use swap space, if there is any.
    swap = folder / ("memory.swap.max" if has_version_2 else "memory.memsw.limit_in_bytes")
    if swap.exists():
        _write(swap, "0" if has_version_2 else str(value))


def _oom_kills(folder: Path) -> int:
    for file in ("memory.events", "memory.oom_control"):  # version 2, version 1
        with suppress(OSError):
            counts = (folder / file).read_text(encoding="ascii").split()
            return int(counts[counts.index("oom_kill") + 1]) if "oom_kill" in counts else 0
    return 0


def _remove(folder: Path) -> bool:
    """Kill the processes in a group, try to remove it, and return whether it is gone."""
    with suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text(encoding="utf-8").split():
            # Zero stands for a process outside our pid namespace; kill(0) would hit ourselves.
            if int(pid) > 0:
                os.kill(int(pid), signal.SIGKILL)
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _remove_leftovers(parent: Path) -> None:
    """Remove groups of Stepwell processes that died before they could."""
    namespace, pid, _ = _identity()
    for folder in parent.glob("stepwell-*"):
        name = _NAME.fullmatch(folder.name)
        # Pids are only valid in their namespace.
        if name is None or name["namespace"] != namespace or name["pid"] == pid:
            continue
        if _start_time(name["pid"]) != name["start"]:
            _remove(folder)


def _new_name() -> str:
    return "-".join(("stepwell", *_identity(), str(next(_numbers))))


def _identity() -> tuple[str, str, str]:
    """Return what identifies this process: its pid namespace, its pid and its start time."""
    pid = str(os.getpid())
    return str(os.stat("/proc/self/ns/pid").st_ino), pid, _start_time(pid) or "0"


def _start_time(pid: str) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return None


def _write(file: Path, text: str) -> None:
    try:
        with file.open("w", encoding="ascii") as opened:
            opened.write(text)
    except OSError as error:
        # If the kernel refuses the written value, the error has no file name.
        error.filename = error.filename or str(file)
        raise

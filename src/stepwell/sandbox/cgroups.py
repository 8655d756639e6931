"""Control groups of the kernel, versions 1 and 2: memory and processes of a command and all that it
starts are counted together. One group per command, gone with it.
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
    """The group of one command: it holds the limits that this machine lets us set."""

    def __init__(self, folders: tuple[Path, ...], enforced: frozenset[str]) -> None:
        self._folders = folders
        self.enforced = enforced
        """The parts of the policy that it enforces, by name."""
        self.out_of_memory = False
        """Known once it was removed: whether the kernel ended a process for its memory."""

    @property
    def join_files(self) -> tuple[Path, ...]:
        """The files that a process writes its pid to in order to belong to the group."""
        return tuple(folder / "cgroup.procs" for folder in self._folders)

    def add(self, pid: int) -> None:
        """Make a process belong to it, with whatever it starts from then on."""
        for file in self.join_files:
            try:
                _write(file, str(pid))
            except OSError as error:
                raise SandboxError(
                    f"the command can't be put under its limits ({file}: {error.strerror}); set "
                    "max_memory=None and max_processes=None to do without"
                ) from error

    def remove_empty(self) -> None:
        """Remove it before anyone was in it."""
        for folder in self._folders:
            _removed(folder)

    async def remove(self) -> None:
        """End whoever is in it, and remove it."""
        self.out_of_memory = any(_oom_kills(folder) for folder in self._folders)
        for folder in self._folders:
            for _ in range(REMOVAL_ROUNDS):
                if _removed(folder):
                    break
                await asyncio.sleep(ROUND_SECONDS)


def memory_told(result: SandboxResult, group: ControlGroup | None) -> SandboxResult:
    """The result of a command whose group was removed, with what the kernel ended for memory."""
    ran_out = group is not None and group.out_of_memory
    return replace(result, out_of_memory=True) if ran_out else result


def control_group(policy: ExecutionPolicy, *, spare_processes: int = 0) -> ControlGroup | None:
    """A new group with the limits of the policy; None if there is none to set, or no way to.

    ``spare_processes`` is how many of its processes are the sandbox's own.
    """
    wanted: dict[str, int] = {}
    if policy.max_memory is not None:
        wanted[MEMORY] = policy.max_memory
    if policy.max_processes is not None:
        wanted[PIDS] = policy.max_processes + spare_processes
    folders: list[Path] = []
    enforced: set[str] = set()
    try:
        for parent, controllers in _by_parent(wanted):
            folder = parent / _new_name()
            folder.mkdir()
            folders.append(folder)
            for controller in controllers:
                _limit(folder, controller, wanted[controller])
                enforced.add(_PARTS[controller])
    except OSError as error:
        for folder in folders:
            _removed(folder)
        raise SandboxError(
            f"a limit can't be set ({error.filename}: {error.strerror}); set max_memory=None and "
            "max_processes=None to do without"
        ) from error
    return ControlGroup(tuple(folders), frozenset(enforced)) if folders else None


def _by_parent(wanted: Mapping[str, int]) -> Iterator[tuple[Path, list[str]]]:
    """Where to make groups, and for which controllers: one for all of them in version 2."""
    found: dict[Path, list[str]] = {}
    for controller in wanted:
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
    """The folder in which this process may make groups with that controller.

    ``mounts`` and ``own`` are what the kernel says in ``mountinfo`` and ``cgroup`` of the process.
    Version 2 allows groups beside that of the process, not below: one that has processes can't have
    controlled groups. So the nearest ancestor is taken that lets us.
    """
    found = _own_folder(controller, mounts, own)
    if found is None:
        return None
    top, folder, has_version_2 = found
    while not _takes_groups(folder, controller if has_version_2 else None):
        if folder == top or not has_version_2:
            return None
        folder = folder.parent
    return folder


def _own_folder(controller: str, mounts: str, own: str) -> tuple[Path, Path, bool] | None:
    """Where the hierarchy is mounted, the group of this process in it, and if it is version 2."""
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


def _takes_groups(folder: Path, controller: str | None) -> bool:
    if controller is not None and not _has(folder, "cgroup.subtree_control", controller):
        return False
    # To move a process, one must be allowed to write where it comes from and goes to.
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
    # Else what does not fit would go on in swap space, where there is some.
    swap = folder / ("memory.swap.max" if has_version_2 else "memory.memsw.limit_in_bytes")
    if swap.exists():
        _write(swap, "0" if has_version_2 else str(value))


def _oom_kills(folder: Path) -> int:
    for file in ("memory.events", "memory.oom_control"):  # version 2, version 1
        with suppress(OSError):
            counts = (folder / file).read_text(encoding="ascii").split()
            return int(counts[counts.index("oom_kill") + 1]) if "oom_kill" in counts else 0
    return 0


def _removed(folder: Path) -> bool:
    """Whether the group is gone, once those in it were killed."""
    with suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text(encoding="utf-8").split():
            # Zero is how one of a namespace outside of ours is told, and a kill of it is of us.
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
    """Remove the groups of processes of Stepwell that died before they could."""
    namespace, pid, _ = _identity()
    for folder in parent.glob("stepwell-*"):
        name = _NAME.fullmatch(folder.name)
        # Pids mean nothing outside of their namespace.
        if name is None or name["namespace"] != namespace or name["pid"] == pid:
            continue
        if _start_of(name["pid"]) != name["start"]:
            _removed(folder)


def _new_name() -> str:
    return "-".join(("stepwell", *_identity(), str(next(_numbers))))


def _identity() -> tuple[str, str, str]:
    """What tells this process from all others: its pid namespace, its pid and when it started."""
    pid = str(os.getpid())
    return str(os.stat("/proc/self/ns/pid").st_ino), pid, _start_of(pid) or "0"


def _start_of(pid: str) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return None


def _write(file: Path, text: str) -> None:
    try:
        with file.open("w", encoding="ascii") as opened:
            opened.write(text)
    except OSError as error:
        # Where the kernel refuses what is written, it does not say to which file.
        error.filename = error.filename or str(file)
        raise

"""What commands leave behind, seen from outside."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from stepwell.sandbox import SandboxResult

SECONDS_TO_WAIT = 90.0
PATIENCE_SECONDS = (0.35, 2.0, 10.0, 40.0)


class Marker:
    """A time to sleep that nobody else sleeps, so that those who do can be found."""

    def __init__(self) -> None:
        self.seconds = f"300.{int.from_bytes(os.urandom(6)):015d}"
        self.sleep = f"sleep {self.seconds}"

    def alive(self) -> list[str]:
        """The processes that sleep so long."""
        return [line for line in _command_lines() if self.seconds in line]

    def sleeping(self) -> list[str]:
        """Those of them that sleep already, other than those that are to start them."""
        return [line for line in self.alive() if line.startswith("sleep ")]


async def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(SECONDS_TO_WAIT):
        while not holds():  # noqa: ASYNC110 - nobody tells of other processes
            await asyncio.sleep(0.01)


async def patiently(run: Callable[[float], Awaitable[SandboxResult]], said: str) -> SandboxResult:
    """Run with a time limit that a busy machine may need longer, until it said this in time."""
    result = await run(PATIENCE_SECONDS[0])
    for seconds in PATIENCE_SECONDS[1:]:
        if said in result.stdout:
            break
        result = await run(seconds)
    return result


def descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def highest_descriptor() -> int:
    """One more than the highest that is open."""
    return max(int(name) for name in os.listdir("/proc/self/fd")) + 1


def zombies() -> list[int]:
    """Children of this process that ended and were not waited for."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(parent) == os.getpid():
            found.append(int(stat.parent.name))
    return found


def own_groups(pid: int | None = None) -> list[Path]:
    """Control groups that this process, or another, made and that are still there."""
    return [
        Path(folder)
        for folder, _, _ in os.walk("/sys/fs/cgroup")
        if f"-{pid or os.getpid()}-" in os.path.basename(folder) and "stepwell-" in folder
    ]


def private_folders() -> list[str]:
    """Folders that sandboxes made and that are still there; tests have a temporary folder each."""
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("stepwell-")]


def _command_lines() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue

"""The control group of a command in sandlock: who is in it, how little it may allow, and that it
goes, whatever becomes of the command or of the host.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox import Ending, ExecutionPolicy, SandboxResult
from stepwell.sandbox.sandlock import SandlockSandbox
from tests.integration.sandbox.watching import Marker, own_groups, until

pytestmark = pytest.mark.usefixtures("sandlock", "parents", "nothing_left")

MEMORY = 200_000_000
LIMITS = ("memory.max", "memory.limit_in_bytes")

LEAVING = """
import ctypes, os, sys
parent, group = sys.argv[1:]
for file in ("cgroup.procs", "tasks"):
    for folder in (parent, os.path.dirname(parent)):
        try:
            os.write(os.open(f"{folder}/{file}", os.O_WRONLY), b"0")
            print("left by", folder, file)
        except OSError:
            pass
for file in ("memory.max", "memory.limit_in_bytes"):
    try:
        os.write(os.open(f"{group}/{file}", os.O_WRONLY), b"-1")
        print("raised", file)
    except OSError:
        pass
try:
    os.mkdir(f"{group}/inner")
    print("made a group")
except OSError:
    pass
# Landlock does not look at descriptors that only name a path, and this call takes such a one for
# the group that a new process is to be in. Where it is known, these arguments are wrong (EINVAL).
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(435, None, 0)
print("clone3:", os.strerror(ctypes.get_errno()))
"""


async def bash(script: str, place: Path, memory: int = MEMORY) -> SandboxResult:
    policy = ExecutionPolicy.in_(place, max_memory=memory, timeout=30)
    return await SandlockSandbox().run(["bash", "-c", script], policy)


@asynccontextmanager
async def running(script: str, place: Path) -> AsyncIterator[Path]:
    """The group of a command that runs meanwhile."""
    run = asyncio.ensure_future(bash(script, place))
    try:
        await until(own_groups)
        yield own_groups()[0]
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


def members(group: Path) -> list[str]:
    """The names of the processes in it."""
    pids = (group / "cgroup.procs").read_text().split()
    return [Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids]


async def test_the_command_is_in_the_group_and_the_keeper_is_not(
    place: Path, marker: Marker
) -> None:
    async with running(f"setsid {marker.sleep} & exec {marker.sleep}", place) as group:
        await until(lambda: len(marker.sleeping()) == 2)
        names = members(group)
    assert names.count("sleep") == 2
    # The third is the supervisor. The keeper must outlive whatever the kernel ends for its memory.
    assert len(names) == 3


async def test_a_command_can_not_leave_its_group(
    place: Path, parents: list[Path], marker: Marker
) -> None:
    (place / "leaving.py").write_text(LEAVING)
    script = f"python3 leaving.py {parents[0]} $(cat group) >said; exec {marker.sleep}"
    async with running(f"until [ -s group ]; do sleep 0.01; done; {script}", place) as group:
        (place / "group").write_text(str(group))
        await until(marker.sleeping)
        assert "sleep" in members(group)
        limits = [(group / name).read_text() for name in LIMITS if (group / name).exists()]
    assert (place / "said").read_text() == "clone3: Function not implemented\n"
    assert [abs(int(limit) - MEMORY) < 4096 for limit in limits] == [True]


@pytest.mark.parametrize("memory", [1, 1_000_000, 5_000_000, 20_000_000])
async def test_however_little_memory_there_is_the_result_tells(
    place: Path, marker: Marker, memory: int
) -> None:
    script = f"setsid {marker.sleep} & x=$(head -c 50000000 /dev/zero | tr '\\0' x)"
    result = await bash(script, place, memory)
    assert (result.exit_code, result.ending, result.out_of_memory) == (137, Ending.EXITED, True)
    assert marker.alive() == []


@pytest.mark.parametrize("memory", [5_000_000, 20_000_000])
async def test_in_little_memory_a_small_command_works(place: Path, memory: int) -> None:
    result = await bash("echo small | cat", place, memory)
    assert (result.exit_code, result.stdout, result.out_of_memory) == (0, "small\n", False)


async def test_a_group_that_can_not_be_joined_is_a_refusal(
    place: Path, parents: list[Path]
) -> None:
    async def refusal() -> str:
        run = asyncio.ensure_future(bash("touch ran", place))
        await asyncio.sleep(0)
        # Mostly it is early enough: the program that joins it is only being started.
        with suppress(OSError):
            for group in parents[0].glob(f"stepwell-*-{os.getpid()}-*"):
                group.rmdir()
        try:
            await run
        except SandboxError as error:
            assert not (place / "ran").exists()
            return str(error)
        (place / "ran").unlink()
        return ""

    said = await refusal() or await refusal() or await refusal()
    assert said.startswith(
        "sandlock can't confine this command, so it was not run: it can't be put under its limits "
        f"({parents[0]}/stepwell-"
    )
    assert "cgroup.procs: No such file or directory); set max_memory=None" in said


async def test_a_host_that_is_killed_leaves_no_group(place: Path, marker: Marker) -> None:
    script = f"""
import asyncio
from stepwell.sandbox import ExecutionPolicy
from stepwell.sandbox.sandlock import SandlockSandbox
asyncio.run(SandlockSandbox().run({marker.sleep.split()}, ExecutionPolicy.in_({str(place)!r})))
"""
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, env={"TMPDIR": str(place)}
    )
    await until(marker.sleeping)
    assert len(own_groups(host.pid)) == 1
    host.kill()
    await host.wait()
    # By the keeper: the next host may be where it does not find this one's groups.
    await until(lambda: not own_groups(host.pid))
    assert marker.alive() == []

"""Control groups: where they can be made, what they hold, and that none stays."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from stepwell.errors import SandboxError
from stepwell.sandbox import ExecutionPolicy
from stepwell.sandbox.bubblewrap import BubblewrapSandbox
from stepwell.sandbox.cgroups import _parent, control_group, find_parent
from tests.integration.sandbox.watching import own_groups


async def test_a_group_holds_the_limits_and_goes(parents: list[Path], place: Path) -> None:
    policy = ExecutionPolicy.in_(place, max_memory=64 * 1024 * 1024, max_processes=7)
    group = control_group(policy, spare_processes=1)
    assert group is not None
    assert group.enforced == {"max_memory", "max_processes"}
    folders = own_groups()
    limits = [
        file.read_text().strip()
        for folder in folders
        for file in folder.iterdir()
        if file.name in {"pids.max", "memory.limit_in_bytes", "memory.max"}
    ]
    assert sorted(limits) == ["67108864", "8"]
    await group.remove()
    assert own_groups() == []
    await group.remove()


@pytest.mark.usefixtures("parents")
def test_a_limit_that_can_not_be_set_is_named_and_leaves_no_group(place: Path) -> None:
    policy = ExecutionPolicy.in_(place, max_processes=4_000_000)
    with pytest.raises(
        SandboxError, match=r"can't be set \(/.*/pids\.max: Invalid argument\); set"
    ):
        control_group(policy, spare_processes=1_000_000)
    assert own_groups() == []


def test_without_limits_there_is_no_group(place: Path) -> None:
    assert control_group(ExecutionPolicy.in_(place, max_memory=None, max_processes=None)) is None


async def test_groups_of_the_dead_are_removed(
    parents: list[Path], bubblewrap: BubblewrapSandbox, place: Path
) -> None:
    namespace = os.stat("/proc/self/ns/pid").st_ino
    left = [parent / f"stepwell-{namespace}-4194304-1-1" for parent in parents]
    of_others = [parent / f"stepwell-1-4194304-1-{os.getpid()}" for parent in parents]
    alive = [parent / f"stepwell-{namespace}-1-{start_of_init()}-1" for parent in parents]
    for folder in {*left, *of_others, *alive}:
        os.mkdir(folder)
    try:
        _parent.cache_clear()
        await bubblewrap.run(["true"], ExecutionPolicy.in_(place))
        assert not any(map(os.path.exists, left))
        assert all(map(os.path.exists, [*of_others, *alive]))
    finally:
        for folder in {*left, *of_others, *alive}:
            with suppress(FileNotFoundError):
                os.rmdir(folder)


def start_of_init() -> str:
    return Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19]


def unified(tmp_path: Path, *folders: str) -> tuple[str, Path]:
    """A tree that looks like version 2, with controllers down to the last folder but one."""
    top = tmp_path / "unified"
    folder = top
    for name in ("", *folders):
        folder = folder / name
        folder.mkdir()
        (folder / "cgroup.controllers").write_text("cpu memory pids\n")
        (folder / "cgroup.procs").write_text("")
        last = name == folders[-1] if folders else False
        (folder / "cgroup.subtree_control").write_text("" if last else "memory pids\n")
    return f"30 23 0:26 / {top} rw,nosuid - cgroup2 cgroup2 rw\n", top


def test_version_2_makes_groups_beside_the_own_one(tmp_path: Path) -> None:
    mounts, top = unified(tmp_path, "user.slice", "app.scope")
    for controller in ("memory", "pids"):
        found = find_parent(controller, mounts, "0::/user.slice/app.scope\n")
        assert found == top / "user.slice"
    assert find_parent("hugetlb", mounts, "0::/user.slice/app.scope\n") is None


def test_version_2_in_a_container_starts_at_its_top(tmp_path: Path) -> None:
    mounts, top = unified(tmp_path)
    assert find_parent("memory", mounts, "0::/\n") == top
    rooted = mounts.replace("0:26 / ", "0:26 /docker/abc ")
    assert find_parent("memory", rooted, "0::/docker/abc\n") == top


def test_version_1_makes_groups_below_the_own_one(tmp_path: Path) -> None:
    own = tmp_path / "memory" / "session"
    own.mkdir(parents=True)
    (own / "cgroup.procs").write_text("")
    mounts = f"31 30 0:27 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
    assert find_parent("memory", mounts, "4:memory:/session\n0::/\n") == own
    assert find_parent("pids", mounts, "4:memory:/session\n0::/\n") is None


def test_what_can_not_be_written_is_not_taken(tmp_path: Path) -> None:
    mounts, top = unified(tmp_path, "app.scope")
    (top / "cgroup.procs").unlink()
    assert find_parent("memory", mounts, "0::/app.scope\n") is None

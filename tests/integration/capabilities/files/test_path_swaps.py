"""Someone swaps a directory or a file with a symlink that leads outside, in a tight loop, while the
tools work there: between any check and any use. Nothing outside is read or changed.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from stepwell.capabilities.files import ConfinedDirectory, ReadFileTool, WriteFileTool
from stepwell.capabilities.files.openat import Opener, openat2, walk
from stepwell.tools import ToolFailure
from tests.examples import examples
from tests.integration.capabilities.files.escape_tree import kernel_has_openat2

CANARY = "CANARY-41c9-outside"
TRIES = examples(20_000)
"""Per way of opening, half of them reads and half writes."""

SWAPPER = """
import ctypes, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
pairs = [(b"spot", b"spot.link"), (b"leaf.txt", b"leaf.link")]
def exchange(one, other):
    if libc.syscall(316, -100, one, -100, other, 2) != 0:  # renameat2, RENAME_EXCHANGE
        os.rename(one, b"aside"); os.rename(other, one); os.rename(b"aside", other)
print("ready", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(500):
        for one, other in pairs:
            exchange(one, other)
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """In memory where there is such a place, since every write waits for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as outer:
        base, outside = Path(outer) / "base", Path(outer) / "outside"
        for directory in (base / "spot" / "sub", outside / "sub"):
            directory.mkdir(parents=True)
        for secret in ("file.txt", "sub/file.txt", "leaf.txt"):
            (outside / secret).write_text(CANARY)
        for inside in ("spot/file.txt", "spot/sub/file.txt", "leaf.txt"):
            (base / inside).write_text("inside")
        (base / "spot.link").symlink_to("../outside")
        (base / "leaf.link").symlink_to("../outside/leaf.txt")
        yield base


@contextmanager
def swapping(base: Path) -> Iterator[None]:
    swapper = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(base)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == "ready\n"
        yield
        assert swapper.poll() is None
    finally:
        swapper.kill()
        swapper.communicate()


def outside_files(base: Path) -> dict[str, str]:
    outside = base.parent / "outside"
    return {str(path): path.read_text() for path in outside.rglob("*") if path.is_file()}


PATHS = ("spot/file.txt", "spot/sub/file.txt", "spot/sub/../file.txt", "leaf.txt", "./spot/new.txt")


@pytest.mark.parametrize(
    "opener",
    [
        pytest.param(
            openat2,
            marks=pytest.mark.skipif(not kernel_has_openat2(), reason="no openat2 here"),
        ),
        walk,
    ],
)
def test_no_swap_leads_outside(base: Path, opener: Opener) -> None:
    confined = ConfinedDirectory(base, opener)
    read, write = ReadFileTool(confined), WriteFileTool(confined)
    before = outside_files(base)
    seen: Counter[str] = Counter()
    with swapping(base):
        for number in range(TRIES // 2):
            path = PATHS[number % len(PATHS)]
            answer = read(path)
            assert CANARY not in str(answer)
            seen["refused" if isinstance(answer, ToolFailure) else "read"] += 1
            answer = write(path, "inside")
            seen["refused" if isinstance(answer, ToolFailure) else "written"] += 1

    assert outside_files(base) == before
    assert sum(seen.values()) == TRIES
    # Both sides of the swap were met, so the tries were tries.
    assert min(seen["refused"], seen["read"], seen["written"]) > TRIES / 200


def naive_read(base: Path, path: str) -> str:
    target = base / path
    if not os.path.realpath(target).startswith(f"{base}/"):
        return "refused"
    return target.read_text()


def naive_write(base: Path, path: str) -> str:
    target = base / path
    if os.path.realpath(target).startswith(f"{base}/"):
        target.write_text("inside")
    return ""


@pytest.mark.parametrize("naive", [naive_read, naive_write])
def test_the_same_swaps_catch_a_check_before_the_use(
    base: Path, naive: Callable[[Path, str], str]
) -> None:
    base = base.resolve()
    before = outside_files(base)

    def has_escaped() -> bool:
        for number in range(100):
            with suppress(OSError):
                if CANARY in naive(base, PATHS[number % len(PATHS)]):
                    return True
        return outside_files(base) != before

    with swapping(base):
        assert any(has_escaped() for _ in range(1_000))

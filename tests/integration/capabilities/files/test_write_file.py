"""Writing real files: whole or not at all, with the mode they had, and nothing left behind."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from stepwell.capabilities.files import FilePolicy, WriteFileTool
from stepwell.tools import ToolFailure
from tests.integration.capabilities.files.cancelled_call import cancelled


def failure(answer: str | ToolFailure) -> str:
    assert isinstance(answer, ToolFailure)
    return answer.message


@pytest.fixture
def write(tmp_path: Path) -> WriteFileTool:
    return WriteFileTool.in_directory(tmp_path)


@pytest.mark.parametrize(
    ("content", "counts"),
    [
        ("", "0 bytes, 0 lines"),
        ("x", "1 byte, 1 line"),
        ("x\n", "2 bytes, 1 line"),
        ("é\nb", "4 bytes, 2 lines"),
        ("a\n\n", "3 bytes, 2 lines"),
        ("a\r\nb\r\n", "6 bytes, 2 lines"),
    ],
)
def test_b258_a_new_file_says_bytes_and_lines(
    content: str, counts: str, write: WriteFileTool, tmp_path: Path
) -> None:
    assert write("a.txt", content) == f"Created 'a.txt': {counts}."
    assert (tmp_path / "a.txt").read_bytes() == content.encode()
    assert os.listdir(tmp_path) == ["a.txt"]


def test_b258_missing_directories_are_made(write: WriteFileTool, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()

    assert str(write("there/a/b/c.txt", "x")).startswith("Created")
    assert str(write(f"{tmp_path}/new/d.txt", "x")).startswith("Created")
    assert (tmp_path / "there/a/b/c.txt").read_text() == "x"
    assert (tmp_path / "new/d.txt").read_text() == "x"
    for path in ("../b258/e.txt", f"{tmp_path.parent}/b258/e.txt"):
        assert "outside the base directory" in failure(write(path, "x"))
    assert not (tmp_path.parent / "b258").exists()


def test_b258_an_existing_file_is_replaced_and_not_overwritten(
    write: WriteFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("old content")
    with (tmp_path / "a.txt").open() as reader:
        assert write("a.txt", "new") == "Replaced 'a.txt': 3 bytes, 1 line."
        assert reader.read() == "old content"
    assert (tmp_path / "a.txt").read_text() == "new"


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o600, 0o777])
def test_the_mode_is_kept(mode: int, write: WriteFileTool, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("old")
    (tmp_path / "run.sh").chmod(mode)
    write("run.sh", "new")

    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == mode


def test_privileges_are_not_inherited_by_new_content(write: WriteFileTool, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("old")
    (tmp_path / "run").chmod(0o6755)
    write("run", "new")

    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o755


def test_the_umask_decides_on_a_new_file(write: WriteFileTool, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write("a.txt", "x")
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


def test_what_can_not_be_written_says_why(write: WriteFileTool, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("x")

    assert "'dir' is a directory" in failure(write("dir", "x"))
    assert "'.' is a directory" in failure(write(".", "x"))
    assert "'dir/..' is a directory" in failure(write("dir/..", "x"))
    assert "'new/' is a directory path" in failure(write("new/", "x"))
    assert "not a directory" in failure(write("file/a", "x"))
    assert "too long" in failure(write("n" * 256, "x"))
    assert "lone surrogate) at position 2" in failure(write("a", "ab\ud800"))
    assert sorted(os.listdir(tmp_path)) == ["dir", "file"]


def test_a_name_as_long_as_names_can_be_is_written(write: WriteFileTool, tmp_path: Path) -> None:
    write("n" * 255, "x")

    assert (tmp_path / ("n" * 255)).read_text() == "x"


def test_the_policy_bounds_the_content(tmp_path: Path) -> None:
    write = WriteFileTool.in_directory(tmp_path, policy=FilePolicy(max_write_bytes=4))

    assert "has 5 bytes, and write_file accepts at most 4" in failure(write("a", "éé!"))
    assert str(write("a", "éé")).startswith("Created")


def test_a_cancelled_call_changes_nothing(write: WriteFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")

    assert "was cancelled" in failure(write("a.txt", "new", cancelled()))
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


UNPRIVILEGED = """
import os, sys
from stepwell.capabilities.files import WriteFileTool
write = WriteFileTool.in_directory(sys.argv[1])
write("open", "first")
if os.geteuid() == 0:  # to whom every file is open
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for path in ("protected", "open", "sub/new"):
    print(write(path, "new"))
"""


def test_a_write_protected_file_is_not_replaced() -> None:
    with TemporaryDirectory() as name:  # one that other users can reach
        directory = Path(name)
        for file, mode in (("protected", 0o444), ("open", 0o666)):
            (directory / file).write_text("old")
            (directory / file).chmod(mode)
        (directory / "sub").mkdir(mode=0o555)
        directory.chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-c", UNPRIVILEGED, name], capture_output=True, text=True, check=True
        )
        protected, opened, created = done.stdout.splitlines()

        assert "permission denied" in protected
        assert opened == "Replaced 'open': 3 bytes, 1 line."
        assert "permission denied" in created
        assert (directory / "protected").read_text() == "old"


WRITER = """
import sys
from stepwell.capabilities.files import WriteFileTool
write = WriteFileTool.in_directory(sys.argv[1])
print("ready", flush=True)
while True:
    for letter in "ab":
        write("a.txt", letter * 300_000)
"""


def test_b258_a_writer_that_is_killed_leaves_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a" * 300_000)
    for number in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        for _ in range(40 * number):
            content = (tmp_path / "a.txt").read_text()
            assert content in ("a" * 300_000, "b" * 300_000)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()

        assert (tmp_path / "a.txt").read_text() in ("a" * 300_000, "b" * 300_000)

"""Editing real files: exactly one match, line endings, others who change the file, huge files."""

import mmap
import os
import re
import stat
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import thread_time
from typing import Any

import pytest

from stepwell.capabilities.files import EditFileTool, FilePolicy, ReadFileTool
from stepwell.tools import ToolFailure

MEBIBYTE = 1024 * 1024


def failure(answer: str | ToolFailure) -> str:
    assert isinstance(answer, ToolFailure)
    return answer.message


@pytest.fixture
def edit(tmp_path: Path) -> EditFileTool:
    return EditFileTool.in_directory(tmp_path)


class Meddler:
    """A call's context that does something once, when it is asked and the moment has come."""

    def __init__(
        self,
        deed: Callable[[], object],
        is_time: Callable[[], bool],
        cancels: bool,
    ) -> None:
        self.deed = deed
        self.is_time = is_time
        self.cancels = cancels
        self.has_meddled = False

    @property
    def is_cancelled(self) -> bool:
        if not self.has_meddled and self.is_time():
            self.has_meddled = True
            self.deed()
        return self.has_meddled and self.cancels


def is_copied(directory: Path) -> bool:
    """Whether the new file is written, and is about to replace the old one."""
    return any(copy.stat().st_size for copy in directory.glob(".stepwell-*"))


def meddling(
    deed: Callable[[], object],
    is_time: Callable[[], bool] = lambda: True,
    *,
    cancels: bool = False,
) -> Any:
    return Meddler(deed, is_time, cancels)


def test_one_match_is_replaced(edit: EditFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")

    assert edit("a.py", "two", "2") == "Replaced 1 occurrence in 'a.py', in line 2."
    assert (tmp_path / "a.py").read_text() == "one\n2\nthree\n"
    assert edit("a.py", "one\n2\n", "") == "Replaced 1 occurrence in 'a.py', in line 1."
    assert (tmp_path / "a.py").read_text() == "three\n"


def test_several_matches_are_counted_and_located(edit: EditFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\nx = 1\nx = 1\n")

    assert failure(edit("a.py", "x = 1", "x = 2")) == (
        "old_string occurs 3 times in 'a.py', in lines 1, 3, 4; add lines around it until it "
        "occurs once, or set replace_all"
    )
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 2\nx = 1\nx = 1\n"
    assert edit("a.py", "x = 1", "x = 2", replace_all=True) == (
        "Replaced 3 occurrences in 'a.py', in lines 1, 3, 4."
    )
    assert (tmp_path / "a.py").read_text() == "x = 2\ny = 2\nx = 2\nx = 2\n"


def test_matches_that_overlap_are_several(edit: EditFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("aaa")

    assert "occurs 2 times" in failure(edit("a.py", "aa", "b"))
    assert "1 occurrence" in str(edit("a.py", "aa", "b", replace_all=True))
    assert (tmp_path / "a.py").read_text() == "ba"


def test_many_lines_are_not_all_named(edit: EditFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x\n" * 1001)

    assert "more than 10 times in 'a.py', in lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...;" in failure(
        edit("a.py", "x", "y")
    )


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("\treturn 1", "line 2 has it with different whitespace: '    return 1'"),
        ("return  1", "line 2 has it with different whitespace: '    return 1'"),
        ("    retrun 1", "the closest is line 2: '    return 1'"),
        ("     2\t    return 1", "leave out the line numbers that read_file adds"),
        ("def f():\n    return 2", "line 1 matches its first line"),
        ("something else entirely", "read the file again and copy the text exactly"),
        ("\n\n\n", "read the file again and copy the text exactly"),
    ],
)
def test_no_match_comes_with_a_hint(
    old: str, hint: str, edit: EditFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n")

    said = failure(edit("a.py", old, "x"))

    assert said.startswith("old_string does not occur in 'a.py'; ")
    assert hint in said


def test_what_can_not_be_edited_says_why(edit: EditFileTool, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "a.bin").write_bytes(b"a\0b")
    (tmp_path / "empty").write_text("")

    assert "'missing' does not exist" in failure(edit("missing", "a", "b"))
    assert "'new/missing' does not exist" in failure(edit("new/missing", "a", "b"))
    assert not (tmp_path / "new").exists()
    assert "is a directory" in failure(edit("dir", "a", "b"))
    assert "binary" in failure(edit("a.bin", "a", "b"))
    assert "does not occur" in failure(edit("empty", "a", "b"))
    assert "are equal" in failure(edit("a.bin", "a", "a"))
    assert "old_string is empty" in failure(edit("empty", "", "b"))
    assert "surrogate" in failure(edit("empty", "a", "\udfff"))


def test_b260_the_mode_is_kept(edit: EditFileTool, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("echo old")
    (tmp_path / "run.sh").chmod(0o750)
    edit("run.sh", "old", "new")

    assert stat.S_IMODE((tmp_path / "run.sh").stat().st_mode) == 0o750
    assert os.listdir(tmp_path) == ["run.sh"]


def test_line_endings_are_kept(edit: EditFileTool, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\r\ntwo\r\nthree\r\n")

    edit("a.txt", "one\ntwo\n", "1\n2\n2.5\n")
    assert file.read_bytes() == b"1\r\n2\r\n2.5\r\nthree\r\n"
    edit("a.txt", "three", "3\n4")
    assert file.read_bytes() == b"1\r\n2\r\n2.5\r\n3\r\n4\r\n"
    edit("a.txt", "3\r\n4", "5\r\n6")
    assert file.read_bytes() == b"1\r\n2\r\n2.5\r\n5\r\n6\r\n"


def test_mixed_line_endings_are_found_as_they_are(edit: EditFileTool, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\r\ntwo\r\nthree\nfour\n\r\n")

    edit("a.txt", "three\nfour", "3\n4")

    assert file.read_bytes() == b"one\r\ntwo\r\n3\n4\n\r\n"


def test_bytes_around_the_match_are_kept(edit: EditFileTool, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfcaf\xe9 one and a lot of other words\x85 no newline")

    edit("a.txt", "one", "ü")

    assert file.read_bytes() == (
        b"\xef\xbb\xbfcaf\xe9 \xc3\xbc and a lot of other words\x85 no newline"
    )


DEEDS: dict[str, Callable[[Path], object]] = {
    "appends": lambda file: file.write_text("one\ntwo\nthree\n"),
    "changes as many bytes": lambda file: file.write_text("ONE\ntwo\n"),
    "restores the time": lambda file: (
        file.write_text("ONE\ntwo\n"),
        os.utime(file, ns=(1_700_000_000_000_000_000, 1_700_000_000_000_000_000)),
    ),
    "replaces": lambda file: (
        file.with_name("other").write_text("one\ntwo\n"),
        file.with_name("other").rename(file),
    ),
    "removes": lambda file: file.unlink(),
    "makes a link": lambda file: (
        file.rename(file.with_name("moved")),
        file.symlink_to("moved"),
    ),
    "makes a directory": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_b260_a_change_by_someone_else_is_refused(
    deed: str, edit: EditFileTool, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\n")
    os.utime(file, ns=(1_700_000_000_000_000_000, 1_700_000_000_000_000_000))

    theirs: list[object] = []

    def content() -> object:
        if file.is_dir():
            return "directory"
        return file.read_bytes() if file.exists() else None

    def meddle() -> None:
        DEEDS[deed](file)
        theirs.append(content())

    context = meddling(meddle, lambda: is_copied(tmp_path))
    said = failure(edit("a.txt", "two", "2", False, context))

    assert "'a.txt' was changed by someone else during the edit" in said
    assert [content()] == theirs
    assert [name for name in os.listdir(tmp_path) if "stepwell" in name] == []


def test_b260_a_change_that_moves_no_time_is_refused_as_well(
    edit: EditFileTool, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\n")
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        mapped[0:3] = b"ONE"  # from now on writes to this page don't touch the file's times

        def meddle() -> None:
            mapped[0:3] = b"1st"

        context = meddling(meddle, lambda: is_copied(tmp_path))
        said = failure(edit("a.txt", "two", "2", False, context))

    assert "was changed by someone else" in said
    assert file.read_text() == "1st\ntwo\n"


def test_a_cancelled_edit_changes_nothing(edit: EditFileTool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    at_last = meddling(lambda: None, lambda: is_copied(tmp_path), cancels=True)

    for context in (meddling(lambda: None, cancels=True), at_last):
        assert "was cancelled" in failure(edit("a.txt", "one", "1", False, context))
    assert at_last.has_meddled
    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("replace_all", [False, True])
def test_an_edit_looks_up_while_it_goes_through_a_large_file(
    replace_all: bool, edit: EditFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"a line of text\n" * 200_000)
    asked: list[None] = []
    edit(
        "a.txt",
        "not in there",
        "x",
        replace_all,
        meddling(lambda: None, lambda: bool(asked.append(None))),
    )

    assert len(asked) > 2 * 3_000_000 / (256 * 1024)


def test_many_overlapping_matches_of_a_long_text_are_not_all_looked_for(
    edit: EditFileTool, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a" * 2_000_000)
    began = thread_time()
    said = failure(edit("a.txt", "a" * 1_000_000, "b"))

    assert "occurs more than 10 times in 'a.txt', in lines 1, 1," in said
    assert thread_time() - began < 1


def test_a_miss_among_long_lines_is_explained_quickly(edit: EditFileTool, tmp_path: Path) -> None:
    dice = Random(0)
    rows = ["".join(dice.choices("ab", k=380)) for _ in range(600)]
    (tmp_path / "a.txt").write_text("\n".join(rows))
    wanted = "".join(dice.choices("ab", k=380))
    began = thread_time()
    said = failure(edit("a.txt", wanted, "x"))

    assert "; the closest is line " in said
    assert thread_time() - began < 1


def test_no_edit_of_many_at_once_is_lost(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("count 0 end")
    read, edit = ReadFileTool.in_directory(tmp_path), EditFileTool.in_directory(tmp_path)

    def count_up() -> None:
        made = 0
        while made < 25:
            found = re.search(r"count (\d+)", str(read("count")))
            assert found
            answer = edit("count", found[0] + " ", f"count {int(found[1]) + 1} ")
            made += isinstance(answer, str)

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads meet in every gap there is
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(patience)

    assert (tmp_path / "count").read_text() == "count 100 end"
    assert os.listdir(tmp_path) == ["count"]


def test_the_policy_bounds_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 100)
    edit = EditFileTool.in_directory(tmp_path, policy=FilePolicy(max_edit_bytes=100))

    assert "after the edit" in failure(edit("a.txt", "x", "yy", replace_all=True))
    assert str(edit("a.txt", "x", "y", replace_all=True)).startswith("Replaced 100")
    (tmp_path / "a.txt").write_text("x" * 101)
    assert "edit_file is 100" in failure(edit("a.txt", "x", "y", replace_all=True))


def test_b260_100_megabytes_are_edited_in_little_memory(edit: EditFileTool, tmp_path: Path) -> None:
    big = tmp_path / "big.txt"
    block = (b"x" * 1000 + b"0123456789abcdefghijklmn")[:1023] + b"\n"
    block = block * 1024
    with big.open("wb") as file:
        for number in range(100):
            file.write(b"needle one\n" if number == 60 else b"")
            file.write(block)
    tracemalloc.start()
    try:
        one = edit("big.txt", "needle one\n", "needle two\n")
        many = edit("big.txt", "lm\n", "LM\n", replace_all=True)
        none = failure(edit("big.txt", "not in there", "x"))
        peak = tracemalloc.get_traced_memory()[1]
        size = big.stat().st_size
        with big.open("rb") as file:
            file.seek(60 * len(block) - 2)
            around = file.read(30)
    finally:
        tracemalloc.stop()
        big.unlink()

    assert one == f"Replaced 1 occurrence in 'big.txt', in line {60 * 1024 + 1}."
    assert f"Replaced {100 * 1024} occurrences" in str(many)
    assert "does not occur" in none
    assert around == b"M\nneedle two\n" + b"x" * 17
    assert size == 100 * MEBIBYTE + 11
    assert peak < 8 * MEBIBYTE

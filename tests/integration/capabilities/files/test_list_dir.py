"""Listing real directories."""

import os
from pathlib import Path

import pytest

from stepwell.capabilities.files import FilePolicy, ListDirTool
from stepwell.tools import ToolFailure
from tests.integration.capabilities.files.cancelled_call import cancelled


def failure(answer: str | ToolFailure) -> str:
    assert isinstance(answer, ToolFailure)
    return answer.message


@pytest.fixture
def listing(tmp_path: Path) -> ListDirTool:
    return ListDirTool.in_directory(tmp_path)


def test_b262_directories_come_first_and_case_does_not_matter(
    listing: ListDirTool, tmp_path: Path
) -> None:
    for directory in ("zoo", "Alpha", ".git"):
        (tmp_path / directory).mkdir()
    for file in ("beta.txt", "Alpha.txt", "gamma", ".env", "Übung"):
        (tmp_path / file).write_text("")

    assert str(listing()).splitlines() == [
        *("[dir] .git", "[dir] Alpha", "[dir] zoo"),
        *("[file] .env", "[file] Alpha.txt", "[file] beta.txt", "[file] gamma", "[file] Übung"),
    ]


def test_b262_more_than_the_limit_is_counted(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for number in range(60):
        (tmp_path / f"f{number:02}").write_text("")
    fifty = str(ListDirTool.in_directory(tmp_path)()).splitlines()
    three = ListDirTool.in_directory(tmp_path, policy=FilePolicy(max_entries=3))()
    exact = ListDirTool.in_directory(tmp_path, policy=FilePolicy(max_entries=61))()

    assert len(fifty) == 51
    assert fifty[0] == "[dir] sub"
    assert fifty[-2:] == ["[file] f48", "... and 11 more"]
    assert three == "[dir] sub\n[file] f00\n[file] f01\n... and 58 more"
    assert str(exact).splitlines()[-1] == "[file] f59"


def test_a_listing_of_a_huge_directory_stops_and_says_so(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"f{number:02}").write_text("")
    some = ListDirTool.in_directory(tmp_path, policy=FilePolicy(max_entries=5, max_visited=29))()
    every = ListDirTool.in_directory(tmp_path, policy=FilePolicy(max_entries=5, max_visited=30))()

    assert len(str(some).splitlines()) == 6
    assert str(some).splitlines()[-1] == (
        "... and more; only 29 entries were visited, in no particular order"
    )
    assert str(every).splitlines()[-1] == "... and 25 more"


def test_a_cancelled_listing_stops(listing: ListDirTool, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")

    assert "was cancelled" in failure(listing(context=cancelled()))


def test_b262_places_are_named_as_for_the_other_tools(listing: ListDirTool, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.txt").write_text("")
    (tmp_path / "empty").mkdir()

    for path in ("a/b", "a/b/", "./a/./b", "a/../a/b", f"{tmp_path}/a/b"):
        assert listing(path) == "[file] c.txt"
    for path in (".", "./", str(tmp_path), "a/.."):
        assert str(listing(path)).startswith("[dir] a\n[dir] empty")
    assert listing("empty") == "(empty directory)"


def test_b262_what_can_not_be_listed_says_why(listing: ListDirTool, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "fifo")

    assert failure(listing("file")) == "'file' is not a directory; use read_file for a file"
    assert failure(listing("fifo")) == "'fifo' is not a directory; use read_file for a file"
    assert "'missing' does not exist" in failure(listing("missing"))
    assert "outside the base directory" in failure(listing(".."))
    assert "outside the base directory" in failure(listing("/etc"))
    assert "NUL byte" in failure(listing("a\0"))
    assert "the path is empty" in failure(listing(""))


def test_names_with_line_breaks_and_odd_bytes_stay_on_one_line(
    listing: ListDirTool, tmp_path: Path
) -> None:
    (tmp_path / "a\n[dir] b").write_text("")
    (tmp_path / os.fsdecode(b"caf\xe9")).write_text("")

    assert str(listing()).splitlines() == ["[file] a\\n[dir] b", "[file] caf\\udce9"]

"""A corpus of paths that try to leave the base directory: no tool reads or changes what is outside,
whichever way beneath the root is opened. Judged from outside.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepwell.capabilities.files import (
    ConfinedDirectory,
    EditFileTool,
    FilePolicy,
    ListDirTool,
    ReadFileTool,
    SearchFilesTool,
    WriteFileTool,
)
from stepwell.capabilities.files.openat import Opener, best_opener, openat2, openat2_confines, walk
from stepwell.errors import ConfigurationError
from stepwell.tools import ToolFailure
from tests.integration.capabilities.files.escape_tree import (
    CANARY,
    PATHS,
    SYSTEM_SECRET,
    build,
    kernel_has_openat2,
    outside_of,
    path_of,
)

OPENERS = [
    pytest.param(
        openat2,
        marks=pytest.mark.skipif(not kernel_has_openat2(), reason="no openat2 here"),
        id="openat2",
    ),
    pytest.param(walk, id="walk"),
]


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest) -> Opener:
    return request.param


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return build(tmp_path)


def told(answer: object) -> str:
    return answer.message if isinstance(answer, ToolFailure) else str(answer)


def attacks(confined: ConfinedDirectory, path: str) -> Iterator[object]:
    """What each tool makes of the path."""
    read, listing, search = (t(confined) for t in (ReadFileTool, ListDirTool, SearchFilesTool))
    edit, write = EditFileTool(confined), WriteFileTool(confined)
    yield read(path)
    yield read(path, offset=1)
    yield listing(path)
    yield search(path)
    yield search(path, contains="CANARY")
    yield edit(path, "second line", "changed")
    yield edit(path, "root", "changed", replace_all=True)
    yield write(path, "written by the attack")
    yield read(path)


def leaks(text: str) -> bool:
    return CANARY in text or SYSTEM_SECRET in text


def escapes(base: Path, tries: Iterator[object]) -> list[str]:
    """What the attacks got out, or changed outside."""
    before = outside_of(base)
    found = [told(answer) for answer in tries if leaks(told(answer))]
    after = outside_of(base)
    found += [name for name in {*before, *after} if before.get(name) != after.get(name)]
    return found


def test_openat2_is_used_only_where_it_proves_that_it_confines(tmp_path: Path) -> None:
    closed = os.open(tmp_path, os.O_RDONLY)
    os.close(closed)

    assert not openat2_confines(closed)  # as where the call is not known, or not allowed
    assert best_opener() is (openat2 if kernel_has_openat2() else walk)


def test_the_corpus_is_large() -> None:
    assert len(PATHS) >= 150


@pytest.mark.parametrize("case", range(len(PATHS)), ids=lambda case: repr(PATHS[case])[:40])
def test_b261_no_path_leaves_the_base_directory(case: int, base: Path, opener: Opener) -> None:
    path = path_of(PATHS[case], base)
    confined = ConfinedDirectory(base, opener)

    assert escapes(base, attacks(confined, path)) == []


@pytest.mark.parametrize(
    ("path", "why"),
    [
        *((path, "outside the base directory") for path in ("../outside/secret.txt", "../new.txt")),
        *((path, "outside the base directory") for path in ("/etc/passwd", "{outer}/outside")),
        *((path, "outside the base directory") for path in ("file_out", "dir_out/secret.txt")),
        *((path, "NUL byte") for path in ("inside.txt\0", "../outside/secret.txt\0.png")),
    ],
)
def test_b261_what_leads_outside_is_rejected_by_every_tool(
    path: str, why: str, base: Path, opener: Opener
) -> None:
    confined = ConfinedDirectory(base, opener)
    path = path_of(path, base)
    answers = [
        ReadFileTool(confined)(path),
        WriteFileTool(confined)(path, "x"),
        EditFileTool(confined)(path, "second line", "x"),
        ListDirTool(confined)(path),
    ]

    for answer in answers:
        assert isinstance(answer, ToolFailure)
        assert why in answer.message


def test_the_same_judge_catches_tools_that_trust_paths(tmp_path: Path) -> None:
    def read(base: Path, path: str) -> Iterator[object]:
        target = Path(os.path.normpath(base / path))
        if str(target).startswith(str(base)) and target.is_file():  # the usual naive check
            yield f"     1\t{target.read_text(errors='replace')}"

    def write(base: Path, path: str) -> Iterator[object]:
        target = Path(os.path.normpath(base / path))
        if str(target).startswith(str(base)) and not target.is_char_device():
            target.write_text("written by the attack")
        yield "written"

    def is_caught(naive: Callable[[Path, str], Iterator[object]], case: int) -> bool:
        base = build(tmp_path / f"{naive.__name__}{case}")
        path = path_of(PATHS[case], base)
        if "fifo" in path or path.startswith(("etc", "slash/etc", "proc_")):
            return False  # it would hang, or do harm
        try:
            return bool(escapes(base, naive(base, path)))
        except (OSError, ValueError):
            return False

    (tmp_path / "x").mkdir()
    caught = [
        (naive.__name__, case)
        for naive in (read, write)
        for case in range(0, len(PATHS), 2)
        if is_caught(naive, case)
    ]

    assert len(caught) > 20
    assert {name for name, _ in caught} == {"read", "write"}


@pytest.mark.parametrize(
    "path", ["inside.txt", "file_in", "dir/back_in", "{base}/inside.txt", "dir/../inside.txt"]
)
def test_what_stays_inside_is_reached(path: str, base: Path, opener: Opener) -> None:
    confined = ConfinedDirectory(base, opener)
    path = path_of(path, base)

    assert ReadFileTool(confined)(path) == "     1\tinside"
    assert told(EditFileTool(confined)(path, "inside", "changed")).startswith("Replaced 1")
    assert (base / "inside.txt").read_text() == "changed\n"
    assert told(WriteFileTool(confined)(path, "new")).startswith("Replaced")
    assert (base / "inside.txt").read_text() == "new"
    assert (base / "file_in").is_symlink()


def test_a_base_directory_that_is_itself_a_link_works(base: Path, opener: Opener) -> None:
    door = base.parent / "door"
    door.symlink_to("base")
    confined = ConfinedDirectory(door, opener)

    for path in ("inside.txt", f"{door}/inside.txt", f"{base}/inside.txt"):
        assert ReadFileTool(confined)(path) == "     1\tinside"


def test_a_link_to_a_missing_file_inside_makes_it(base: Path, opener: Opener) -> None:
    answer = WriteFileTool(ConfinedDirectory(base, opener))("missing_in", "made")

    assert answer == "Created 'missing_in': 4 bytes, 1 line."
    assert (base / "new-by-link.txt").read_text() == "made"


@pytest.mark.parametrize(
    "path", ["file_out", "file_out_abs", "missing_out", "missing_out_abs", "missing_dir_out/x"]
)
def test_b261_a_link_that_leads_out_is_not_written_through(
    path: str, base: Path, opener: Opener
) -> None:
    before = sorted(os.listdir(base))
    answer = WriteFileTool(ConfinedDirectory(base, opener))(path, "x")

    assert "outside the base directory" in told(answer)
    assert sorted(os.listdir(base)) == before


@pytest.mark.parametrize("path", ["fifo", "socket"])
def test_special_files_are_refused_and_left_alone(path: str, base: Path, opener: Opener) -> None:
    confined = ConfinedDirectory(base, opener)
    kind = stat.S_IFMT((base / path).lstat().st_mode)
    answers = [
        ReadFileTool(confined)(path),
        WriteFileTool(confined)(path, "x"),
        EditFileTool(confined)(path, "x", "y"),
    ]

    for answer in answers:
        assert isinstance(answer, ToolFailure)
        assert "special file" in answer.message
    assert f"[special] {path}" in told(ListDirTool(confined)())
    assert stat.S_IFMT((base / path).lstat().st_mode) == kind


def test_writing_breaks_a_hard_link_instead_of_going_through_it(base: Path, opener: Opener) -> None:
    confined = ConfinedDirectory(base, opener)
    shared = base.parent / "shared.txt"
    shared.write_text("shared\n")
    for name in ("by_write", "by_edit"):
        os.link(shared, base / name)

    WriteFileTool(confined)("by_write", "changed")
    EditFileTool(confined)("by_edit", "shared", "changed")

    assert shared.read_text() == "shared\n"
    assert (base / "by_write").read_text() == "changed"
    assert (base / "by_edit").read_text() == "changed\n"


def test_links_in_a_listing_are_what_the_tools_see(base: Path, opener: Opener) -> None:
    lines = told(ListDirTool.in_directory(base, policy=FilePolicy(max_entries=200))()).splitlines()

    assert {"[dir] dir_in", "[file] file_in", "[closed link] dir_out", "[closed link] loop_a"} <= {
        *lines
    }


def test_no_descriptor_is_left_open(base: Path, opener: Opener) -> None:
    confined = ConfinedDirectory(base, opener)

    def everything() -> None:
        for case in PATHS[::12]:
            for _ in attacks(confined, path_of(case, base)):
                pass

    everything()
    before = len(os.listdir("/proc/self/fd"))
    everything()

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_base_directory_that_went_away_is_said(base: Path, opener: Opener) -> None:
    confined = ConfinedDirectory(base / "dir" / "deep", opener)
    (base / "dir" / "deep" / "file.txt").unlink()
    (base / "dir" / "deep" / "up_up_up").unlink()
    (base / "dir" / "deep").rmdir()

    assert told(ReadFileTool(confined)("x")) == "the base directory itself no longer exists"


def test_a_base_directory_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not an existing directory"):
        ConfinedDirectory(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="is not an existing directory"):
        ConfinedDirectory(tmp_path / "file")

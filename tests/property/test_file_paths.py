"""Whatever text is given as a path, both ways of opening beneath a directory agree, and what they
open lies in it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.capabilities.files import (
    ConfinedDirectory,
    ListDirTool,
    ReadFileTool,
    SearchFilesTool,
    WriteFileTool,
)
from stepwell.capabilities.files.openat import READ_FILE, Opener, best_opener, openat2, walk
from stepwell.capabilities.files.refusals import FileRefused
from stepwell.tools import ToolFailure
from tests.examples import examples

CANARY = "CANARY-93d1-outside"
DIRECTORIES = ("a", "a/b", "c", "..d")
FILES = ("f", "a/f", "a/b/f", "c/f", "~", "..d/f", "é", "a/ ")

names = st.sampled_from(
    [*"abcf", "..", "..", ".", "", "..d", "~", "é", " ", "l1", "l2", "l3", "out", "outside", "base"]
)
targets = st.lists(names, min_size=1, max_size=4).map("/".join).filter(bool)
links = st.dictionaries(
    st.sampled_from(["l1", "l2", "l3", "a/l1", "a/b/l2", "c/l3"]),
    targets | targets.map(lambda path: f"/{path}"),
    max_size=6,
)
paths = (
    st.lists(names, min_size=1, max_size=8).map("/".join)
    | st.lists(names | st.text(max_size=5), min_size=1, max_size=5).map("/".join)
    | st.text()
)
OPENERS: tuple[Opener, ...] = (openat2, walk) if best_opener() is openat2 else (walk,)


@contextmanager
def tree(links: dict[str, str]) -> Iterator[Path]:
    with TemporaryDirectory() as outer:
        base, outside = Path(outer).resolve() / "base", Path(outer).resolve() / "outside"
        base.mkdir()
        for directory in DIRECTORIES:
            (base / directory).mkdir()
        for file in FILES:
            (base / file).write_text("inside\n")
        outside.mkdir()
        for secret in ("f", "a"):
            (outside / secret).write_text(CANARY)
        (base / "out").symlink_to("../outside")
        for link, target in links.items():
            (base / link).symlink_to(target)
        yield base


def opened(base: Path, opener: Opener, path: str) -> str | None:
    """The real path of what was opened, as the kernel tells it."""
    confined = ConfinedDirectory(base, opener)
    try:
        descriptor = confined.descriptor(confined.names(path), READ_FILE)
    except (OSError, FileRefused):
        return None
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the kernel must name descriptors")
@given(links=links, tried=st.lists(paths, min_size=1, max_size=20))
@settings(max_examples=examples(150), deadline=None)
def test_what_is_opened_is_inside_and_the_same_either_way(
    links: dict[str, str], tried: list[str]
) -> None:
    with tree(links) as base:
        for path in tried:
            found = {opened(base, opener, path) for opener in OPENERS}
            assert len(found) == 1, path
            real = found.pop()
            assert real is None or Path(real) == base or base in Path(real).parents
            if real is not None and not path.startswith("/"):
                assert os.path.realpath(base / path) == real


@given(links=links, tried=st.lists(paths, min_size=1, max_size=10))
@settings(max_examples=examples(60), deadline=None)
def test_no_tool_shows_or_changes_what_is_outside(links: dict[str, str], tried: list[str]) -> None:
    with tree(links) as base:
        outside = base.parent / "outside"
        for path in tried:
            for opener in OPENERS:
                confined = ConfinedDirectory(base, opener)
                answers = [
                    ReadFileTool(confined)(path),
                    ListDirTool(confined)(path),
                    SearchFilesTool(confined)(path, contains="CAN"),
                    WriteFileTool(confined)(path, "written"),
                    ReadFileTool(confined)(path),
                ]
                assert CANARY not in str(answers)
                assert all(isinstance(answer, str | ToolFailure) for answer in answers)
        assert {p.name: p.read_text() for p in outside.iterdir()} == {"f": CANARY, "a": CANARY}
        assert sorted(p.name for p in base.parent.iterdir()) == ["base", "outside"]

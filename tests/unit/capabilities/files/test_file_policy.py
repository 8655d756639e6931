"""Limits are checked when they are set, and words for failures say what to do."""

import errno

import pytest

from stepwell.capabilities.files import FilePolicy, ReadFileTool
from stepwell.capabilities.files.openat import names_of
from stepwell.capabilities.files.refusals import explain_error, printable, quote
from stepwell.errors import ConfigurationError

LIMITS = [name for name in FilePolicy.__struct_fields__ if name.startswith("max_")]


def test_there_are_limits() -> None:
    assert len(LIMITS) == 9


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("value", [0, -1, 1.5, "10", None, True])
def test_a_limit_is_a_number_above_zero(limit: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{limit} must be"):
        FilePolicy(**{limit: value})  # type: ignore[arg-type]


def test_skipped_directories_are_a_list() -> None:
    assert FilePolicy(skipped_directories=["a"]).skipped_directories == ("a",)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="skipped_directories"):
        FilePolicy(skipped_directories="a")  # type: ignore[arg-type]


def test_a_tool_wants_a_confined_directory() -> None:
    with pytest.raises(ConfigurationError, match=r"Write ReadFileTool\.in_directory\(path\)"):
        ReadFileTool("src")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "'a' does not exist"),
        (errno.EXDEV, "'a' is outside the base directory"),
        (errno.ENOSPC, "'a' can't be written: the disk is full"),
        (errno.EIO, "'a' can't be used: Input/output error"),
        (None, "'a' can't be"),
    ],
)
def test_what_the_system_says_becomes_words(number: int | None, words: str) -> None:
    error = OSError() if number is None else OSError(number, "")

    assert explain_error(error, "a").startswith(words)


def test_names_and_paths_are_shown_safely() -> None:
    assert printable("a\n\tb\x1b") == "a\\n\\tb\\x1b"
    assert printable("a\\nb") == "a\\\\nb"
    assert len(quote("x" * 10_000)) == 202
    assert names_of("/a/./b//../c/") == ("a", "b", "..", "c")
    assert names_of(".") == names_of("/") == ()

"""Path patterns, without a disk."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.capabilities.files.patterns import PathPattern, alternatives
from stepwell.capabilities.files.refusals import FileRefused
from tests.examples import examples


def matches(pattern: str, path: str) -> bool:
    return PathPattern(pattern).matches(tuple(path.split("/")))


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", "a.py"),
        ("**/*.py", "a.py"),
        ("a/**/b/**/c", "a/b/c"),
        ("a/**/b/**/c", "a/x/b/y/z/c"),
        ("a/**", "a/b/c"),
        ("**", "a/b"),
        ("**/a", "a"),
        ("a**b", "axxb"),
        ("{a,b}/*", "b/x"),
        ("{a,b{c,d}}.txt", "bd.txt"),
        ("{a}.txt", "{a}.txt"),
        ("a{b", "a{b"),
        ("[!a].txt", "b.txt"),
        ("[id].tsx", "[id].tsx"),
        ("[id].tsx", "d.tsx"),
        ("./src/*.py", "src/a.py"),
        ("src//*.py", "src/a.py"),
        ("Config", "etc/CONFIGURATION.md"),
        ("./src", "src/a"),
        ("./a.py", "a.py"),
        ("src/a.py", "src/a.py"),
        ("src/", "src/deep/a.py"),
        (".", "src/a.py"),
        ("./", "a.py"),
        ("a.py", "src/a.py"),
        ("*", "a.py"),
    ],
)
def test_it_matches(pattern: str, path: str) -> None:
    assert matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", "a.pyc"),
        ("*.PY", "a.py"),
        ("src/*.py", "src/deep/a.py"),
        ("src/**/*.ts", "lib/src/a.ts"),
        ("src/**/*.test.ts", "src/a.ts"),
        ("a/**/b", "a/b/c"),
        ("a/**", "a"),
        ("{a,b}/*", "c/x"),
        ("**/a/*", "a"),
        ("?", "ab"),
        ("config", "conf"),
        ("*.py", "src/a.py"),
        ("*", "src/a.py"),
        ("{a,b}.py", "src/a.py"),
        ("./a.py", "src/a.py"),
        ("./a.py", "a.pyc"),
        ("src/a.py", "lib/src/a.py"),
        ("src/", "lib/src/a.py"),
        ("./src", "srcs/a.py"),
    ],
)
def test_it_does_not_match(pattern: str, path: str) -> None:
    assert not matches(pattern, path)


@pytest.mark.parametrize(
    ("pattern", "directory"),
    [("src/**/*.ts", "lib"), ("src/*.ts", "src/deep"), ("{a,b}/x/*", "a/y"), ("./*.py", "src")],
)
def test_other_directories_are_left_alone(pattern: str, directory: str) -> None:
    assert not PathPattern(pattern).may_match_beneath(tuple(directory.split("/")))


def test_a_pattern_names_directories_letter_by_letter() -> None:
    assert PathPattern("node_modules/**/*.ts").names("node_modules")
    assert PathPattern("{.git,x}/*").names(".git")
    assert not PathPattern("node_*/**").names("node_modules")


def test_braces_are_written_out() -> None:
    assert alternatives("a{b,c}d{e,f}") == ["abde", "abdf", "acde", "acdf"]
    assert alternatives("{a,}x") == ["ax", "x"]
    assert alternatives("}{x{y,z}") == ["}{xy", "}{xz"]


@pytest.mark.parametrize(
    "pattern",
    ["", "/", "a\0", "../a", "a/../b", "{..,a}/b", "x" * 501, "{a,b}" * 7, "{" + "," * 99 + "}"],
)
def test_what_can_be_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(FileRefused):
        PathPattern(pattern)


def test_hostile_patterns_take_no_time() -> None:
    name = "a" * 255

    assert not matches("*a" * 200 + "b", name)
    assert not matches("**/" * 100 + "b", "/".join(["a"] * 200))
    assert not matches("{" * 500, name)


words = st.text("ab.*?[]{},/!-", max_size=20)


@given(pattern=words, path=st.lists(st.text("ab.", min_size=1, max_size=3), min_size=1, max_size=5))
@settings(max_examples=examples(500))
def test_what_matches_is_always_reached_by_walking_down(pattern: str, path: list[str]) -> None:
    try:
        wanted = PathPattern(pattern)
    except FileRefused:
        return
    if wanted.matches(path):
        assert all(wanted.may_match_beneath(path[:n]) for n in range(len(path)))

"""The files of the page: small, plain, and without anything that a strict policy would stop."""

import re
from pathlib import Path

import pytest

import stepwell

UI = Path(stepwell.__file__).parent / "ui"
PAGE = sorted((UI / "page").rglob("*.js"))
STYLES = sorted([*UI.glob("*.css"), *(UI / "page").rglob("*.css")])
LONGEST = 400
FORBIDDEN = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|srcdoc|eval|Function)\s*[=(]"
    r"|document\.write|DOMParser|createContextualFragment|\bon[a-z]+=\""
)
REMOTE = re.compile(r"(?:https?:)?//[a-z0-9-]+\.[a-z]{2,}", re.IGNORECASE)
IMPORT = re.compile(r"(?:\bfrom|\bimport\()\s*\"([^\"]+)\"")


def named(file: Path) -> str:
    return file.relative_to(UI).as_posix()


@pytest.mark.parametrize("file", PAGE, ids=named)
def test_a_module_makes_no_markup_from_text_and_asks_nobody_else(file: Path) -> None:
    source = file.read_text(encoding="utf-8")

    assert FORBIDDEN.search(source) is None
    assert REMOTE.search(source) is None
    assert len(source.splitlines()) <= LONGEST
    assert source.startswith("/**")


@pytest.mark.parametrize("file", PAGE, ids=named)
def test_a_module_imports_files_that_are_there(file: Path) -> None:
    wanted = IMPORT.findall(file.read_text(encoding="utf-8"))

    assert [name for name in wanted if not name.startswith(("./", "../"))] == []
    assert [name for name in wanted if not (file.parent / name).is_file()] == []
    allowed = [name for name in wanted if "/vendor/" in name]
    assert not allowed or file.name in {"html.js", "markdown_lexer.js"}


@pytest.mark.parametrize("file", STYLES, ids=named)
def test_a_style_sheet_loads_nothing(file: Path) -> None:
    source = file.read_text(encoding="utf-8")

    assert re.search(r"@import|url\(|@font-face", source) is None
    assert REMOTE.search(source) is None


def test_the_first_file_has_no_script_or_style_of_its_own_and_names_files_that_are_there() -> None:
    source = (UI / "index.html").read_text(encoding="utf-8")

    assert re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", source) is None
    named_files = re.findall(r"(?:src|href)=\"([^\"]+)\"", source)
    assert len(named_files) >= 4
    assert [name for name in named_files if not name.startswith("ui/")] == []
    assert [name for name in named_files if not (UI.parent / name).is_file()] == []


def test_every_colour_is_there_for_both_themes() -> None:
    source = (UI / "style.css").read_text(encoding="utf-8")
    tokens = re.search(r":root \{(.*?)\n\}", source, re.DOTALL)
    assert tokens is not None
    colours = dict(re.findall(r"(--[\w-]+): ([^;]*(?:#|rgb)[^;]*);", tokens[1]))

    assert {"--bg", "--text", "--accent", "--danger", "--shadow"} <= set(colours)
    assert [name for name, value in colours.items() if "light-dark(" not in value] == []

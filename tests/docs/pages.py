"""The pages of the docs as the tests of this folder read them: headings, links, tables."""

import re
from collections.abc import Iterator
from pathlib import Path

from markdown.extensions.toc import slugify

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1 *$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and code hosts make them."""
    plain = (
        re.sub(r"[`*]|\[(.*?)\]\(.*?\)", r"\1", each) for each in _HEADING.findall(prose(page))
    )
    return {slugify(heading, "-") for heading in plain}


def links(page: Path) -> Iterator[str]:
    """Where a page points to within the repository."""
    # What looks like a link inside of `code` is none.
    for target in _LINK.findall(re.sub(r"(?<!\[)`[^`\n]*`(?!\])", "", prose(page))):
        if not target.startswith(("http://", "https://", "mailto:")):
            yield target


def rows(page: Path) -> Iterator[tuple[str, ...]]:
    """The rows of a page's tables, headings and rules left out."""
    lines = prose(page).splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        is_heading = bool(lines) and not before.startswith("|")
        if line.startswith("|") and not is_heading and not line.startswith("|---"):
            yield tuple(cell.strip() for cell in line.strip("|").split(" | "))


def words(text: str) -> list[str]:
    """What stands in backquotes."""
    return _CODE.findall(text)

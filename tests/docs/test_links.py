"""Every link of the docs and the README leads somewhere, and every page can be found."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, links

TOP = sorted(ROOT.glob("*.md"))


def faults(page: Path) -> Iterator[str]:
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists():
            yield f"{target}: there is no such file"
        elif page.is_relative_to(DOCS) and not found.is_relative_to(DOCS):
            yield f"{target}: is not part of the site"
        elif anchor and found.suffix == ".md" and anchor not in anchors(found):
            yield f"{target}: there is no such heading"


def nav_pages(nav: Any) -> Iterator[str]:
    for each in nav:
        for value in each.values() if isinstance(each, dict) else [each]:
            if isinstance(value, str):
                yield value
            else:
                yield from nav_pages(value)


@pytest.mark.parametrize("page", [*TOP, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(faults(page)) == []


def test_a_wrong_link_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n\n[a](gone.md) [b](#none) [c](#one-two) [d](https://x.org/y)\n")

    assert list(faults(page)) == [
        "gone.md: there is no such file",
        "#none: there is no such heading",
    ]


def test_every_page_is_in_the_navigation_once() -> None:
    config = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    listed = list(nav_pages(config["project"]["nav"]))

    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


def test_every_page_is_in_llms_txt_once_with_a_line_about_it() -> None:
    lines = (ROOT / "llms.txt").read_text(encoding="utf-8").splitlines()
    listed = [line.partition("](")[2].partition("):") for line in lines if line.startswith("- [")]

    assert sorted(path for path, _, _ in listed) == sorted(
        page.relative_to(ROOT).as_posix() for page in PAGES
    )
    assert all(about.strip() for _, _, about in listed)


def test_llms_txt_begins_with_a_title_and_a_summary() -> None:
    title, blank, summary = (ROOT / "llms.txt").read_text(encoding="utf-8").splitlines()[:3]

    assert title == "# Stepwell"
    assert blank == ""
    assert summary.startswith("> ")


def test_every_decision_is_in_their_list() -> None:
    listed = list(links(DOCS / "decisions/index.md"))

    assert listed == [page.name for page in PAGES if page.parent.name == "decisions"][:-1]

"""Stepwell is on no package index yet: whoever types what the docs say must get it from a clone."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, PAGES, ROOT, anchors, links, prose

INSTALL_PAGE = DOCS / "learn/first-agent.md"
SCAFFOLD = ROOT / "src/stepwell/app/scaffold/files/README.md.txt"
TEXTS = [*sorted(ROOT.glob("*.md")), *PAGES, ROOT / "llms.txt", SCAFFOLD]

_TYPED = re.compile(r"^ *```(?:bash|sh|console|shell)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_BY_NAME = re.compile(r"pip3? install [^#`\n]*?(?<![\w./-])stepwell\b(?!/)[^\s`]*")
_EXTRA_BY_NAME = re.compile(r"stepwell\[[\w,-]+\]['\"]?$")


def faults(page: Path, text: str, prose_text: str, targets: list[str]) -> Iterator[str]:
    """Commands that ask an index for Stepwell. Only prose may add an extra by name, to a Stepwell
    that is there already, and only where it says how that comes about."""
    for block in _TYPED.findall(text):
        yield from (f"typed: {found}" for found in _BY_NAME.findall(block))
    says_how = page == INSTALL_PAGE or any(each.endswith("#install") for each in targets)
    for found in _BY_NAME.findall(prose_text):
        if not _EXTRA_BY_NAME.search(found):
            yield f"by name: {found}"
        elif not says_how:
            yield f"an extra, without a link to how Stepwell is installed: {found}"


def test_there_is_one_place_that_says_how_to_install() -> None:
    assert "install" in anchors(INSTALL_PAGE)
    assert 'pip install "./stepwell[server,sandbox]"' in INSTALL_PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_nobody_is_told_to_install_it_by_its_name(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert list(faults(page, text, prose(page), list(links(page)))) == []


@pytest.mark.parametrize(
    "command",
    [
        "pip install stepwell",
        "pip install 'stepwell[server]'",
        'pip install "stepwell[pydantic-ai]" "pydantic-ai-slim[bedrock]"',
        "/opt/venv/bin/pip install --upgrade stepwell",
    ],
)
def test_a_command_that_fails_would_be_found(command: str) -> None:
    page = DOCS / "page.md"

    assert len(list(faults(page, f"```bash\n{command}\n```\n", "", ["a.md#install"]))) == 1
    assert len(list(faults(page, "", f"Type `{command}`.", []))) == 1


@pytest.mark.parametrize(
    "command",
    [
        'pip install "./stepwell[server]"    # ./stepwell is the path of the clone',
        "pip install /srv/stepwell",
        "pip install my-stepwell-tools",
        "pip install pytest  # stepwell needs it for its tests",
    ],
)
def test_a_command_that_works_is_let_pass(command: str) -> None:
    assert list(faults(DOCS / "page.md", f"```bash\n{command}\n```\n", command, [])) == []


def test_an_extra_by_name_is_let_pass_where_installing_is_explained() -> None:
    sentence = "`pip install 'stepwell[redis]'` adds it."

    assert list(faults(DOCS / "page.md", "", sentence, ["../learn/first-agent.md#install"])) == []
    assert list(faults(INSTALL_PAGE, "", sentence, [])) == []


def test_every_extra_is_told_of_where_installing_is_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    told = re.findall(r"^\| `([\w-]+)` \|", prose(INSTALL_PAGE), re.MULTILINE)

    assert sorted(told) == sorted(project["optional-dependencies"])

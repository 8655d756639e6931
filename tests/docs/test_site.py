"""The site is built for real: strictly, with every public name, and nothing from elsewhere."""

import re
import runpy
import shutil
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import stepwell
import stepwell.app
import stepwell.events
import stepwell.testing
from stepwell.public import MOVED_TO
from tests.browser.chromium import FLAGS, found_chromium, why_missing
from tests.docs.pages import DOCS, PAGES, ROOT

BUILD = runpy.run_path(str(DOCS / ".site/build.py"))
LOADING = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
LINKS_THAT_LOAD = {"stylesheet", "preload", "prefetch", "preconnect", "dns-prefetch", "icon"}


class Page(HTMLParser):
    """What a built page loads, says and links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.sections = self._codes = 0
        self.text = self.prose = ""
        self.feed(text)

    def handle_data(self, data: str) -> None:
        self.text += data
        if not self._codes:
            self.prose += data

    def handle_endtag(self, tag: str) -> None:
        self._codes -= tag == "code"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.sections += tag == "h2"
        self._codes += tag == "code"
        if "id" in given:
            self.ids.add(given["id"])
        if tag in LOADING and given.get(LOADING[tag]):
            self.loads.append(given[LOADING[tag]])
        if tag == "link" and LINKS_THAT_LOAD & set(given.get("rel", "").split()):
            self.loads.append(given.get("href", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


def is_elsewhere(address: str) -> bool:
    return bool(re.match(r"(?:[a-z]+:)?//", address))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("docs")
    shutil.copytree(DOCS, root / "docs")
    for name in ("zensical.toml", "llms.txt"):
        shutil.copy(ROOT / name, root)
    (root / "src").symlink_to(ROOT / "src")
    assert BUILD["built"](root) == 0
    return root / "site"


@pytest.fixture(scope="module")
def built(site: Path) -> dict[str, Page]:
    found = site.rglob("*.html")
    return {str(p.relative_to(site)): Page(p.read_text(encoding="utf-8")) for p in found}


def test_every_page_was_built(built: dict[str, Page]) -> None:
    wanted = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in PAGES}

    assert wanted - set(built) == set()


def test_the_site_has_llms_txt_with_addresses_of_its_own(site: Path) -> None:
    listed = re.findall(r"\]\((.*?)\)", (site / "llms.txt").read_text(encoding="utf-8"))

    assert len(listed) == len(PAGES)
    assert [address for address in listed if not (site / address).is_file()] == []


def test_no_page_loads_anything_from_elsewhere(site: Path, built: dict[str, Page]) -> None:
    sheets = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    by_sheets = [each for text in sheets for each in re.findall(r"url\((?!data:)(.*?)\)", text)]
    by_pages = [each for page in built.values() for each in page.loads]

    assert sheets
    assert by_pages
    assert [each for each in by_pages + by_sheets if is_elsewhere(each.strip("'\""))] == []


def broken_links(site: Path, built: dict[str, Page], name: str) -> Iterator[str]:
    for link in built[name].links:
        path, _, anchor = link.partition("#")
        if is_elsewhere(link) or link.startswith("mailto:"):
            continue
        target = (site / name).parent / path if path else site / name
        target = (target / "index.html" if target.is_dir() else target).resolve()
        page = built.get(str(target.relative_to(site.resolve())))
        if not target.is_file() or (anchor and page and anchor not in page.ids):
            yield f"{name}: {link}"


def test_links_between_built_pages_lead_somewhere(site: Path, built: dict[str, Page]) -> None:
    pages = [name for name in built if name != "404.html"]  # whose links are for any folder

    assert [broken for name in pages for broken in broken_links(site, built, name)] == []


def test_every_public_name_is_in_the_reference(built: dict[str, Page]) -> None:
    ids = {each for name, page in built.items() if "reference/api/" in name for each in page.ids}
    rooms: tuple[Any, ...] = (stepwell, stepwell.app, stepwell.events, stepwell.testing)
    names = [f"{room.__name__}.{name}" for room in rooms for name in room.__all__]
    names += [f"{room}.{name}" for name, room in MOVED_TO.items()]

    assert [name for name in names if name not in ids] == []


def test_every_block_of_code_and_every_heading_was_understood(built: dict[str, Page]) -> None:
    def headings(path: Path) -> int:
        text = re.sub(r"(?ms)^( *)```.*?^\1```", "", path.read_text(encoding="utf-8"))
        return len(re.findall(r"(?m)^## ", text))

    shown = {path: built[path.relative_to(DOCS).with_suffix(".html").as_posix()] for path in PAGES}

    assert [path.name for path, page in shown.items() if "```" in page.prose] == []
    assert [path.name for path, page in shown.items() if page.sections < headings(path)] == []


def test_classes_are_shown_with_what_they_are_made_of(built: dict[str, Page]) -> None:
    text = " ".join(built["reference/api/agent.html"].text.split())

    assert re.search(r"Agent ?\( ?model.*max_parallel_tools", text)


def test_doctests_of_docstrings_are_shown_as_code(site: Path) -> None:
    page = (site / "reference/api/continuation.html").read_text(encoding="utf-8")

    assert "language-pycon" in page
    assert "<p>&gt;&gt;&gt;" not in page


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests speak for it."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.skipif(why_missing() is not None, reason=str(why_missing()))
async def test_a_browser_asks_nobody_else(address: str) -> None:
    from playwright.async_api import async_playwright

    asked: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=found_chromium(), args=list(FLAGS)
        )
        page = await browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        for path in ("index.html", "learn/tools.html", "reference/api/agent.html"):
            await page.goto(f"{address}/{path}", wait_until="networkidle")
            assert await page.locator("h1").count() == 1
        await browser.close()

    assert len(asked) > 3
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []

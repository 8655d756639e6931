"""Loads the page and every file it references, and checks that none is remote."""

import re
from html.parser import HTMLParser
from posixpath import dirname, normpath

from stepwell.cli.demo.visitor import Missing, Visitor

_IMPORTS = re.compile(
    r"""(?:\bfrom|\bimport)\s*\(?\s*(["'])(?P<path>[^"'\n]+)\1(?=\s*[;)\n]|$)""", re.MULTILINE
)
_CSS = re.compile(r"""(?:@import\s+|url\(\s*)["']?(?P<path>[^"')\s;]+)""")
_ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
_NEEDED = ("default-src 'none'", "script-src 'self'", "connect-src 'self'", "trusted-types")


class _Named(HTMLParser):
    """Collects the addresses that a document loads."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the element loads."""
        for name, value in attrs:
            if value and (name == "src" or (name == "href" and tag == "link")):
                self.paths.append(value)


def named_in(path: str, text: str) -> list[str]:
    """Return the files that a file loads, relative to the page.

    >>> named_in("ui/page/main.js", 'import { html } from "./html.js";')
    ['ui/page/html.js']
    """
    if path.endswith(".js"):
        found = [match["path"] for match in _IMPORTS.finditer(text)]
    elif path.endswith(".css"):
        found = [match["path"] for match in _CSS.finditer(text)]
    else:
        parser = _Named()
        parser.feed(text)
        found = parser.paths
    found = [each for each in found if not each.startswith(("data:", "#"))]
    for each in found:
        if _ELSEWHERE.match(each) or each.startswith("/"):
            raise Missing(f"{path or 'the page'} loads {each}, which is not a file of the page")
    return [normpath(f"{dirname(path)}/{each}").lstrip("/") for each in found]


async def page_loads(visitor: Visitor) -> str:
    """Load the page and all its files; report their number and size."""
    waiting, sizes = [""], dict[str, int]()
    while waiting:
        path = waiting.pop()
        if path in sizes:
            continue
        response = await visitor.page(path)
        if response.status_code != 200:
            raise Missing(f"{path or 'the page'} answered {response.status_code}")
        policy = response.headers.get("content-security-policy", "")
        if lacking := [need for need in _NEEDED if need not in policy]:
            raise Missing(f"the policy of {path or 'the page'} lacks {', '.join(lacking)}")
        sizes[path] = len(response.content)
        waiting += named_in(path, response.text)
    if len(sizes) == 1:
        raise Missing("the page loads no script")
    return f"{len(sizes)} files, {sum(sizes.values()) / 1024:.0f} KB, none from elsewhere"

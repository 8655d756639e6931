"""A real Chromium, real servers, and a watch over every page: each test fails if its page asked
anything of another server, broke its own content policy, logged an error or opened a dialog.

Everything here is synchronous: Playwright's own loop runs between its calls, so a browser lives for
one module, in which no test is async.
"""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright

from tests.browser.chromium import FLAGS, found_chromium, why_missing
from tests.browser.serving import Server, serving
from tests.browser.watching import SECONDS, Watched

NewPage = Callable[..., Watched]

# What is expected has a patience of its own, beside the one of a context: 5 s unless told.
expect.set_options(timeout=SECONDS * 1000)


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """The driver."""
    if reason := why_missing():
        pytest.skip(reason)
    with sync_playwright() as driver:
        yield driver


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """One Chromium for a module; its pages share nothing."""
    browser = playwright.chromium.launch(executable_path=found_chromium(), args=list(FLAGS))
    try:
        yield browser
    finally:
        browser.close()


@pytest.fixture(scope="module")
def server(browser: Browser) -> Iterator[Server]:
    """One server for a module, with the agents of `apps`; there is none where the browser lacks."""
    with serving() as running:
        yield running


@pytest.fixture
def new_page(browser: Browser) -> Iterator[NewPage]:
    """Opens watched pages; they are looked at once more and closed when the test ends."""
    opened: list[Watched] = []

    def open_page(server: Server, route: str = "", **options: object) -> Watched:
        watched = Watched(browser, server, options)
        opened.append(watched)
        watched.open(route)
        return watched

    try:
        yield open_page
        for watched in opened:
            watched.check()
    finally:
        for watched in opened:
            watched.close()

"""A page under watch: what it asked for, what it complained of, and what it broke."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Frame, Page, Request

from tests.browser.serving import ROOT, Server

ARTEFACTS = ROOT / "test-artefacts" / "browser"
SECONDS = 90.0

# Runs before any script of the page, outside of its content policy.
_LISTEN = """
globalThis.brokenPolicies = [];
addEventListener("securitypolicyviolation", (event) => brokenPolicies.push(
  `${event.effectiveDirective} ${event.blockedURI} ${event.sample} ${event.sourceFile}`));
"""


class Watched:
    """One page in a fresh profile. `check` says what must not have happened."""

    def __init__(self, browser: Browser, server: Server, options: dict[str, Any]) -> None:
        self.server = server
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(SECONDS * 1000)
        self.context.add_init_script(_LISTEN)
        self.requests: list[str] = []
        self.faults: list[str] = []
        self.allowed: list[re.Pattern[str]] = []
        self.pages: list[Page] = []
        self.context.on("page", self._opened)
        self.page = self.tab()

    def tab(self) -> Page:
        """Another tab of the same profile."""
        page = self.context.new_page()
        self.pages.append(page)
        return page

    def open(self, route: str = "") -> None:
        """Go to a route of the page, such as ``#/s/<session>``."""
        self.page.goto(f"{self.server.url}{route}", wait_until="domcontentloaded")

    def allow(self, pattern: str) -> None:
        """Such a complaint belongs to the test."""
        self.allowed.append(re.compile(pattern))

    def check(self) -> None:
        """Fails if anything happened that must not."""
        for page in self.pages:
            if not page.is_closed():
                self._look_for_broken_policies(page)
        foreign = [url for url in self.requests if not self._is_own(url)]
        faults = [
            fault for fault in self.faults if not any(each.search(fault) for each in self.allowed)
        ]
        assert not foreign, f"requests to other servers: {foreign}"
        assert not faults, f"the page: {faults}"

    def close(self) -> None:
        """Close all of its tabs; what they did is still known to `check`."""
        for page in self.pages:
            if not page.is_closed():
                self._look_for_broken_policies(page)
        self.context.close()

    def _look_for_broken_policies(self, page: Page) -> None:
        broken: list[str] = page.evaluate("globalThis.brokenPolicies.splice(0)")
        self.faults += [f"content policy: {each}" for each in broken]

    def shot(self, name: str) -> None:
        """Keep a picture of what is seen now, for people."""
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=Path(ARTEFACTS / f"{name}.png"))

    def _is_own(self, url: str) -> bool:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc}" == self.server.origin

    def _opened(self, page: Page) -> None:
        page.on("request", self._asked)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error.stack}"))
        page.on("dialog", self._dialog)
        page.on("framenavigated", self._navigated)
        page.on("popup", lambda popup: self.faults.append(f"a new window: {popup.url}"))

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text} {message.location}")

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _navigated(self, frame: Frame) -> None:
        if frame.parent_frame is not None:
            self.faults.append(f"a frame: {frame.url}")
        elif frame.url != "about:blank" and not self._is_own(frame.url):
            self.faults.append(f"went to {frame.url}")

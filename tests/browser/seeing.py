"""What a person sees of the page, and does with it. The only place that knows its elements."""

import re
from typing import Any, NamedTuple

from playwright.sync_api import Locator, Page, expect

from stepwell.clock import SystemClock
from tests.browser.serving import Server, until
from tests.browser.watching import SECONDS, Watched

# What is shown of the thread, row by row, without what only screen readers get. What subagents
# said is not stored, so it is left out here.
_ROWS = """() => {
  const shown = "[data-thread] .messages > :is([data-role], [data-end], [data-asking])";
  return [...document.querySelectorAll(shown)].map((row) => {
    const { role, state, end, asking } = row.dataset;
    const copy = row.cloneNode(true);
    const unseen = ".sr-only, .children, .whole, .md-copy, .markdown-copy";
    for (const gone of copy.querySelectorAll(unseen)) gone.remove();
    const named = ".tool-name, .tool-summary, .tool-time, .tool-error";
    const text = role === "tool"
      ? [...copy.querySelectorAll(named)].map((one) => one.textContent.trim()).join(" | ")
      : copy.textContent;
    const kind = role ?? (end ? "end" : asking ? "asking" : "?");
    return [kind, state ?? "", text.replace(/\\s+/g, " ").trim()];
  });
}"""
_CLOCK = SystemClock()
_KINDS = {"end": "[data-end]", "asking": "[data-asking]"}


class Row(NamedTuple):
    """One row of the thread."""

    kind: str
    state: str
    text: str


class Chat:
    """The thread in one tab."""

    def __init__(self, watched: Watched, page: Page | None = None) -> None:
        self.page = page or watched.page
        self.server: Server = watched.server

    @property
    def session(self) -> str:
        """The session that is open, by the address."""
        # Asked of the page itself: Playwright's `url` is as old as its last call.
        found = re.search(r"#/s/([^/?]+)", self.page.evaluate("location.hash"))
        return found[1] if found else ""

    @property
    def execution(self) -> str:
        """The newest execution of it."""
        return self.server.get(f"agent/sessions/{self.session}")["last_execution_id"]

    def say(self, text: str) -> str:
        """Type a message and send it; gives the session's id."""
        field = self.page.get_by_role("textbox", name="Message")
        field.fill(text)
        field.press("Enter")
        expect(self.row("user").last).to_contain_text(text)
        return until(lambda: self.session, what="a session in the address")

    def row(self, kind: str) -> Locator:
        """All rows of a kind: user, assistant, tool, status, asking, end."""
        return self.page.locator(f".messages > {_KINDS.get(kind, f'[data-role={kind}]')}")

    @property
    def answer(self) -> Locator:
        """The newest text of the assistant."""
        return self.row("assistant").last

    def tool(self, name: str) -> Locator:
        """The blocks of that tool."""
        return self.page.locator(f'[data-role=tool][data-tool="{name}"]')

    def end_of(self, execution: str) -> Locator:
        """The row behind an execution that is over."""
        return self.page.locator(f'[data-end="{execution}"]')

    def ended(self, seconds: float = SECONDS) -> str:
        """Waits until the page shows the newest execution as over; gives its id."""
        execution = self.execution
        expect(self.end_of(execution)).to_be_visible(timeout=seconds * 1000)
        return execution

    def rows(self) -> list[Row]:
        """The whole thread, as it is seen now."""
        seen: list[Any] = self.page.evaluate(_ROWS)
        return [Row(*each) for each in seen]

    def settles_as(self, wanted: list[Row]) -> None:
        """What was streamed gives way to what is stored, and both are the same in the end."""
        begun = _CLOCK.monotonic()
        while (seen := self.rows()) != wanted and _CLOCK.monotonic() - begun < SECONDS:
            self.page.wait_for_timeout(50)
        assert seen == wanted

    def text(self) -> str:
        """What the newest answer says by now."""
        answer = self.page.locator("[data-role=assistant] .markdown").last
        return (answer.text_content() or "") if answer.count() else ""


def thread_of(server: Server, new_page: Any, session: str) -> list[Row]:
    """The thread as a fresh page shows it, once it is loaded."""
    watched: Watched = new_page(server, f"#/s/{session}")
    chat = Chat(watched)
    expect(chat.row("user").first).to_be_visible()
    chat.ended()
    return chat.rows()


def words_of(rows: list[Row]) -> list[str]:
    """The words of the story in all answers, in order."""
    return re.findall(r"w\d{3}", " ".join(row.text for row in rows if row.kind == "assistant"))

"""For everybody: no axe violation in any main state, light and dark, wide and on a phone; and all
of it by keyboard alone.
"""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage
from tests.browser.seeing import Chat
from tests.browser.serving import ROOT, Server, until
from tests.browser.watching import Watched

AXE = ROOT / "tests" / "servers" / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", **PHONE},
    "phone-dark": {"color_scheme": "dark", **PHONE},
}

# Everything in view, or scrolled into it; the rules of WCAG 2.2 A and AA and the best practices.
RUN_AXE = """async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations.map(({ id, impact, nodes }) =>
    `${id} (${impact}): ` + nodes.slice(0, 5).map(({ target, failureSummary }) =>
      `${target.join(" ")} ${(failureSummary ?? "").slice(0, 250)}`).join("; "));
}"""
WIDER = """() => {
  const wide = document.documentElement.clientWidth;
  return [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > wide + 1 && one.checkVisibility()
      && !one.closest("pre, table, .sr-only, [tabindex]:not(main):not(.scroller)"))
    .slice(0, 5).map((one) => one.outerHTML.slice(0, 120));
}"""


def _violations(page: Page) -> list[str]:
    """By axe, put into the page through the debugger: the content policy stays as it is."""
    page.evaluate(AXE.read_text())
    return page.evaluate(RUN_AXE)


def _open_thread(words: str, waits_for: str = "") -> Callable[[Watched], None]:
    def open_it(watched: Watched) -> None:
        chat = Chat(watched)
        chat.say(words)
        if waits_for:
            expect(chat.page.locator(waits_for).first).to_be_visible()
        else:
            chat.ended()

    return open_it


def _open_tool(watched: Watched) -> None:
    _open_thread("mend it")(watched)
    chat = Chat(watched)
    chat.tool("measure").last.locator("summary").click()
    expect(chat.tool("measure").last.locator("[data-result]")).to_be_visible()


def _open_execution(watched: Watched) -> None:
    execution = watched.server.ran("delegate it")
    watched.open(f"#/x/{execution['id']}")
    page = watched.page
    expect(page.locator("[data-step]").first).to_be_visible()
    page.locator('[data-step="1"]').get_by_role("button").first.click()
    page.get_by_role("heading", name="Raw events").scroll_into_view_if_needed()
    expect(page.locator("[data-event]").first).to_be_attached()
    expect(page.locator("[data-diff]")).to_be_attached()
    page.get_by_role("heading", level=1).first.scroll_into_view_if_needed()


def _open_drawer(watched: Watched) -> None:
    button = watched.page.get_by_role("button", name="Conversations")
    if button.is_visible():
        button.click()
    expect(watched.page.get_by_role("searchbox")).to_be_visible()


def _open_nothing(watched: Watched) -> None:
    expect(watched.page.get_by_role("textbox", name="Message")).to_be_visible()


STATES: dict[str, Callable[[Watched], None]] = {
    "empty": _open_nothing,
    "thread": _open_thread("tell me"),
    "tool": _open_tool,
    "running": _open_thread("wait for it", "[data-state=running]"),
    "question": _open_thread("ask me", "[data-asking]"),
    "approval": _open_thread("remove it", "[data-asking]"),
    "error": _open_thread("fail please"),
    "execution": _open_execution,
    "drawer": _open_drawer,
}


# The others differ in colours only, or in size only.
FEW = {"phone-dark": ("thread", "execution", "drawer")}


@pytest.mark.parametrize("look", LOOKS)
def test_no_state_of_the_page_has_an_axe_violation(
    server: Server, new_page: NewPage, look: str
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: ./dev test installs it with npm")
    found: list[str] = []
    watched = new_page(server, **LOOKS[look])
    for name in FEW.get(look, tuple(STATES)):
        open_it = STATES[name]
        watched.open()
        watched.page.reload()
        open_it(watched)
        watched.shot(f"{look}-{name}")
        found += [f"{name}: {each}" for each in _violations(watched.page)]
        if "phone" in look:
            found += [f"{name}, too wide: {each}" for each in watched.page.evaluate(WIDER)]
    _end_what_runs(server)
    assert found == []


def test_axe_sees_what_is_wrong(server: Server, new_page: NewPage) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: ./dev test installs it with npm")
    page = new_page(server).page
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert any(each.startswith("button-name") for each in _violations(page))


def _end_what_runs(server: Server) -> None:
    for session in server.get("agent/sessions", limit=50)["items"]:
        execution = session["last_execution_id"]
        if execution and session.get("last_execution_status") in ("running", "pending", "paused"):
            server.post(f"agent/executions/{execution}/cancel", {})


def _tab_to(page: Page, what: str, key: str = "Tab", most: int = 200) -> None:
    """Press Tab until the focus is on an element that matches."""
    for _ in range(most):
        if page.evaluate("(what) => document.activeElement.matches(what)", what):
            seen = page.evaluate(
                "() => { const style = getComputedStyle(document.activeElement);"
                " return style.outlineStyle !== 'none' || style.boxShadow !== 'none'"
                " || Boolean(document.activeElement.closest(':focus-within')); }"
            )
            assert seen, f"the focus on {what} can't be seen"
            return
        page.keyboard.press(key)
    raise AssertionError(f"{most} tabs do not lead to {what}")


def test_all_of_it_can_be_done_by_keyboard_alone(server: Server, new_page: NewPage) -> None:
    watched = new_page(server)
    page, keys = watched.page, watched.page.keyboard
    chat = Chat(watched)
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()

    _tab_to(page, "textarea")
    keys.type("ask me")
    keys.press("Enter")
    expect(chat.row("asking")).to_be_visible()
    _tab_to(page, "[data-asking] button", "Shift+Tab")
    keys.press("Enter")
    expect(chat.answer).to_contain_text("You chose")
    execution = chat.ended()

    _tab_to(page, f'a[href="#/x/{execution}"]', "Shift+Tab")
    keys.press("Enter")
    expect(page.locator("[data-stop]")).to_be_visible()
    page.go_back()
    expect(chat.answer).to_contain_text("You chose")

    _tab_to(page, "textarea")
    keys.type("wait for it")
    keys.press("Enter")
    expect(chat.tool("wait")).to_have_attribute("data-state", "running")
    _tab_to(page, "button[aria-label=Cancel]")
    keys.press("Enter")
    chat.ended()
    assert server.over(chat.execution)["status"] == "cancelled"

    first = chat.session
    _tab_to(page, "nav a[href='#/']", "Shift+Tab")
    keys.press("Enter")
    until(lambda: chat.session == "")
    _tab_to(page, f'a[href="#/s/{first}"]')
    keys.press("Enter")
    expect(chat.row("user").first).to_contain_text("ask me")


def test_escape_cancels_and_shift_enter_makes_a_new_line(server: Server, new_page: NewPage) -> None:
    chat = Chat(new_page(server))
    field = chat.page.get_by_role("textbox", name="Message")
    field.press_sequentially("wait for it")
    field.press("Shift+Enter")
    field.press_sequentially("and more")
    assert field.input_value() == "wait for it\nand more"
    field.press("Enter")
    expect(chat.tool("wait")).to_have_attribute("data-state", "running")
    chat.page.get_by_role("textbox", name="Message").press("Escape")
    chat.ended()
    assert server.over(chat.execution)["status"] == "cancelled"


def test_a_new_answer_is_told_to_screen_readers_once_it_is_whole(
    server: Server, new_page: NewPage
) -> None:
    chat = Chat(new_page(server))
    chat.say("echo one")
    chat.ended()
    chat.say("quick one")
    chat.ended()
    live = chat.page.locator("[aria-live=polite]", has_text="Quick answer.")
    expect(live).to_have_count(1)

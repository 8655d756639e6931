"""For everybody: no axe violation in any main state, light and dark, wide and on a phone; and all
of it by keyboard alone.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NewPage
from tests.browser.seeing import Chat
from tests.browser.serving import ROOT, Server, until

AXE = ROOT / "tests" / "servers" / "node_modules" / "axe-core" / "axe.min.js"
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", **PHONE},
    "phone-dark": {"color_scheme": "dark", **PHONE},
}

# The rules of WCAG A and AA and the best practices. axe is put into the page through the debugger,
# so the content policy stays as it is.
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


@pytest.fixture(scope="module")
def routes(server: Server) -> Iterator[dict[str, str]]:
    """Where the page shows each state: conversations that were had before."""
    words = {
        "thread": "tell me",
        "tool": "mend it",
        "running": "wait for it",
        "question": "ask me",
        "approval": "remove it",
        "error": "fail please",
    }
    sent = {name: server.send(said) for name, said in words.items()}
    execution = server.ran("delegate it")["id"]
    for name, each in sent.items():
        if name != "running":
            server.over(each["execution"]["id"])
    states = {name: f"#/s/{each['session']['id']}" for name, each in sent.items()}
    states["changing"] = states["approval"]
    yield {"empty": "#/", **states, "execution": f"#/x/{execution}", "drawer": "#/"}
    for name in ("running", "question", "approval"):
        server.post(f"agent/executions/{sent[name]['execution']['id']}/cancel", {})


SHOWS = {
    "empty": ".examples",
    "thread": "[data-end]",
    "tool": "[data-end]",
    "running": "[data-state=running]",
    "question": "[data-asking]",
    "approval": "[data-asking]",
    "changing": "[data-asking]",
    "error": "[data-end], [data-role=status]",
    "execution": "[data-step]",
    "drawer": ".examples",
}
"""What is there once a state is shown."""


def _unfolded(page: Page, name: str) -> None:
    """Unfold what the state is about."""
    if name == "tool":
        page.locator("[data-role=tool] summary").last.click()
        expect(page.locator("[data-result]")).to_be_visible()
    if name == "changing":
        page.get_by_role("button", name="Change", exact=True).click()
        page.get_by_role("textbox", name="Changed arguments").fill("{")
        page.get_by_role("button", name="Allow with changes").click()
        expect(page.get_by_role("alert")).to_be_visible()
    if name == "execution":
        page.locator('[data-step="1"]').get_by_role("button").first.click()
        page.get_by_role("heading", name="Raw events").scroll_into_view_if_needed()
        expect(page.locator("[data-event]").first).to_be_attached()
        expect(page.locator("[data-diff]")).to_be_attached()
        page.get_by_role("heading", level=1).first.scroll_into_view_if_needed()
    if name == "drawer":
        button = page.get_by_role("button", name="Conversations")
        if button.is_visible():
            button.click()
        expect(page.get_by_role("searchbox")).to_be_visible()


# The others differ in colours only, or in size only.
FEW = {"phone-dark": ("thread", "execution", "drawer")}


@pytest.mark.parametrize("look", LOOKS)
def test_no_state_of_the_page_has_an_axe_violation(
    server: Server, new_page: NewPage, routes: dict[str, str], look: str
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: ./dev test installs it with npm")
    found: list[str] = []
    watched = new_page(server, **LOOKS[look])
    page = watched.page
    page.evaluate(AXE.read_text())
    for name in FEW.get(look, tuple(SHOWS)):
        page.evaluate("(route) => { location.hash = route; }", routes[name])
        expect(page.locator(SHOWS[name]).first).to_be_visible()
        _unfolded(page, name)
        watched.shot(f"{look}-{name}")
        found += [f"{name}: {each}" for each in page.evaluate(RUN_AXE)]
        if "phone" in look:
            found += [f"{name}, too wide: {each}" for each in page.evaluate(WIDER)]
    assert found == []


def test_axe_sees_what_is_wrong(server: Server, new_page: NewPage) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: ./dev test installs it with npm")
    page = new_page(server).page
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    page.evaluate(AXE.read_text())
    assert any(each.startswith("button-name") for each in page.evaluate(RUN_AXE))


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
    server.ran("quick one")  # so that there is another conversation in the list
    watched = new_page(server)
    page, keys = watched.page, watched.page.keyboard
    chat = Chat(watched)
    expect(page.get_by_role("textbox", name="Message")).to_be_visible()

    _tab_to(page, "textarea")
    keys.type("ask me")
    keys.press("Enter")
    expect(chat.row("asking")).to_be_visible()
    page.get_by_role("textbox", name="Message").focus()
    keys.press("Alt+a")
    assert page.evaluate("document.activeElement.matches('[data-asking] button')")
    page.locator("#main").focus()
    keys.press("a")
    assert page.evaluate("document.activeElement.matches('[data-asking] button')")
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
    # The address is new before the page is, which then takes the focus.
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    _tab_to(page, f'a[href="#/s/{first}"]')
    # The list is one row for Tab, with its two buttons; the arrows lead to the others.
    keys.press("ArrowDown")
    second = page.evaluate("document.activeElement.getAttribute('href')")
    assert second != f"#/s/{first}"
    keys.press("Tab")
    assert page.evaluate("document.activeElement.title") == "Rename"
    keys.press("Tab")
    assert page.evaluate("document.activeElement.title") == "Archive"
    keys.press("Tab")
    assert not page.evaluate("Boolean(document.activeElement.closest('.sessions li'))")
    _tab_to(page, f'a[href="{second}"]', "Shift+Tab")
    keys.press("ArrowUp")
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


def test_an_end_without_an_answer_is_told_to_screen_readers(
    server: Server, new_page: NewPage
) -> None:
    chat = Chat(new_page(server))
    live = chat.page.locator(".thread > [aria-live=polite]")
    chat.say("quick one")
    expect(live).to_have_text("Answer: Quick answer.")
    chat.say("wait for it")
    expect(chat.tool("wait")).to_have_attribute("data-state", "running")
    expect(live).to_have_text("")
    chat.page.get_by_role("textbox", name="Message").press("Escape")
    expect(live).to_contain_text("Cancelled")
    chat.say("fail please")
    expect(live).to_contain_text(re.compile("Failed: .*the provider is down"))


def test_the_focus_stays_where_the_keyboard_is_used(server: Server, new_page: NewPage) -> None:
    """What had the focus goes away: the next thing to do has it then."""
    chat = Chat(new_page(server))
    page, keys = chat.page, chat.page.keyboard
    field = page.get_by_role("textbox", name="Message")
    chat.say("both of them")
    expect(chat.row("asking")).to_have_count(2)
    last = chat.row("asking").last.locator("[data-arguments]")
    chat.row("asking").first.get_by_role("button", name="Allow").focus()
    keys.press("Enter")
    expect(last).to_be_focused()
    chat.row("asking").get_by_role("textbox").focus()
    keys.type("no")
    keys.press("Enter")
    expect(field).to_be_focused()
    execution = chat.ended()

    chat.end_of(execution).get_by_role("link", name="Why it stopped").focus()
    keys.press("Enter")
    expect(page.locator("[data-stop]")).to_be_visible()
    scroller = page.get_by_role("region", name="Execution")
    expect(scroller).to_be_focused()
    keys.press("PageDown")
    page.wait_for_function("(box) => box.scrollTop > 0", arg=scroller.element_handle())


def test_the_focus_stays_in_the_list_of_conversations(server: Server, new_page: NewPage) -> None:
    for name in ("buoys", "rafts"):
        server.ran(f"quick {name}")
    page = new_page(server).page
    page.get_by_role("searchbox").fill("quick")
    rows = page.locator(".sessions li")
    rafts, buoys = rows.filter(has_text="rafts"), rows.filter(has_text="buoys")
    expect(rafts).to_have_count(1)
    buoys.get_by_role("link").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Title").fill("quick barrels")
    page.keyboard.press("Enter")
    barrels = rows.filter(has_text="barrels")
    expect(barrels.get_by_role("link")).to_be_focused()
    rafts.get_by_role("link").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(rafts).to_have_count(0)
    expect(page.locator(".sessions a:focus")).to_have_count(1)


def test_the_drawer_takes_the_focus_and_gives_it_back(server: Server, new_page: NewPage) -> None:
    page = new_page(server, viewport={"width": 390, "height": 740}).page
    menu = page.get_by_role("button", name="Conversations")
    main = page.locator("main")
    menu.focus()
    for leave in ("Escape", "Enter"):
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Close the list")).to_be_focused()
        expect(main).to_have_js_property("inert", True)
        page.keyboard.press(leave)
        expect(main).to_have_js_property("inert", False)
        expect(menu).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.set_viewport_size({"width": 1000, "height": 740})
    expect(main).to_have_js_property("inert", False)
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_keys_do_nothing_behind_the_list_of_shortcuts(server: Server, new_page: NewPage) -> None:
    session = server.ran("quick help")["session_id"]
    page = new_page(server, f"#/s/{session}").page
    expect(page.locator("[data-end]")).to_be_visible()
    page.locator("#main").focus()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    for key in ("n", "/", "?"):
        page.keyboard.press(key)
    assert page.evaluate("location.hash") == f"#/s/{session}"
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.locator("#main").focus()
    page.keyboard.press("n")
    page.wait_for_function("location.hash === '#/'")


def test_keys_of_an_input_method_neither_send_nor_cancel(server: Server, new_page: NewPage) -> None:
    chat = Chat(new_page(server))
    chat.say("wait for it")
    expect(chat.tool("wait")).to_have_attribute("data-state", "running")
    field = chat.page.get_by_role("textbox", name="Message")
    field.fill("echo ni")
    for key in ("Escape", "Enter"):
        field.dispatch_event("keydown", {"key": key, "isComposing": True, "bubbles": True})
    # What is sent after them is the only thing that was sent, and what runs still runs.
    field.fill("echo nothing else")
    field.press("Enter")
    expect(chat.row("user")).to_have_count(2)
    expect(chat.tool("wait")).to_have_attribute("data-state", "running")
    field.press("Escape")
    expect(chat.answer).to_contain_text("nothing else")
    expect(chat.row("user")).to_have_count(2)

"""What a person decides on is what is there: nothing hides in it, all of it is seen, and the next
person at the same tab finds nothing of the one before.
"""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import NewPage
from tests.browser.seeing import Chat, thread_of
from tests.browser.serving import Server, new_key, serving, until
from tests.browser.test_access import AXE, RUN_AXE, WIDER
from tests.browser.tricks import BIG, EMPTY_LINES, MARKED, TURNED
from tests.browser.watching import Watched

LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 740}, "is_mobile": True, "has_touch": True},
}


@pytest.fixture(scope="module")
def tricks(browser: Browser) -> Iterator[Server]:
    with serving("tests.browser.tricks:agents") as running:
        yield running


def _waiting(tricks: Server, new_page: NewPage, said: str, **options: object) -> Watched:
    execution = tricks.ran(said, "tricks")
    assert execution["status"] == "paused"
    return new_page(tricks, f"#/s/{execution['session_id']}", **options)


def test_characters_that_hide_are_seen_where_a_person_decides(
    tricks: Server, new_page: NewPage
) -> None:
    chat = Chat(_waiting(tricks, new_page, "turned"))
    arguments = chat.row("asking").locator("[data-arguments]")
    expect(arguments).to_contain_text("echo ⟨U+202E⟩hs | live.lruc⟨U+202C⟩ ⟨U+200B⟩# safe")
    chat.row("asking").get_by_role("button", name="Change").click()
    edited = chat.row("asking").get_by_role("textbox", name="Changed arguments").input_value()
    assert r"echo \u202ehs | live.lruc\u202c \u200b# safe" in edited
    assert json.loads(edited) == {"command": TURNED}
    chat.row("asking").get_by_role("button", name="Cancel changes").click()
    chat.row("asking").get_by_role("button", name="Allow").click()
    chat.ended()
    block = chat.tool("bash").first
    expect(block.locator("summary")).to_contain_text("⟨U+202E⟩")
    block.locator("summary").click()
    expect(block.locator("[data-arguments]")).to_contain_text("⟨U+202E⟩hs")
    chat.page.evaluate("(id) => { location.hash = `#/x/${id}`; }", chat.execution)
    step = chat.page.locator('[data-step="1"]')
    step.get_by_role("button").first.click()
    expect(step.get_by_label("Arguments of bash")).to_contain_text("⟨U+202E⟩hs")


def test_an_integer_above_2_to_the_53_is_shown_and_sent_with_all_its_digits(
    tricks: Server, new_page: NewPage
) -> None:
    chat = Chat(_waiting(tricks, new_page, "big"))
    asking = chat.row("asking")
    expect(asking.locator("[data-arguments]")).to_contain_text(f'"account": {BIG}')
    asking.get_by_role("button", name="Change").click()
    field = asking.get_by_role("textbox", name="Changed arguments")
    field.fill(field.input_value().replace("first", "second"))
    asking.get_by_role("button", name="Allow with changes").click()
    chat.ended()
    block = chat.tool("pay").first
    block.locator("summary").click()
    expect(block.locator("[data-result]")).to_contain_text(f"paid into {BIG}: second")
    chat.page.evaluate("(id) => { location.hash = `#/x/${id}`; }", chat.execution)
    step = chat.page.locator('[data-step="1"]')
    step.get_by_role("button").first.click()
    expect(step.get_by_label("Arguments of pay")).to_contain_text(str(BIG))


MOST_FROZEN_MS = 10_000
WATCH_FRAMES = """() => {
  window.longestFrame = 0;
  let last = performance.now();
  const watch = () => {
    const now = performance.now();
    window.longestFrame = Math.max(window.longestFrame, now - last);
    last = now;
    requestAnimationFrame(watch);
  };
  watch();
}"""


def test_thousands_of_marks_on_one_character_do_not_freeze_the_page(
    tricks: Server, new_page: NewPage
) -> None:
    asking = Chat(_waiting(tricks, new_page, "marked"))
    asking.page.evaluate(WATCH_FRAMES)
    expect(asking.row("asking").locator("[data-arguments]")).to_contain_text("marks⟩")
    asking.row("asking").get_by_role("button", name="Deny").click()
    asking.ended()
    assert asking.page.evaluate("window.longestFrame") < MOST_FROZEN_MS

    ended = tricks.ran(f"marked {MARKED}", "tricks")
    chat = Chat(new_page(tricks, f"#/s/{ended['session_id']}"))
    chat.page.evaluate(WATCH_FRAMES)
    for kind in ("user", "assistant"):
        expect(chat.row(kind).last).to_contain_text("⟨+79992 marks⟩")
    chat.tool("look").first.locator("summary").click()
    for part in ("arguments", "result"):
        expect(chat.tool("look").first.locator(f"[data-{part}]")).to_contain_text("⟨+79992 marks⟩")
    chat.page.evaluate("(id) => { location.hash = `#/x/${id}`; }", chat.execution)
    step = chat.page.locator('[data-step="1"]')
    step.get_by_role("button").first.click()
    expect(step.get_by_label("Arguments of look")).to_contain_text("marks⟩")
    assert chat.page.evaluate("window.longestFrame") < MOST_FROZEN_MS


def test_questions_options_and_titles_hide_nothing(tricks: Server, new_page: NewPage) -> None:
    chat = Chat(_waiting(tricks, new_page, "ask"))
    asking = chat.row("asking")
    expect(asking).to_contain_text("Which⟨U+202E⟩?")
    expect(asking.get_by_role("button").first).to_have_text("⟨U+2066⟩one⟨U+2069⟩")
    path = f"{tricks.url}agent/sessions/{chat.session}"
    assert tricks.client.patch(path, json={"title": "a\u202etitle"}).status_code == 200
    chat.page.reload()
    expect(chat.page.get_by_role("heading", level=1)).to_have_text("a⟨U+202E⟩title")
    nav = chat.page.get_by_role("navigation", name="Conversations")
    expect(nav.locator(f'[data-session="{chat.session}"]')).to_contain_text("a⟨U+202E⟩title")


_LATE_LINE = """
const fetched = fetch;
globalThis.fetch = async (address, ...more) => {
  if (`${address}`.includes("/events")) await new Promise((go) => setTimeout(go, 1000));
  return fetched(address, ...more);
};
"""


def test_what_is_written_before_the_line_is_open_stays(tricks: Server, new_page: NewPage) -> None:
    execution = tricks.ran("ask", "tricks")
    watched = new_page(tricks)
    watched.context.add_init_script(_LATE_LINE)
    watched.page.reload()
    watched.open(f"#/s/{execution['session_id']}")
    chat = Chat(watched)
    field = chat.row("asking").get_by_role("textbox")
    field.fill("the third")
    expect(chat.page.locator("[data-thread]")).not_to_have_attribute("data-line", "live")
    chat.page.locator("[data-thread][data-line=live]").wait_for()
    # What comes from its beginning on is told by then.
    chat.page.evaluate(
        "() => new Promise((go) => setTimeout(() => requestAnimationFrame(go), 300))"
    )
    expect(field).to_have_value("the third")
    expect(field).to_be_focused()


@pytest.mark.parametrize("look", LOOKS)
def test_long_arguments_are_seen_before_they_can_be_allowed(
    tricks: Server, new_page: NewPage, look: str
) -> None:
    watched = _waiting(tricks, new_page, "tall", **LOOKS[look])
    chat = Chat(watched)
    asking = chat.row("asking")
    allow = asking.get_by_role("button", name="Allow")
    expect(allow).to_be_disabled()
    expect(asking.get_by_role("button", name="Deny")).to_be_enabled()
    text = asking.locator("[data-arguments]")
    assert text.inner_text().count("│") == EMPTY_LINES + 2
    box = asking.locator(".to-see")
    assert box.evaluate("(one) => one.scrollTop") == 0
    # Its first line is on the screen, and the box with it.
    expect(asking.get_by_text("Scroll to the end before you decide")).to_be_in_viewport()
    expect(box).to_be_in_viewport(ratio=0.99)
    expect(allow).to_have_accessible_description(re.compile("Scroll to the end"))
    watched.shot(f"approval-unseen-{look}")
    _looks_well(chat.page)
    text.focus()
    for _ in range(3):
        chat.page.keyboard.press("PageDown")
    expect(allow).to_be_disabled()
    chat.page.keyboard.press("End")
    expect(allow).to_be_enabled()
    expect(asking.get_by_text("Scroll to the end before you decide")).to_have_count(0)
    watched.shot(f"approval-seen-{look}")
    allow.click()
    chat.ended()


@pytest.mark.parametrize("look", ["dark", "phone"])
def test_more_budget_is_granted_by_the_same_form_on_the_page_of_the_execution(
    server: Server, new_page: NewPage, look: str
) -> None:
    execution = server.ran("tell", "stops-budget")
    watched = new_page(server, f"#/s/{execution['session_id']}", **LOOKS[look])
    page = watched.page
    expect(page.get_by_label("Additional steps")).to_have_value("10")
    watched.shot(f"budget-{look}")
    _looks_well(page)
    page.evaluate("(id) => { location.hash = `#/x/${id}`; }", execution["id"])
    page.get_by_role("button", name="Grant more budget").click()
    amount = page.get_by_label("Additional steps")
    expect(amount).to_have_value("10")
    page.get_by_label("Unit").select_option("tokens")
    expect(page.get_by_label("Additional tokens")).to_have_value("10000")
    page.get_by_label("Unit").select_option("steps")
    watched.shot(f"budget-execution-{look}")
    _looks_well(page)
    amount.fill("1.5")
    expect(page.get_by_role("button", name="Grant", exact=True)).to_be_disabled()
    amount.fill("1")
    amount.press("Enter")
    until(lambda: server.get(f"agent/executions/{execution['id']}")["step_count"] == 3)


def _looks_well(page: Page) -> None:
    if AXE.exists():
        page.evaluate(AXE.read_text())
        assert page.evaluate(RUN_AXE) == []
    assert page.evaluate(WIDER) == []


def test_an_address_leads_to_no_other_route_of_the_api(server: Server, new_page: NewPage) -> None:
    watched = new_page(server, "#/s/..")
    expect(watched.page.locator(".examples")).to_be_visible()
    watched.page.evaluate("location.hash = '#/x/..'")
    watched.page.wait_for_timeout(200)
    asked = [url.removeprefix(server.url) for url in watched.requests if "/agent/" in url]
    assert {url.partition("?")[0] for url in asked} == {"agent/sessions", "agent/agents"}


def test_nothing_can_be_written_where_there_is_no_conversation(
    server: Server, new_page: NewPage
) -> None:
    watched = new_page(server, "#/s/nobody")
    watched.allow("404")
    expect(watched.page.get_by_role("alert")).to_contain_text("no such conversation")
    expect(watched.page.get_by_role("textbox", name="Message")).to_have_count(0)


def test_an_execution_that_is_over_is_shown_once_while_the_next_one_runs(
    server: Server, new_page: NewPage
) -> None:
    sent = server.send("tell me")
    session = sent["session"]["id"]
    second = server.send("wait for it", session=session)["execution"]["id"]
    assert server.over(sent["execution"]["id"])["status"] == "completed"
    until(lambda: server.get(f"agent/executions/{second}")["step_count"] or _calls(server, session))
    chat = Chat(new_page(server, f"#/s/{session}"))
    expect(chat.tool("wait")).to_have_attribute("data-state", "running")
    kinds = [row.kind for row in chat.rows()]
    assert kinds == ["user", "assistant", "end", "user", "assistant", "tool", "status"]
    chat.page.get_by_role("button", name="Cancel").click()
    chat.ended()
    chat.settles_as(thread_of(server, new_page, session))


def _calls(server: Server, session: str) -> bool:
    return any(one["metadata"].get("tool") == "wait" for one in server.messages(session))


def test_the_next_person_at_the_tab_finds_nothing_of_the_one_before(new_page: NewPage) -> None:
    with serving(STEPWELL_AUTH__MODE="keys") as server:
        ada, bob = (new_key(server, user) for user in ("ada", "bob"))
        watched = new_page(server)
        watched.allow("401")
        watched.allow("404")
        _sign_in(watched, ada)
        chat = Chat(watched)
        _typed(chat)
        chat.page.get_by_role("button", name="Sign out").click()
        _sign_in(watched, bob)
        _is_untouched(chat)

        # A key that is refused from now on, and another one in its place.
        _typed(chat)
        revoked = "sessionStorage.setItem('stepwell.key', 'sw_revoked')"
        chat.page.evaluate(revoked)
        chat.page.get_by_role("searchbox").fill("a search of bob")
        _sign_in(watched, ada)
        _is_untouched(chat)
        watched.close()


def _sign_in(watched: Watched, key: str) -> None:
    watched.page.get_by_label("API key").fill(key)
    watched.page.get_by_role("button", name="Sign in").click()


def _typed(chat: Chat) -> None:
    chat.page.get_by_role("textbox", name="Message").fill("a draft of a secret")
    chat.page.get_by_role("searchbox").fill("a secret search")
    drafts = "Object.keys(sessionStorage).filter((name) => name.includes('draft')).length"
    assert chat.page.evaluate(drafts) == 1


def _is_untouched(chat: Chat) -> None:
    expect(chat.page.get_by_role("textbox", name="Message")).to_have_value("")
    expect(chat.page.get_by_role("searchbox")).to_have_value("")
    kept: list[str] = chat.page.evaluate("Object.keys(sessionStorage)")
    assert kept == ["stepwell.key"]

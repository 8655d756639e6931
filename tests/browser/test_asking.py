"""What is asked is answered one by one: an answer takes nothing away but its own form."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import NewPage
from tests.browser.seeing import Chat
from tests.browser.serving import Server


def test_an_answer_leaves_the_other_form_as_it_is_in_every_tab(
    server: Server, new_page: NewPage
) -> None:
    watched = new_page(server)
    first = Chat(watched)
    session = first.say("both of them")
    expect(first.row("asking")).to_have_count(2)
    page = watched.tab()
    page.goto(f"{server.url}#/s/{session}")
    second = Chat(watched, page)
    expect(second.row("asking")).to_have_count(2)
    for chat in (first, second):
        chat.row("asking").last.get_by_role("textbox").fill("we still need it")
    first.row("asking").first.get_by_role("button", name="Allow").click()
    for chat in (first, second):
        expect(chat.row("asking")).to_have_count(1)
        expect(chat.row("asking")).to_contain_text("plans.txt")
        expect(chat.row("asking").get_by_role("textbox")).to_have_value("we still need it")
    second.row("asking").get_by_role("button", name="Deny").click()
    for chat in (first, second):
        expect(chat.answer).to_contain_text("Both are dealt with.")
        expect(chat.row("asking")).to_have_count(0)


def test_a_call_that_was_unfolded_while_it_waited_shows_what_it_gave(
    server: Server, new_page: NewPage
) -> None:
    chat = Chat(new_page(server))
    chat.say("ask me")
    expect(chat.row("asking")).to_be_visible()
    block = chat.tool("user_input")
    block.locator("summary").click()
    expect(block.locator("[data-result]")).to_contain_text("Waiting for an answer.")
    chat.row("asking").get_by_role("button", name="The old one").click()
    expect(block).to_have_attribute("data-state", "done")
    expect(block.locator("[data-result]")).to_have_text("The old one")


# A line that never tells anything: the tab keeps to what it was loaded with.
_DEAF = """
const { fetch: ask } = window;
window.fetch = (path, ...more) =>
  (String(path).includes("/events") ? new Promise(() => {}) : ask(path, ...more));
"""


def test_a_tab_that_shows_an_old_question_answers_nothing_and_shows_the_new_one(
    server: Server, new_page: NewPage
) -> None:
    watched = new_page(server)
    first = Chat(watched)
    session = first.say("reuse the id")
    expect(first.row("asking")).to_contain_text("harmless.txt")
    watched.context.add_init_script(_DEAF)
    watched.allowed.append(re.compile(r"status of 409 .*/answer"))
    page = watched.tab()
    page.goto(f"{server.url}#/s/{session}")
    deaf = Chat(watched, page)
    expect(deaf.row("asking")).to_contain_text("harmless.txt")
    first.row("asking").get_by_role("button", name="Allow").click()
    expect(first.row("asking")).to_contain_text("/everything")
    expect(deaf.row("asking")).to_contain_text("harmless.txt")

    deaf.row("asking").get_by_role("button", name="Allow").click()

    expect(page.get_by_role("alert")).to_contain_text("The question has changed since you saw it")
    expect(deaf.row("asking")).to_contain_text("/everything")
    expect(first.row("asking")).to_contain_text("/everything")
    first.row("asking").get_by_role("button", name="Deny").click()
    expect(first.answer).to_contain_text("All is deleted.")

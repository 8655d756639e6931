"""What is asked is answered one by one: an answer takes nothing away but its own form."""

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

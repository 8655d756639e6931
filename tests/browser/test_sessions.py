"""The list of conversations, signing in, and a page that is mounted under a path."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import NewPage
from tests.browser.mounted import PATH
from tests.browser.seeing import Chat
from tests.browser.serving import Server, new_key, serving, until


def _entry(page: Page, title: str) -> Locator:
    nav = page.get_by_role("navigation", name="Conversations")
    return nav.get_by_role("listitem").filter(has_text=title)


def test_conversations_are_found_renamed_and_archived(server: Server, new_page: NewPage) -> None:
    for words in ("about lighthouses", "about anchors"):
        server.ran(f"quick {words}")
    watched = new_page(server)
    page = watched.page
    _entry(page, "lighthouses").get_by_role("link").click()
    chat = Chat(watched)
    expect(chat.row("user")).to_contain_text("about lighthouses")

    _entry(page, "lighthouses").hover()
    page.get_by_role("button", name=re.compile("^Rename .*lighthouses")).click()
    title = page.get_by_role("textbox", name="Title")
    title.fill("Towers with lamps")
    title.press("Enter")
    expect(_entry(page, "Towers with lamps")).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_text("Towers with lamps")
    until(lambda: server.get(f"agent/sessions/{chat.session}")["title"] == "Towers with lamps")

    search = page.get_by_role("searchbox", name="Search conversations")
    search.fill("anchors")
    expect(_entry(page, "Towers with lamps")).to_have_count(0)
    expect(_entry(page, "anchors")).to_have_count(1)
    search.fill("nothing is like this")
    expect(page.get_by_text("Nothing is found")).to_be_visible()
    search.fill("")
    expect(_entry(page, "Towers with lamps")).to_have_count(1)

    _entry(page, "Towers with lamps").hover()
    page.get_by_role("button", name="Archive Towers with lamps").click()
    expect(_entry(page, "Towers with lamps")).to_have_count(0)
    until(lambda: server.get(f"agent/sessions/{chat.session}")["status"] == "archived")
    page.get_by_role("button", name="Show archived").click()
    expect(_entry(page, "Towers with lamps")).to_have_count(1)
    watched.shot("archived")


def test_what_runs_in_an_archived_conversation_can_be_cancelled(
    server: Server, new_page: NewPage
) -> None:
    chat = Chat(new_page(server))
    session = chat.say("wait for the archive")
    expect(chat.tool("wait")).to_have_attribute("data-state", "running")
    _entry(chat.page, "the archive").hover()
    chat.page.get_by_role("button", name=re.compile("^Archive .*the archive")).click()
    expect(chat.page.get_by_text("This conversation is archived.")).to_be_visible()
    chat.page.get_by_role("button", name="Cancel the execution").click()
    execution = chat.ended()
    assert chat.session == session
    assert server.over(execution)["status"] == "cancelled"
    expect(chat.page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_a_new_conversation_goes_to_the_chosen_agent(server: Server, new_page: NewPage) -> None:
    chat = Chat(new_page(server))
    chat.page.get_by_role("radio", name="stops-completed").check()
    chat.say("anything")
    chat.ended()
    expect(chat.answer).to_contain_text("Done.")
    session = server.get(f"agent/sessions/{chat.session}")
    assert session["agent_type"] == "stops-completed"
    chat.page.get_by_role("link", name="New conversation").click()
    expect(chat.page.get_by_role("heading", level=1)).to_be_visible()
    assert chat.session == ""


def test_a_conversation_that_does_not_exist_is_told(server: Server, new_page: NewPage) -> None:
    watched = new_page(server, "#/s/nobody")
    watched.allow("404")
    expect(watched.page.get_by_role("alert")).to_contain_text("no such conversation")
    expect(watched.page.get_by_role("heading", level=1)).to_have_text("Not found")
    expect(watched.page.get_by_role("alert").get_by_role("link")).to_have_attribute("href", "#/")
    assert "offline" not in watched.page.locator("main").inner_text()
    expect(watched.page).to_have_title("Not found · Stepwell")


def test_with_keys_the_page_asks_for_one_and_works_with_it(new_page: NewPage) -> None:
    with serving(STEPWELL_AUTH__MODE="keys") as server:
        key = new_key(server, "ada")
        watched = new_page(server)
        watched.allow("401")
        page = watched.page
        field = page.get_by_label("API key")
        field.fill("sw_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("rejected")
        watched.shot("sign-in")
        field.fill(key)
        page.get_by_role("button", name="Sign in").click()
        chat = Chat(watched)
        server.client.headers["authorization"] = f"Bearer {key}"
        with server.held("w200"):
            chat.say("story signed in")
            expect(chat.answer).to_contain_text("w010")
            page.reload()
            expect(chat.answer).to_contain_text("w012")
            assert key not in page.url
            page.get_by_role("button", name="Cancel").click()
            chat.ended()
        assert not [url for url in watched.requests if key in url]
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        watched.close()


def test_a_page_that_is_mounted_under_a_path_stays_under_it(new_page: NewPage) -> None:
    with serving("tests.browser.mounted:app", path=PATH) as server:
        watched = new_page(server)
        chat = Chat(watched)
        chat.say("look at both places")
        execution = chat.ended()
        chat.tool("look_up").first.locator("summary").click()
        expect(chat.tool("look_up").first).to_contain_text("quay line 60")
        chat.end_of(execution).get_by_role("link").click()
        expect(watched.page.locator("[data-stop]")).to_be_visible()
        outside = [url for url in watched.requests if not url.startswith(server.url)]
        assert outside == []
        watched.close()

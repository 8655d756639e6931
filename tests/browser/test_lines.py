"""What a page does when its line breaks: reloads, servers that die, two tabs. Nothing is lost and
nothing is doubled: the thread that was followed is the thread that a fresh page shows.
"""

import pytest
from playwright.sync_api import expect

from tests.browser.apps import STORY_WORDS
from tests.browser.conftest import NewPage
from tests.browser.seeing import Chat, Row, thread_of, words_of
from tests.browser.serving import Server, serving, until

ALL_WORDS = [f"w{number:03d}" for number in range(1, STORY_WORDS + 1)]

LOST = "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY"
# The line's pauses before it is tried again last for an hour from now on.
WAIT_LONG = """() => {
  const set = globalThis.setTimeout;
  globalThis.setTimeout = (work, time, ...more) => {
    const isPause = time >= 350 && time <= 12_500;
    globalThis.isWaitedFor ||= isPause;
    return set(work, isPause ? 3_600_000 : time, ...more);
  };
}"""


def _stored_answer(server: Server, session: str) -> list[str]:
    answers = [each["content"] for each in server.messages(session) if each["role"] == "assistant"]
    return words_of([Row("assistant", "", text) for text in answers])


def _is_whole(chat: Chat, server: Server, new_page: NewPage) -> None:
    """The thread, a fresh page and the database tell the same story, once."""
    execution = chat.ended(60)
    assert server.over(execution)["status"] == "completed"
    stored = thread_of(server, new_page, chat.session)
    assert words_of(stored) == ALL_WORDS
    assert _stored_answer(server, chat.session) == ALL_WORDS
    chat.settles_as(stored)


def test_a_reload_in_the_middle_of_an_answer_loses_and_doubles_nothing(
    server: Server, new_page: NewPage
) -> None:
    chat = Chat(new_page(server))
    # It is told while the page loads, and is not over before the page was looked at.
    with server.held("w200"):
        chat.say("story please")
        for words in (20, 90):
            until(lambda words=words: f"w{words:03d}" in chat.text())
            before = words_of(chat.rows())
            chat.page.reload(wait_until="domcontentloaded")
            expect(chat.answer).to_contain_text(before[-1])
            seen = words_of(chat.rows())
            assert seen == ALL_WORDS[: len(seen)]
            assert len(seen) >= len(before)
        expect(chat.page.get_by_role("button", name="Cancel")).to_be_visible()
    _is_whole(chat, server, new_page)


def test_a_server_that_is_killed_and_started_again_is_found_again_by_the_page(
    server: Server, new_page: NewPage
) -> None:
    watched = new_page(server)
    watched.allow(LOST)
    chat = Chat(watched)
    chat.say("story please")
    until(lambda: "w040" in chat.text())
    server.kill()
    line = chat.page.locator("[data-thread]")
    expect(line).not_to_have_attribute("data-line", "live")
    assert "w040" in chat.text(), "what was told stays"
    server.start()
    expect(line).to_have_attribute("data-line", "live", timeout=30_000)
    _is_whole(chat, server, new_page)


def test_a_message_that_was_sent_brings_the_line_back_at_once(new_page: NewPage) -> None:
    with serving() as server:
        watched = new_page(server)
        watched.allow(LOST)
        chat = Chat(watched)
        chat.say("quick one")
        chat.ended()
        # Nothing but a request that succeeds may bring it back before the test is over.
        chat.page.evaluate(WAIT_LONG)
        server.kill()
        line = chat.page.locator("[data-thread]")
        until(lambda: chat.page.evaluate("globalThis.isWaitedFor"))
        expect(line).not_to_have_attribute("data-line", "live")
        server.start()
        chat.say("echo again")
        expect(line).to_have_attribute("data-line", "live")
        expect(chat.answer).to_contain_text("again")
        watched.close()


def test_two_tabs_show_the_same_session_whoever_writes(server: Server, new_page: NewPage) -> None:
    watched = new_page(server)
    first = Chat(watched)
    session = first.say("quick one")
    first.ended()
    page = watched.tab()
    page.goto(f"{server.url}#/s/{session}")
    second = Chat(watched, page)
    second.ended()
    second.say("ask me")
    expect(first.row("asking")).to_contain_text("Which quay?")
    first.row("asking").get_by_role("button", name="The new one").click()
    for chat in (first, second):
        expect(chat.answer).to_contain_text("You chose: The new one")
        expect(chat.row("asking")).to_have_count(0)
        chat.ended()
    stored = thread_of(server, new_page, session)
    first.settles_as(stored)
    second.settles_as(stored)


@pytest.mark.parametrize("seconds", [0.0, 0.4])
def test_messages_that_were_sent_while_it_works_are_answered_in_turn(
    server: Server, new_page: NewPage, seconds: float
) -> None:
    chat = Chat(new_page(server))
    chat.say("tell me")
    chat.page.wait_for_timeout(seconds * 1000)
    chat.say("echo one")
    chat.say("echo two")
    expect(chat.answer.locator(".markdown")).to_have_text("two")
    chat.ended()
    rows = [row for row in chat.rows() if row.kind in ("user", "assistant")]
    assert [row.text for row in rows if row.kind == "user"] == ["tell me", "echo one", "echo two"]
    chat.settles_as(thread_of(server, new_page, chat.session))

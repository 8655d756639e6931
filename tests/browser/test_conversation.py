"""A conversation as a person has it: started, streamed, with tools, questions and approvals."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import NewPage
from tests.browser.seeing import Chat, thread_of
from tests.browser.serving import Server, until

# How long the answer is after each change of the page.
NOTE_SIZES = """() => {
  globalThis.answerSizes = [];
  new MutationObserver(() => {
    const answer = document.querySelector("[data-role=assistant] .markdown");
    if (answer) answerSizes.push(answer.textContent.length);
  }).observe(document.body, { childList: true, characterData: true, subtree: true });
}"""


def test_an_example_begins_a_conversation_and_its_answer_grows_as_it_is_written(
    server: Server, new_page: NewPage
) -> None:
    watched = new_page(server)
    chat = Chat(watched)
    chat.page.evaluate(NOTE_SIZES)
    # What is said before the page follows comes in one piece, so the rest waits until it does.
    with server.held("What I found"):
        chat.page.get_by_role("button", name="Tell me about the harbour").click()
        until(lambda: chat.session, what="the session in the address")
        expect(chat.answer).to_contain_text("What I found")
    chat.ended()
    sizes: list[int] = chat.page.evaluate("globalThis.answerSizes")
    assert len(set(sizes)) >= 4, f"it came in one piece: {sizes}"
    answer = chat.answer
    expect(answer.get_by_role("heading")).to_have_text("What I found")
    expect(answer.get_by_role("row")).to_have_count(3)
    expect(answer.locator("pre code")).to_contain_text("def depth(part: str) -> int:")
    expect(answer.get_by_role("checkbox")).to_have_count(2)
    link = answer.get_by_role("link", name="tide tables")
    assert link.get_attribute("rel") == "noopener noreferrer nofollow"
    expect(answer).to_contain_text("example.org")
    watched.shot("thread")
    assert [row.kind for row in chat.rows()] == ["user", "assistant", "end"]
    chat.settles_as(thread_of(server, new_page, chat.session))


def test_tools_are_folded_blocks_that_unfold_to_the_whole_result(
    server: Server, new_page: NewPage
) -> None:
    chat = Chat(new_page(server))
    chat.say("look at both places")
    chat.ended()
    blocks = chat.tool("look_up")
    expect(blocks).to_have_count(2)
    expect(blocks.first).to_contain_text("quay")
    expect(blocks.first).not_to_contain_text("quay line 60")
    fold = blocks.first.locator("summary")
    fold.click()
    expect(blocks.first.locator("[data-result]")).to_contain_text("quay line 60")
    expect(blocks.first.locator("[data-arguments]")).to_contain_text("quay")
    fold.click()
    expect(blocks.first).not_to_contain_text("quay line 60")
    assert [row.kind for row in chat.rows()] == [
        *("user", "assistant", "tool", "tool", "assistant", "end")
    ]


def test_a_tool_that_fails_is_marked_and_the_recovery_is_seen(
    server: Server, new_page: NewPage
) -> None:
    watched = new_page(server)
    chat = Chat(watched)
    chat.say("mend the lead line")
    chat.ended()
    tools = [row for row in chat.rows() if row.kind == "tool"]
    assert [row.state for row in tools] == ["failed", "done"]
    assert "the lead line is tangled" in tools[0].text
    expect(chat.answer.locator("strong")).to_have_text("11 m")
    watched.shot("failed-tool")
    chat.settles_as(thread_of(server, new_page, chat.session))


def test_a_subagent_is_shown_inside_of_the_call_that_spawned_it(
    server: Server, new_page: NewPage
) -> None:
    watched = new_page(server)
    chat = Chat(watched)
    block = chat.tool("spawn_subagent").first
    inside = block.get_by_role("group", name="Messages of the subagent")
    # What it says is not stored: a page that comes when all is over can't show it.
    with server.held("The basin is"):
        chat.say("delegate it")
        expect(inside).to_contain_text("look_up")
    chat.ended()
    expect(inside).to_contain_text("look_up")
    expect(inside).to_contain_text("The basin is 11 m deep.")
    expect(chat.answer).to_contain_text("The surveyor is back.")
    watched.shot("subagent")


@pytest.mark.parametrize("by_option", [True, False])
def test_a_question_is_answered_where_it_is_asked(
    server: Server, new_page: NewPage, by_option: bool
) -> None:
    watched = new_page(server)
    chat = Chat(watched)
    chat.say("ask me")
    asking = chat.row("asking")
    expect(asking).to_contain_text("Which quay?")
    if by_option:
        watched.shot("question")
        asking.get_by_role("button", name="The old one").click()
    else:
        asking.get_by_role("textbox").fill("The dry one")
        asking.get_by_role("button", name="Answer").click()
    expect(chat.answer).to_contain_text(f"You chose: The {'old' if by_option else 'dry'} one")
    chat.ended()
    expect(asking).to_have_count(0)
    stored = thread_of(server, new_page, chat.session)
    assert [row.state for row in stored if row.kind == "tool"] == ["done"]
    chat.settles_as(stored)


@pytest.mark.parametrize("is_granted", [True, False])
def test_an_approval_is_granted_or_denied_where_it_is_asked(
    server: Server, new_page: NewPage, is_granted: bool
) -> None:
    watched = new_page(server)
    chat = Chat(watched)
    chat.say("remove the notes")
    asking = chat.row("asking")
    expect(asking).to_contain_text("delete_file")
    expect(asking).to_contain_text("notes.txt")
    chat.page.locator("#main").focus()
    chat.page.keyboard.type("a ")  # leads to what is asked about; nothing is allowed by it
    expect(asking.locator("[data-arguments]")).to_be_focused()
    if is_granted:
        watched.shot("approval")
        asking.get_by_role("button", name="Allow").click()
        expect(chat.answer).to_contain_text("The tool said: deleted notes.txt")
    else:
        asking.get_by_role("textbox").fill("we still need them")
        asking.get_by_role("button", name="Deny").click()
        expect(chat.answer).to_contain_text("denied this call: we still need them")
    chat.ended()
    stored = thread_of(server, new_page, chat.session)
    block = next(row for row in stored if row.kind == "tool")
    assert block.state == ("done" if is_granted else "blocked")
    assert "notes.txt" in block.text
    if not is_granted:
        assert "| A person denied this call: we still need them" in block.text
        expect(chat.tool("delete_file").locator(".tool-state")).to_have_text("denied")
        watched.shot("denied")
    chat.settles_as(stored)


def test_a_call_is_allowed_with_other_arguments(server: Server, new_page: NewPage) -> None:
    watched = new_page(server)
    chat = Chat(watched)
    chat.say("remove the notes")
    asking = chat.row("asking")
    asking.get_by_role("button", name="Change").click()
    field = asking.get_by_role("textbox", name="Changed arguments, as JSON")
    expect(field).to_be_focused()
    expect(field).to_have_value('{\n  "path": "notes.txt"\n}')
    allow = asking.get_by_role("button", name="Allow with changes")
    for wrong, why in (("{path: 1}", "Invalid JSON"), ("[1]", "must be a JSON object")):
        field.fill(wrong)
        allow.click()
        expect(asking.get_by_role("alert")).to_contain_text(why)
        expect(field).to_be_focused()
    asking.get_by_role("button", name="Cancel changes").click()
    asking.get_by_role("button", name="Change").click()
    expect(field).to_have_value('{\n  "path": "notes.txt"\n}')
    field.fill('{"path": "old.txt"}')
    watched.shot("approval-changed")
    allow.click()
    expect(chat.answer).to_contain_text("deleted old.txt")
    chat.ended()
    stored = thread_of(server, new_page, chat.session)
    block = next(row for row in stored if row.kind == "tool")
    assert "path: 'old.txt'" in block.text
    chat.settles_as(stored)
    chat.tool("delete_file").locator("summary").click()
    expect(chat.tool("delete_file")).to_contain_text("A person changed the arguments to")


def test_more_budget_is_granted_where_a_limit_paused_it(server: Server, new_page: NewPage) -> None:
    execution = server.ran("tell", "stops-budget")
    chat = Chat(new_page(server, f"#/s/{execution['session_id']}"))
    asking = chat.row("asking")
    expect(asking).to_contain_text("limit")
    asking.get_by_role("spinbutton").fill("3")
    asking.get_by_role("button", name="Grant").click()
    # Three steps later it is at the limit again, and asks again.
    until(lambda: server.get(f"agent/executions/{execution['id']}")["step_count"] == 5)
    expect(chat.tool("note")).to_have_count(5)
    expect(asking).to_contain_text("limit")


def test_what_runs_is_cancelled(server: Server, new_page: NewPage) -> None:
    watched = new_page(server)
    chat = Chat(watched)
    chat.say("wait for an hour")
    block = chat.tool("wait")
    expect(block).to_have_attribute("data-state", "running")
    watched.shot("running")
    chat.page.get_by_role("button", name="Cancel").click()
    execution = chat.ended()
    assert server.over(execution)["status"] == "cancelled"
    expect(chat.page.get_by_role("button", name="Cancel")).to_have_count(0)
    watched.shot("cancelled")
    chat.settles_as(thread_of(server, new_page, chat.session))


def test_an_execution_that_failed_says_so(server: Server, new_page: NewPage) -> None:
    watched = new_page(server)
    chat = Chat(watched)
    chat.say("fail please")
    chat.ended()
    expect(chat.row("status").last).to_contain_text("the provider is down")
    chat.settles_as(thread_of(server, new_page, chat.session))
    # Once the stored explanation is there, its reason is seen without unfolding it.
    why = chat.row("status").last.get_by_text("Decided by ErrorPolicyCriterion")
    expect(why).to_be_visible()
    expect(why).to_contain_text("the provider is down")
    watched.shot("error")


def test_an_answer_that_was_cut_off_says_so(server: Server, new_page: NewPage) -> None:
    chat = Chat(new_page(server))
    chat.page.get_by_role("radio", name="stops-finish_reason").check()
    chat.say("tell me")
    chat.ended()
    expect(chat.answer).to_contain_text("Cut off in the")
    expect(chat.row("status")).to_contain_text("the answer was cut off")
    expect(chat.row("status").get_by_role("link", name="Why it stopped")).to_be_visible()
    chat.settles_as(thread_of(server, new_page, chat.session))


def test_hebrew_is_written_and_read_from_the_right(server: Server, new_page: NewPage) -> None:
    chat = Chat(new_page(server))
    words = "\u05e9\u05dc\u05d5\u05dd world"
    field = chat.page.get_by_role("textbox", name="Message")
    field.fill(words)
    expect(field).to_have_css("direction", "rtl")
    chat.say(words)
    expect(chat.row("user").locator(".bubble")).to_have_css("direction", "rtl")
    chat.say("echo")
    expect(chat.row("user").last.locator(".bubble")).to_have_css("direction", "ltr")

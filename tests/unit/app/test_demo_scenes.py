"""The demo's script goes by what tools and people really answered."""

from stepwell.app.demo import scenes
from stepwell.app.demo.agent import (
    ASK,
    BREAK_OUT,
    DELEGATE,
    EXAMPLES,
    FIX,
    FOREVER,
    RECOVER,
    example_for,
    help_words,
)
from stepwell.app.demo.breakout import ALLOWED, ATTEMPTS, break_out, command
from stepwell.app.demo.conversation_end import ConversationEnd, conversation_end
from stepwell.messages import Message, ToolCall, ToolResult
from stepwell.models import ModelRequest

FAILING = (
    "Error: exit code 1\n.F.\nFAIL: test_with_discount (test_prices.Total)\n"
    "AssertionError: 1790 != 1620\n\nRan 3 tests in 0.001s\n\nFAILED (failures=1)"
)
PASSING = "...\nRan 3 tests in 0.001s\n\nOK"
MISTAKEN = "     7\t    return with_tax - discount_percent"


def heard(*results: tuple[str, str] | tuple[str, str, bool], asked: str = FIX) -> ConversationEnd:
    told = tuple(
        ToolResult(call_id="c", tool_name=name, content=content, is_error=bool(rest and rest[0]))
        for name, content, *rest in results
    )
    return ConversationEnd(asked=asked, results=told)


def called(turn: scenes.ScriptedTurn) -> list[str]:
    return [call.name for call in turn.calls]


def test_failing_tests_are_read_before_anything_is_changed() -> None:
    assert called(scenes.fix_test(heard())) == ["list_dir", "bash"]
    turn = scenes.fix_test(heard(("list_dir", "prices.py"), ("bash", FAILING, True)))
    assert called(turn) == ["read_file", "read_file"]
    assert "1 of 3 tests fail: `test_with_discount` says `1790 != 1620`" in turn.text
    turn = scenes.fix_test(heard(("bash", FAILING, True), ("read_file", MISTAKEN)))
    assert called(turn) == ["edit_file"]
    assert turn.calls[0].arguments["old_string"] == scenes.MISTAKE


def test_a_project_that_was_mended_before_is_put_back() -> None:
    assert called(scenes.fix_test(heard(("bash", PASSING)))) == ["restore_project"]
    assert called(scenes.fix_test(heard(("bash", PASSING), ("restore_project", "ok")))) == ["bash"]


def test_a_change_that_was_made_is_tested() -> None:
    changed = (("bash", FAILING, True), ("read_file", MISTAKEN), ("edit_file", "Replaced 1"))
    assert called(scenes.fix_test(heard(*changed))) == ["bash"]
    fixed = scenes.fix_test(heard(*changed, ("bash", PASSING)))
    assert fixed.calls == ()
    assert "3 of 3 pass" in fixed.text
    edited_wrong = scenes.fix_test(heard(*changed, ("bash", FAILING, True)))
    assert "still test_with_discount fails" in edited_wrong.text


def test_a_denied_change_ends_with_its_reason() -> None:
    said = "Error: Blocked: a person denied this call: not today"
    turn = scenes.fix_test(heard(("read_file", MISTAKEN), ("edit_file", said, True)))
    assert turn.calls == ()
    assert "You denied the change (*not today*)" in turn.text
    bare = "Error: Blocked: a person denied this call"
    assert "You denied the change, so" in scenes.fix_test(heard(("edit_file", bare, True))).text


def test_a_change_that_fails_otherwise_is_not_called_denied() -> None:
    turn = scenes.fix_test(heard(("edit_file", "Error: the text is not in the file", True)))
    assert "denied" not in turn.text
    assert "the text is not in the file" in turn.text


def test_a_machine_without_a_sandbox_is_told_so() -> None:
    refused = "Error: nothing was run: nothing on this machine can confine commands"
    for turn in (
        scenes.fix_test(heard(("list_dir", "x"), ("bash", refused, True))),
        break_out(heard(("bash", refused, True)), 8400),
    ):
        assert turn.calls == ()
        assert "nothing on this machine can confine commands" in turn.text
        assert "stepwell doctor" in turn.text


def test_code_that_is_not_as_expected_is_left_alone() -> None:
    turn = scenes.fix_test(heard(("bash", FAILING, True), ("read_file", "something else")))
    assert turn.calls == ()
    assert "I leave it alone" in turn.text


def test_the_failing_tool_is_called_again_with_a_name_that_it_gave() -> None:
    failed = ("count_stock", "LookupError: no 'lanterns'; items: lantern, rope", True)
    turn = scenes.recover(heard(failed))
    assert turn.calls[0].arguments == {"item": "lantern"}
    assert "**12 lanterns**" in scenes.recover(heard(failed, ("count_stock", "12"))).text
    assert scenes.recover(heard(failed, failed)).calls == ()


def test_the_answer_chooses_the_tent() -> None:
    for answer, tent in {
        "1 or 2": "tent-2",
        "3 or 4": "tent-4",
        "5 or more": "tent-6",
        "we are 30": "tent-6",
        "no idea": "tent-4",
    }.items():
        turn = scenes.ask(heard(("user_input", answer)))
        assert turn.calls[0].arguments == {"item": tent}
        final = scenes.ask(heard(("user_input", answer), ("count_stock", "0")))
        assert answer in final.text
        assert "sold out" in final.text


def test_the_review_says_what_is_in_the_file() -> None:
    wrong = scenes.review(heard(("read_file", MISTAKEN), ("bash", FAILING, True)))
    assert "Not right yet" in wrong.text
    assert "`test_with_discount` fails" in wrong.text
    right = scenes.review(heard(("read_file", scenes.FIXED), ("bash", PASSING)))
    assert "Looks right" in right.text


def test_the_search_never_ends_by_itself() -> None:
    nothing = [("search_files", "No files match")] * 30
    assert all(scenes.search_forever(heard(*nothing[:count])).calls for count in range(30))


def test_attempts_that_worked_are_not_called_held() -> None:
    lines = [f"{'yes' if what == ALLOWED else 'no'}: {what}" for what in ATTEMPTS]
    assert "It **holds**" in break_out(heard(("bash", "\n".join(lines))), 1).text
    lines[0] = lines[0].replace("no:", "yes:")
    assert "does **not** hold" in break_out(heard(("bash", "\n".join(lines))), 1).text
    assert "/dev/tcp/127.0.0.1/4321" in command(4321)


def test_what_people_type_finds_its_example() -> None:
    assert [example_for(example) for example in EXAMPLES] == list(EXAMPLES)
    for said, example in {
        "fix the TESTS": FIX,
        "ask me a question": ASK,
        "let a subagent look": DELEGATE,
        "fail, please": RECOVER,
        "escape!": BREAK_OUT,
        "run into a limit": FOREVER,
        "what is the weather?": None,
    }.items():
        assert example_for(said) == example


def test_anything_else_is_answered_with_what_can_be_tried() -> None:
    turn = help_words(heard(asked="What is the weather?"))
    assert "scripted" in turn.text
    assert all(example in turn.text for example in EXAMPLES)


def test_only_what_came_after_the_last_question_is_heard() -> None:
    request = ModelRequest(
        messages=[
            Message.user("first"),
            Message.assistant("", [ToolCall(id="a", name="bash")]),
            Message.tool(ToolResult(call_id="a", tool_name="bash", content="old")),
            Message.assistant("done"),
            Message.user("second"),
            Message.assistant("", [ToolCall(id="b", name="bash")]),
            Message.tool(ToolResult(call_id="b", tool_name="bash", content="new")),
        ]
    )
    now = conversation_end(request)
    assert now.asked == "second"
    assert [result.content for result in now.results] == ["new"]

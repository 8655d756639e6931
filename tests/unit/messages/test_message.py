"""Messages: roles, parts, text, tool calls and results."""

import pytest

from stepwell import Message, ToolCall
from stepwell.messages import ImagePart, Role, TextPart, ThinkingPart, ToolResult

HELPERS = ("is_user", "is_assistant", "is_tool", "is_system", "is_developer")


@pytest.mark.parametrize(
    ("role", "true_helpers"),
    [
        ("system", {"is_system"}),
        ("developer", {"is_system", "is_developer"}),
        ("user", {"is_user"}),
        ("assistant", {"is_assistant"}),
        ("tool", {"is_tool"}),
    ],
)
def test_role_helpers_answer_for_their_roles_only(role, true_helpers):
    message = Message.of(role, "text")

    assert {name for name in HELPERS if getattr(message, name)()} == true_helpers


def test_roles_are_the_wire_words():
    assert [str(role) for role in Role] == ["system", "developer", "user", "assistant", "tool"]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ((Role.USER,), True),
        (("user",), True),
        (("assistant", "user"), True),
        ((Role.ASSISTANT, Role.TOOL), False),
        ((), False),
    ],
)
def test_has_role_takes_any_number_of_roles_or_words(roles, expected):
    assert Message.user("hi").has_role(*roles) is expected


def test_unknown_role_is_refused():
    with pytest.raises(ValueError, match="robot"):
        Message.of("robot", "hi")


def test_empty_text_makes_no_part():
    assert Message.user("").parts == ()
    assert Message.assistant("").parts == ()


def test_blank_text_is_kept():
    assert Message.user("  ").parts == (TextPart("  "),)


def test_assistant_message_holds_text_then_calls():
    calls = [ToolCall(id="1", name="add"), ToolCall(id="2", name="sub")]

    message = Message.assistant("Let me see.", calls)

    assert message.parts == (TextPart("Let me see."), *calls)
    assert message.tool_calls == tuple(calls)
    assert message.text == "Let me see."


def test_tool_message_carries_its_result():
    result = ToolResult(call_id="1", tool_name="add", content="3")

    message = Message.tool(result)

    assert message.is_tool()
    assert message.tool_result == result
    assert message.text == "3"
    assert message.tool_calls == ()


def test_text_joins_text_parts_and_skips_the_others():
    parts = (ThinkingPart("hmm"), TextPart("one "), ImagePart(url="u"), TextPart("two"))

    assert Message.user(parts).text == "one two"


def test_message_without_result_has_none():
    assert Message.user("hi").tool_result is None


def test_id_is_kept_when_given_and_unique_when_not():
    assert Message.user("hi", id="m-1").id == "m-1"
    assert Message.user("hi").id != Message.user("hi").id


def test_messages_are_immutable():
    with pytest.raises(AttributeError):
        Message.user("hi").role = Role.TOOL

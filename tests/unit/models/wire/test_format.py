"""The pieces that all wire formats are made of."""

from typing import Any

import pytest

from stepwell import Message
from stepwell.messages import FinishReason, ToolCall, Usage
from stepwell.models.response import TextDelta, ToolCallDelta, ToolCallStart
from stepwell.models.wire import WireFormat
from stepwell.models.wire.format import (
    Prompt,
    assemble_response,
    check_parts,
    count,
    instruction_text,
    merge_extra_body,
    plain_id,
    plain_name,
)
from tests.unit.models.wire.samples import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    context,
    read,
    request,
)


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


def test_leading_instructions_are_apart_from_the_talk() -> None:
    prompt = Prompt.of(
        request(
            Message.developer("c"),
            Message.user("d"),
            Message.system("e"),
            context=context(Message.system("a"), Message.system("b")),
        )
    )

    assert texts(prompt.instructions) == ["a", "b", "c"]
    assert texts(prompt.talk) == ["d", "e"]
    assert prompt.stable == 0


def test_behind_stable_examples_instructions_of_the_talk_stay_in_it() -> None:
    prompt = Prompt.of(
        request(
            Message.system("d"),
            Message.user("e"),
            context=context(Message.user("a"), Message.system("b"), Message.assistant("c")),
        )
    )

    assert texts(prompt.instructions) == ["b"]
    assert texts(prompt.talk) == ["a", "c", "d", "e"]
    assert prompt.stable == 2


def test_there_may_be_nothing_but_instructions() -> None:
    prompt = Prompt.of(request(Message.system("a")))

    assert (texts(prompt.instructions), prompt.talk) == (["a"], ())


@pytest.mark.parametrize(
    ("given", "sent"),
    [("toolu_1-A", "toolu_1-A"), ("a.b:c d", "a_b_c_d"), ("ü", "_")],
)
def test_ids_and_names_are_plain(given: str, sent: str) -> None:
    assert (plain_id(given), plain_name(given)) == (sent, sent)


def test_a_name_is_never_empty_and_never_too_long() -> None:
    assert plain_name("") == "unnamed"
    assert plain_name("x" * 100) == "x" * 64


def test_the_text_of_an_instruction() -> None:
    assert instruction_text(Message.system("Be kind.")) == "Be kind."
    assert instruction_text(Message.system("")) == ""


@pytest.mark.parametrize(
    ("reason", "ended"),
    [
        (FinishReason.STOP, FinishReason.TOOL_CALLS),
        (FinishReason.OTHER, FinishReason.TOOL_CALLS),
        (FinishReason.LENGTH, FinishReason.LENGTH),
    ],
)
def test_calls_are_why_a_response_ended(reason: FinishReason, ended: FinishReason) -> None:
    def made(*calls: ToolCall) -> FinishReason | None:
        return assemble_response(
            calls, finish_reason=reason, usage=Usage(), model=None
        ).finish_reason

    assert made(ToolCall(id="c1", name="add")) is ended
    assert made() is reason


@pytest.mark.parametrize(
    ("given", "counted"),
    [(7, 7), (7.0, 7), (None, 0), ("7", 0), (-3, 0), ([], 0)],
)
def test_a_count_is_a_number_or_nothing(given: Any, counted: int) -> None:
    assert count(given) == counted


@pytest.mark.parametrize(
    "odd",
    [
        TextDelta(7),  # type: ignore[arg-type]
        ToolCallStart(index=0, id="c1", name=None),  # type: ignore[arg-type]
        ToolCallDelta(index=0, arguments={}),  # type: ignore[arg-type]
    ],
)
def test_what_should_be_text_is_checked(odd: Any) -> None:
    with pytest.raises(TypeError, match="not a str"):
        check_parts([TextDelta("fine"), odd])


def test_extra_is_merged_one_level_deep() -> None:
    asked = request(extra_body={"a": {"y": 2}, "b": [2], "c": {"d": 3}})

    assert merge_extra_body({"a": {"x": 1}, "b": [1], "c": 1}, asked) == {
        "a": {"x": 1, "y": 2},
        "b": [2],
        "c": {"d": 3},
    }


CHAT_TEXT = {"choices": [{"delta": {"content": "Hi"}}], "usage": {"prompt_tokens": 7}}
CHAT_STOP = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
BEGIN = {"type": "message_start", "message": {"usage": {"input_tokens": 7}}}
PIECE = {
    "candidates": [{"content": {"parts": [{"text": "Hi"}]}}],
    "usageMetadata": {"promptTokenCount": 7},
}
LAST_PIECE = {**PIECE, "candidates": [{"finishReason": "STOP"}]}
COMPLETED = {
    "type": "response.completed",
    "response": {"status": "completed", "usage": {"input_tokens": 7}},
}


@pytest.mark.parametrize(
    ("wire", "events", "may_be_over", "is_over"),
    [
        (CHAT, [CHAT_TEXT], False, False),
        (CHAT, [CHAT_TEXT, CHAT_STOP], True, False),
        (CHAT, [CHAT_TEXT, CHAT_STOP, None], True, True),
        (MESSAGES, [BEGIN], False, False),
        (MESSAGES, [BEGIN, {"type": "message_stop"}], True, True),
        (GEMINI, [PIECE], False, False),
        (GEMINI, [PIECE, LAST_PIECE], True, False),
        (RESPONSES, [COMPLETED], True, True),
    ],
)
def test_a_reader_knows_what_was_used_and_whether_more_must_come(
    wire: WireFormat, events: list[Any], may_be_over: bool, is_over: bool
) -> None:
    _, reader = read(wire, *events)

    assert reader.usage == Usage(input_tokens=7)
    assert (reader.may_be_over, reader.is_over) == (may_be_over, is_over)


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GEMINI, RESPONSES])
def test_a_new_reader_knows_nothing(wire: WireFormat) -> None:
    reader = wire.reader()

    assert reader.usage == Usage()
    assert (reader.may_be_over, reader.is_over) == (False, False)

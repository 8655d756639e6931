"""Gemini: what comes back, whole and streamed."""

from typing import Any

import pytest

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FinishReason, ThinkingPart, ToolCall, Usage
from stepwell.models import ModelResponse
from stepwell.models.response import StreamPart
from tests.unit.models.wire.samples import (
    GEMINI,
    arguments_of,
    read,
    started,
    text_of,
    thinking_of,
)

USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
PAID = Usage(input_tokens=10, output_tokens=5)


def piece(*parts: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "m-1", "usageMetadata": USAGE, **more}


def function(name: str = "add", **args: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": args}}


def streamed(*events: Any) -> tuple[list[StreamPart], ModelResponse]:
    parts, reader = read(GEMINI, *events)
    return parts, reader.response()


def test_text() -> None:
    assert GEMINI.response(piece({"text": "Hel"}, {"text": "lo"}, finish="STOP")) == ModelResponse(
        text="Hello", finish_reason=FinishReason.STOP, usage=PAID, model="m-1"
    )


def test_parallel_calls_with_and_without_ids_and_signatures() -> None:
    response = GEMINI.response(
        piece(
            {
                "functionCall": {"id": "f1", "name": "add", "args": {"a": 1}},
                "thoughtSignature": "s",
            },
            {"functionCall": {"name": "now"}},
            {"functionCall": {"name": "now", "args": None}},
            finish="STOP",
        )
    )

    assert response.tool_calls == (
        ToolCall(id="f1", name="add", arguments={"a": 1}, signature="s"),
        ToolCall(id="", name="now"),
        ToolCall(id="", name="now"),
    )
    assert response.finish_reason is FinishReason.TOOL_CALLS


def test_thoughts_are_not_text() -> None:
    parts, response = streamed(
        piece({"text": "Hm", "thought": True}),
        piece({"text": "m.", "thought": True}, {"text": "Hi"}, finish="STOP"),
    )

    assert (thinking_of(parts), text_of(parts)) == ("Hmm.", "Hi")
    assert response.thinking == (ThinkingPart("Hmm.", origin="gemini"),)
    assert response.text == "Hi"


def test_a_signature_beside_the_text_is_kept() -> None:
    _, response = streamed(
        piece({"text": "Hi"}), piece({"text": "", "thoughtSignature": "s"}, finish="STOP")
    )

    assert response.thinking == (ThinkingPart("", "s", origin="gemini"),)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", FinishReason.STOP),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("LANGUAGE", FinishReason.OTHER),
        ("BRAND_NEW", FinishReason.OTHER),
    ],
)
def test_finish_reasons(word: str, reason: FinishReason) -> None:
    assert GEMINI.response(piece({"text": "Hi"}, finish=word)).finish_reason is reason


def test_thoughts_are_part_of_the_output_and_cached_tokens_of_the_input() -> None:
    usage = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 40,
        "toolUsePromptTokenCount": 7,
        "candidatesTokenCount": 5,
        "thoughtsTokenCount": 20,
    }
    response = GEMINI.response(piece({"text": "Hi"}, finish="STOP", usageMetadata=usage))

    assert response.usage == Usage(
        input_tokens=107, output_tokens=25, cached_tokens=40, reasoning_tokens=20
    )


def test_a_later_count_replaces_an_earlier_one() -> None:
    _, response = streamed(
        piece({"text": "H"}, usageMetadata={"promptTokenCount": 10}),
        piece({"text": "i"}, finish="STOP"),
        {"usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 6}},
    )

    assert response.usage == Usage(input_tokens=10, output_tokens=6)


@pytest.mark.parametrize(
    "word",
    ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"],
)
def test_a_filter_is_an_error_that_keeps_what_was_paid(word: str) -> None:
    with pytest.raises(ModelError) as raised:
        GEMINI.response(piece({"text": "Hel"}, finish=word))

    assert raised.value.kind is ModelErrorKind.CONTENT_FILTER
    assert raised.value.usage == PAID


def test_a_blocked_prompt_is_an_error_that_keeps_what_was_paid() -> None:
    with pytest.raises(ModelError, match=r"blocked the prompt.*PROHIBITED") as raised:
        GEMINI.response(
            {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": USAGE}
        )

    assert raised.value.kind is ModelErrorKind.CONTENT_FILTER
    assert raised.value.usage == PAID


@pytest.mark.parametrize("word", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"])
def test_a_call_that_google_could_not_read_is_malformed_and_may_be_tried_again(word: str) -> None:
    data = piece(finish=word)
    data["candidates"][0]["finishMessage"] = "print(add(1))"
    with pytest.raises(ModelError, match=rf"{word} print\(add") as raised:
        GEMINI.response(data)

    assert raised.value.kind is ModelErrorKind.MALFORMED_RESPONSE
    assert raised.value.retryable is True
    assert raised.value.usage == PAID


@pytest.mark.parametrize("candidates", [[], None])
def test_no_candidates_is_an_empty_response(candidates: Any) -> None:
    with pytest.raises(ModelError, match="no candidates") as raised:
        GEMINI.response({"candidates": candidates, "usageMetadata": USAGE})

    assert raised.value.kind is ModelErrorKind.EMPTY_RESPONSE
    assert raised.value.usage == PAID


def test_a_candidate_may_be_without_content() -> None:
    """As after thinking used up all tokens."""
    response = GEMINI.response({"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}]})

    assert (response.text, response.finish_reason) == ("", FinishReason.LENGTH)


def test_a_stream_with_text_and_calls() -> None:
    parts, response = streamed(
        piece({"text": "Let me "}),
        piece({"text": "see."}),
        piece({**function(a=1), "thoughtSignature": "s"}, function("now")),
        piece({"text": "", "thoughtSignature": "t"}, finish="STOP"),
    )

    assert text_of(parts) == response.text == "Let me see."
    assert started(parts) == [(0, "", "add"), (1, "", "now")]
    assert arguments_of(parts) == {0: '{"a":1}', 1: "{}"}
    assert [call.signature for call in response.tool_calls] == ["s", None]


@pytest.mark.parametrize(
    "events",
    [[piece({"text": "Hi"})], [piece(function())], [piece({"text": "Hm", "thought": True})]],
)
def test_a_stream_without_a_finish_reason_is_an_error(events: list[Any]) -> None:
    _, reader = read(GEMINI, *events)
    with pytest.raises(ModelError, match="finish reason") as raised:
        reader.response()

    assert raised.value.kind is ModelErrorKind.INCOMPLETE_STREAM
    assert raised.value.usage == PAID


def test_a_stream_of_nothing_is_an_empty_response() -> None:
    _, reader = read(GEMINI)
    with pytest.raises(ModelError) as raised:
        reader.response()

    assert raised.value.kind is ModelErrorKind.EMPTY_RESPONSE


def test_no_event_says_that_it_is_the_last_because_usage_may_follow() -> None:
    _, reader = read(GEMINI, piece({"text": "Hi"}, finish="STOP"), None)

    assert reader.is_over is False
    assert reader.response().text == "Hi"

"""OpenAI Responses: what comes back, whole and streamed."""

from typing import Any

import pytest

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FinishReason, ThinkingPart, ToolCall, Usage
from stepwell.models import ModelResponse
from stepwell.models.response import StreamPart
from tests.unit.models.wire.samples import (
    RESPONSES,
    arguments_of,
    read,
    started,
    text_of,
    thinking_of,
)

USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
PAID = Usage(input_tokens=10, output_tokens=5)


def answer(*output: Any, status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "object": "response",
        "model": "m-1",
        "status": status,
        "output": list(output),
        "usage": USAGE,
        "error": None,
        **more,
    }


def message(*texts: str) -> dict[str, Any]:
    return {"type": "message", "content": [{"type": "output_text", "text": t} for t in texts]}


def function(name: str = "add", arguments: Any = "{}", call_id: str = "c1") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def reasoning(**more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": [], **more}


def added(index: int, item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def told(index: int, delta: str) -> dict[str, Any]:
    return {
        "type": "response.function_call_arguments.delta",
        "output_index": index,
        "item_id": "fc_1",
        "delta": delta,
    }


def said(delta: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": 0, "delta": delta}


def over(data: Any, kind: str = "completed") -> dict[str, Any]:
    return {"type": f"response.{kind}", "response": data}


def streamed(*events: Any) -> tuple[list[StreamPart], ModelResponse]:
    parts, reader = read(RESPONSES, *events)
    return parts, reader.response()


def test_text() -> None:
    assert RESPONSES.response(answer(message("Hel", "lo"), message("!"))) == ModelResponse(
        text="Hello!", finish_reason=FinishReason.STOP, usage=PAID, model="m-1"
    )


def test_parallel_calls_are_known_by_their_call_ids() -> None:
    response = RESPONSES.response(answer(function("add", '{"a":1}'), function("now", "", "c2")))

    assert response.tool_calls == (
        ToolCall(id="c1", name="add", arguments={"a": 1}),
        ToolCall(id="c2", name="now"),
    )
    assert response.finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ({"a": 1}, ToolCall(id="c1", name="add", arguments={"a": 1})),
        (None, ToolCall(id="c1", name="add")),
        ('{"a": ', ToolCall(id="c1", name="add", malformed='{"a": ')),
        ("[1]", ToolCall(id="c1", name="add", malformed="[1]")),
    ],
)
def test_arguments_are_parsed_or_kept_as_malformed(arguments: Any, call: ToolCall) -> None:
    assert RESPONSES.response(answer(function("add", arguments))).tool_calls == (call,)


@pytest.mark.parametrize(
    ("item", "thinking"),
    [
        (
            reasoning(
                summary=[
                    {"type": "summary_text", "text": "One."},
                    {"type": "summary_text", "text": "Two."},
                ],
                encrypted_content="ZW5j",
            ),
            (ThinkingPart("One.\n\nTwo.", "ZW5j", id="rs_1", origin="responses"),),
        ),
        (
            reasoning(encrypted_content="ZW5j"),
            (ThinkingPart("", "ZW5j", id="rs_1", origin="responses"),),
        ),
        (
            reasoning(content=[{"type": "reasoning_text", "text": "Hmm."}], encrypted_content=None),
            (ThinkingPart("Hmm.", None, id="rs_1", origin="responses"),),
        ),
        (reasoning(summary=None), ()),
    ],
)
def test_reasoning(item: Any, thinking: tuple[ThinkingPart, ...]) -> None:
    assert RESPONSES.response(answer(item, message("Hi"))).thinking == thinking


def test_items_of_other_kinds_are_passed_over() -> None:
    response = RESPONSES.response(answer({"type": "web_search_call", "id": "ws"}, message("Hi")))

    assert response.text == "Hi"


@pytest.mark.parametrize(
    ("why", "reason"),
    [("max_output_tokens", FinishReason.LENGTH), ("other", FinishReason.OTHER)],
)
def test_an_incomplete_answer_says_why(why: str, reason: FinishReason) -> None:
    data = answer(message("Hel"), status="incomplete", incomplete_details={"reason": why})

    assert RESPONSES.response(data).finish_reason is reason
    assert streamed(over(data, "incomplete"))[1].finish_reason is reason


def test_an_answer_may_end_before_it_said_anything() -> None:
    data = answer(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    response = RESPONSES.response(data)

    assert (response.text, response.finish_reason) == ("", FinishReason.LENGTH)


def test_usage_has_one_meaning() -> None:
    usage = {
        **USAGE,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": 3},
    }

    assert RESPONSES.response(answer(message("Hi"), usage=usage)).usage == Usage(
        input_tokens=10, output_tokens=5, cached_tokens=4, reasoning_tokens=3
    )
    assert RESPONSES.response(answer(message("Hi"), usage=None)).usage == Usage()


def test_a_refusal_is_an_error_that_keeps_what_was_paid() -> None:
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "I can't."}]}
    for read_it in (RESPONSES.response, lambda data: streamed(over(data))):
        with pytest.raises(ModelError, match=r"refused: I can't\.") as raised:
            read_it(answer(item))
        assert raised.value.kind is ModelErrorKind.REFUSAL
        assert raised.value.usage == PAID


def test_a_filter_is_an_error_that_keeps_what_was_paid() -> None:
    data = answer(
        message("Hel"), status="incomplete", incomplete_details={"reason": "content_filter"}
    )
    with pytest.raises(ModelError) as raised:
        RESPONSES.response(data)

    assert raised.value.kind is ModelErrorKind.CONTENT_FILTER
    assert raised.value.usage == PAID


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "server_error", "message": "Oh no"}, ModelErrorKind.SERVER),
        ({"code": "rate_limit_exceeded", "message": "Slow down"}, ModelErrorKind.RATE_LIMIT),
        ({"code": "invalid_prompt", "message": "flagged"}, ModelErrorKind.CONTENT_FILTER),
        (None, ModelErrorKind.SERVER),
    ],
)
def test_a_failed_answer_is_an_error_that_keeps_what_was_paid(
    error: Any, kind: ModelErrorKind
) -> None:
    data = answer(status="failed", error=error)
    for read_it in (RESPONSES.response, lambda data: streamed(over(data, "failed"))):
        with pytest.raises(ModelError) as raised:
            read_it(data)
        assert raised.value.kind is kind
        assert raised.value.usage == PAID
        assert (error or {"message": ""})["message"] in str(raised.value)


def test_a_cancelled_answer_is_an_error() -> None:
    with pytest.raises(ModelError) as raised:
        RESPONSES.response(answer(message("Hel"), status="cancelled"))

    assert raised.value.kind is ModelErrorKind.SERVER


@pytest.mark.parametrize("output", [[], None])
def test_no_output_is_an_empty_response(output: Any) -> None:
    with pytest.raises(ModelError, match="no output") as raised:
        RESPONSES.response({**answer(), "output": output})

    assert raised.value.kind is ModelErrorKind.EMPTY_RESPONSE
    assert raised.value.usage == PAID


def test_a_stream_with_thinking_text_and_calls() -> None:
    thought = reasoning(summary=[{"type": "summary_text", "text": "Hmm."}])
    final = answer(thought, message("Hello"), function("add", '{"a":1}'), function("now", "", "c2"))
    parts, response = streamed(
        {"type": "response.created", "response": {"status": "in_progress"}},
        added(0, thought),
        {"type": "response.reasoning_summary_text.delta", "delta": "Hm"},
        {"type": "response.reasoning_text.delta", "delta": "m."},
        added(1, message()),
        said("Hel"),
        said(""),
        said("lo"),
        {"type": "response.output_text.done", "text": "Hello"},
        added(2, function("add", "")),
        told(2, '{"a"'),
        added(3, function("now", "", "c2")),
        told(2, ":1}"),
        told(3, ""),
        over(final),
    )

    assert thinking_of(parts) == "Hmm."
    assert text_of(parts) == "Hello"
    assert started(parts) == [(0, "c1", "add"), (1, "c2", "now")]
    assert arguments_of(parts) == {0: '{"a":1}'}
    assert response == RESPONSES.response(final)


def test_a_server_may_leave_out_where_an_item_stands() -> None:
    """As llama.cpp streams calls: one after the other, without an output_index."""
    parts, response = streamed(
        {"type": "response.output_item.added", "item": function("add", "")},
        {"type": "response.function_call_arguments.delta", "delta": '{"a":', "item_id": "fc_c1"},
        {"type": "response.function_call_arguments.delta", "delta": "1}", "item_id": "fc_c1"},
        {"type": "response.output_item.added", "item": function("now", "", "c2")},
        {"type": "response.function_call_arguments.delta", "delta": "{}", "item_id": "fc_c2"},
        over(answer(function("add", '{"a":1}'), function("now", "{}", "c2"))),
    )

    assert started(parts) == [(0, "c1", "add"), (1, "c2", "now")]
    assert arguments_of(parts) == {0: '{"a":1}', 1: "{}"}
    assert [call.id for call in response.tool_calls] == ["c1", "c2"]


def test_a_server_may_leave_the_output_out_of_the_last_event() -> None:
    _, response = streamed(
        {"type": "response.output_item.done", "output_index": 0, "item": message("Hi")},
        {"type": "response.output_item.done", "output_index": 1, "item": function()},
        over(answer()),
    )

    assert (response.text, response.tool_calls[0].id) == ("Hi", "c1")


def test_arguments_of_a_call_that_nobody_told_of_are_passed_over() -> None:
    parts, response = streamed(told(5, "{}"), over(answer(message("Hi"))))

    assert (parts, response.text) == ([], "Hi")


@pytest.mark.parametrize("event", [{"type": "response.queued"}, {"type": "brand.new"}, {}, None])
def test_events_of_other_kinds_are_passed_over(event: Any) -> None:
    assert streamed(event, over(answer(message("Hi"))))[1].text == "Hi"


def test_a_stream_without_its_last_event_is_an_error() -> None:
    _, reader = read(RESPONSES, said("Hello"))
    assert reader.is_over is False
    with pytest.raises(ModelError, match=r"response\.completed") as raised:
        reader.response()

    assert raised.value.kind is ModelErrorKind.INCOMPLETE_STREAM


@pytest.mark.parametrize("kind", ["completed", "incomplete", "failed"])
def test_the_last_event_ends_the_stream(kind: str) -> None:
    _, reader = read(RESPONSES, over(answer(message("Hi")), kind))

    assert reader.is_over is True


def test_an_error_event_is_raised_at_once() -> None:
    with pytest.raises(ModelError, match="Slow down") as raised:
        read(
            RESPONSES,
            {
                "type": "error",
                "code": "rate_limit_exceeded",
                "message": "Slow down",
                "param": None,
                "sequence_number": 3,
            },
        )

    assert raised.value.kind is ModelErrorKind.RATE_LIMIT
    assert raised.value.provider_text == "Slow down"

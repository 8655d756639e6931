"""Anthropic Messages: what comes back, whole and streamed."""

from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import Agent, HookTrigger, make_hook
from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FinishReason, ThinkingPart, ToolCall, Usage
from stepwell.models import ModelResponse
from stepwell.models.response import StreamPart
from stepwell.models.wire import AnthropicMessages
from stepwell.testing import MockTool, ScriptedModel
from tests.unit.models.wire.samples import (
    MESSAGES,
    arguments_of,
    read,
    started,
    text_of,
    thinking_of,
)

USAGE = {"input_tokens": 10, "output_tokens": 5}
PAID = Usage(input_tokens=10, output_tokens=5)
PING = {"type": "ping"}
STOP = {"type": "message_stop"}


def whole(*content: Any, stop: str | None = "end_turn", usage: Any = USAGE) -> ModelResponse:
    return MESSAGES.response(
        {
            "type": "message",
            "model": "m-1",
            "content": list(content),
            "stop_reason": stop,
            "usage": usage,
        }
    )


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def tool_use(name: str = "add", id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def begin(**usage: Any) -> dict[str, Any]:
    message = {"type": "message", "model": "m-1", "content": [], "usage": {**USAGE, **usage}}
    return {"type": "message_start", "message": message}


def start(index: int, block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def end(stop: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage}


def streamed(*events: Any) -> tuple[list[StreamPart], ModelResponse]:
    parts, reader = read(MESSAGES, *events)
    return parts, reader.response()


def test_text() -> None:
    assert whole(said("Hel"), said("lo")) == ModelResponse(
        text="Hello", finish_reason=FinishReason.STOP, usage=PAID, model="m-1"
    )


def test_parallel_calls() -> None:
    response = whole(said("See:"), tool_use(a=1), tool_use("now", "c2"), stop="tool_use")

    assert response.tool_calls == (
        ToolCall(id="c1", name="add", arguments={"a": 1}),
        ToolCall(id="c2", name="now"),
    )
    assert (response.text, response.finish_reason) == ("See:", FinishReason.TOOL_CALLS)


def test_thinking_keeps_its_signature() -> None:
    response = whole(
        {"type": "thinking", "thinking": "Hmm.", "signature": "c2ln"},
        {"type": "thinking", "thinking": "", "signature": "b21pdHRlZA=="},
        {"type": "redacted_thinking", "data": "cmVk"},
        said("Hi"),
    )

    assert response.thinking == (
        ThinkingPart("Hmm.", "c2ln", origin="messages"),
        ThinkingPart("", "b21pdHRlZA==", origin="messages"),
        ThinkingPart("", "cmVk", origin="messages", redacted=True),
    )


def test_blocks_of_other_kinds_are_passed_over() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    response = whole(search, {"type": "web_search_tool_result", "content": []}, said("Hi"))

    assert (response.text, response.tool_calls) == ("Hi", ())


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("end_turn", FinishReason.STOP),
        ("stop_sequence", FinishReason.STOP),
        ("max_tokens", FinishReason.LENGTH),
        ("model_context_window_exceeded", FinishReason.LENGTH),
        ("pause_turn", FinishReason.OTHER),
        ("brand_new", FinishReason.OTHER),
    ],
)
def test_finish_reasons(word: str, reason: FinishReason) -> None:
    assert whole(said("Hi"), stop=word).finish_reason is reason
    events = (begin(), start(0, said("")), delta(0, "text_delta", text="Hi"), end(word), STOP)
    assert streamed(*events)[1].finish_reason is reason


def test_cached_tokens_are_part_of_the_input() -> None:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 30,
        "output_tokens": 5,
        "output_tokens_details": {"thinking_tokens": 2},
    }

    assert whole(said("Hi"), usage=usage).usage == Usage(
        input_tokens=140,
        output_tokens=5,
        cached_tokens=100,
        cache_write_tokens=30,
        reasoning_tokens=2,
    )
    assert whole(said("Hi"), usage=None).usage == Usage()


def test_streamed_usage_is_cumulative_and_what_is_null_changes_nothing() -> None:
    _, response = streamed(
        begin(input_tokens=10, cache_read_input_tokens=100, output_tokens=1),
        start(0, said("Hi")),
        end("end_turn", output_tokens=4),
        end("end_turn", output_tokens=5, input_tokens=None, cache_read_input_tokens=None),
        STOP,
    )

    assert response.usage == Usage(input_tokens=110, output_tokens=5, cached_tokens=100)


def test_a_refusal_is_an_error_that_keeps_what_was_paid() -> None:
    with pytest.raises(ModelError, match="refused: I can't") as raised:
        whole(said("I can't"), stop="refusal")
    with pytest.raises(ModelError, match=r"refused: \(no words\)") as silent:
        streamed(begin(), end("refusal", output_tokens=5), STOP)

    for error in (raised.value, silent.value):
        assert error.kind is ModelErrorKind.REFUSAL
        assert error.usage == PAID


def test_an_answer_of_nothing_is_an_empty_response() -> None:
    with pytest.raises(ModelError, match="no content") as raised:
        whole(stop=None)

    assert raised.value.kind is ModelErrorKind.EMPTY_RESPONSE
    assert raised.value.usage == PAID


def test_a_model_may_end_its_turn_without_a_word() -> None:
    assert whole(stop="end_turn").text == ""
    assert streamed(begin(), end(), STOP)[1].text == ""


def test_a_stream_with_thinking_text_and_calls() -> None:
    parts, response = streamed(
        begin(),
        PING,
        start(0, {"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking_delta", thinking="Hm"),
        delta(0, "thinking_delta", thinking=""),
        delta(0, "thinking_delta", thinking="m."),
        delta(0, "signature_delta", signature="c2ln"),
        {"type": "content_block_stop", "index": 0},
        start(1, {"type": "redacted_thinking", "data": "cmVk"}),
        start(2, said("He")),
        delta(2, "text_delta", text="l"),
        delta(2, "text_delta", text=""),
        delta(2, "text_delta", text="lo"),
        delta(2, "citations_delta", citation={}),
        start(3, tool_use()),
        delta(3, "input_json_delta", partial_json=""),
        delta(3, "input_json_delta", partial_json='{"a"'),
        start(4, tool_use("now", "c2")),
        delta(3, "input_json_delta", partial_json=": 1}"),
        end("tool_use", output_tokens=5),
        STOP,
    )

    assert thinking_of(parts) == "Hmm."
    assert text_of(parts) == "Hello"
    assert started(parts) == [(0, "c1", "add"), (1, "c2", "now")]
    assert arguments_of(parts) == {0: '{"a": 1}'}
    assert response == whole(
        {"type": "thinking", "thinking": "Hmm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "cmVk"},
        said("Hello"),
        tool_use(a=1),
        tool_use("now", "c2"),
        stop="tool_use",
    )


def test_arguments_that_were_cut_off_are_malformed() -> None:
    _, response = streamed(
        begin(),
        start(0, tool_use()),
        delta(0, "input_json_delta", partial_json='{"a": '),
        end("max_tokens"),
        STOP,
    )

    assert response.tool_calls == (ToolCall(id="c1", name="add", malformed='{"a": '),)
    assert response.finish_reason is FinishReason.LENGTH


def test_a_call_may_come_whole_or_without_its_input() -> None:
    _, response = streamed(
        begin(),
        start(0, tool_use(a=1)),
        start(1, {"type": "tool_use", "id": "c2", "name": "now"}),
        end("tool_use"),
        STOP,
    )

    assert response.tool_calls == (
        ToolCall(id="c1", name="add", arguments={"a": 1}),
        ToolCall(id="c2", name="now"),
    )


def test_tools_that_run_at_the_provider_are_passed_over() -> None:
    parts, response = streamed(
        begin(),
        start(0, {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
        delta(0, "input_json_delta", partial_json='{"query": "x"}'),
        start(1, {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}),
        start(2, said("")),
        delta(2, "text_delta", text="Hi"),
        end(),
        STOP,
    )

    assert (response.text, response.tool_calls) == ("Hi", ())
    assert started(parts) == []


@pytest.mark.parametrize(
    "events",
    [
        [],
        [begin()],
        [begin(), start(0, said("Hi"))],
        [begin(), start(0, said("Hi")), end()],
        [begin(), start(0, said("Hi")), STOP],
        [begin(), start(0, said("Hi")), end(None), STOP],
    ],
)
def test_a_stream_that_is_not_whole_is_an_error(events: list[Any]) -> None:
    _, reader = read(MESSAGES, *events)
    with pytest.raises(ModelError, match="message_stop") as raised:
        reader.response()

    assert raised.value.kind is ModelErrorKind.INCOMPLETE_STREAM
    assert raised.value.usage == (PAID if events else Usage())


@pytest.mark.parametrize("event", [PING, {"type": "brand_new"}, {}, None])
def test_events_of_other_kinds_are_passed_over(event: Any) -> None:
    assert streamed(begin(), event, start(0, said("Hi")), end(), STOP)[1].text == "Hi"


def test_the_stream_is_over_at_its_last_event() -> None:
    _, reader = read(MESSAGES, begin(), end())
    assert reader.is_over is False
    reader.read(STOP)
    assert reader.is_over is True


BETWEEN = {
    "model": "claude",
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 1, "output_tokens": 1},
    "content": [
        {"type": "thinking", "thinking": "First.", "signature": "s1"},
        {"type": "text", "text": "I will look."},
        {"type": "thinking", "thinking": "Then.", "signature": "s2"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
    ],
}


def test_thinking_in_between_keeps_its_place() -> None:
    response = AnthropicMessages().response(BETWEEN)

    assert [type(part).__name__ for part in response.parts] == [
        "ThinkingPart",
        "TextPart",
        "ThinkingPart",
        "ToolCall",
    ]
    assert response.text == "I will look."
    assert [thought.text for thought in response.thinking] == ["First.", "Then."]


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (0, 1, 3), (1, 3, 2, 1), (1,)])
def test_the_usual_order_and_text_behind_calls_need_no_record(order: tuple[int, ...]) -> None:
    content = [BETWEEN["content"][index] for index in order]  # type: ignore[index]

    assert AnthropicMessages().response({**BETWEEN, "content": content}).parts == ()


async def test_it_is_sent_back_in_that_place() -> None:
    wire = AnthropicMessages(cache_ttl=None)
    model = ScriptedModel([wire.response(BETWEEN), "Done."])

    await Agent(model, tools=[MockTool.returning("look", 1)]).run("Go.")

    body = wire.body(model.requests[1], "claude", streaming=False)
    assert body["messages"][1]["content"] == BETWEEN["content"]


async def test_a_hook_that_changes_the_response_changes_what_is_sent_back() -> None:
    wire = AnthropicMessages(cache_ttl=None)
    model = ScriptedModel([wire.response(BETWEEN), "Done."])
    hook = make_hook(
        HookTrigger.AFTER_INFERENCE,
        lambda context: context.with_response(replace(context.response, text="Changed.")),
    )

    state = await Agent(model, tools=[MockTool.returning("look", 1)], hooks=[hook]).run("Go.")

    assert state.messages[1].text == "Changed."

"""Chat completions: what comes back, whole and streamed."""

from typing import Any

import pytest

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FinishReason, ThinkingPart, ToolCall, Usage
from stepwell.models import ModelResponse
from stepwell.models.response import StreamPart
from tests.unit.models.wire.samples import (
    CHAT,
    arguments_of,
    read,
    started,
    text_of,
    thinking_of,
)

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
DONE = None


def whole(finish: str | None = "stop", usage: Any = None, **message: Any) -> ModelResponse:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    return CHAT.response({"model": "m-1", "choices": [choice], "usage": usage})


def function(name: str, arguments: Any, id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"id": id, "function": {"name": name, "arguments": arguments}, **more}


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def piece(**call: Any) -> dict[str, Any]:
    return chunk(tool_calls=[call])


def streamed(*events: Any) -> tuple[list[StreamPart], ModelResponse]:
    parts, reader = read(CHAT, *events)
    return parts, reader.response()


def test_text() -> None:
    assert whole(content="Hello") == ModelResponse(
        text="Hello", finish_reason=FinishReason.STOP, model="m-1"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}], "Hello"),
        ([{"type": "image_url"}, {"type": "text", "text": None}], ""),
    ],
)
def test_content_may_be_missing_or_a_list(content: Any, text: str) -> None:
    assert whole(content=content).text == text
    parts, response = streamed(chunk(content=content), chunk("stop"), DONE)
    assert (text_of(parts), response.text) == (text, text)
    assert [part for part in parts if part.text == ""] == []


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_goes_by_two_names(field: str) -> None:
    thought = (ThinkingPart("Hmm.", origin="chat_completions"),)

    assert whole(content="Hi", **{field: "Hmm."}).thinking == thought
    parts, response = streamed(
        chunk(**{field: "Hm"}), chunk(**{field: "m."}), chunk("stop", content="Hi"), DONE
    )
    assert (thinking_of(parts), response.thinking) == ("Hmm.", thought)
    assert text_of(parts) == "Hi"


def test_parallel_calls() -> None:
    response = whole(
        "tool_calls",
        content=None,
        tool_calls=[function("add", '{"a": 1}'), function("now", "", "c2")],
    )

    assert response.tool_calls == (
        ToolCall(id="c1", name="add", arguments={"a": 1}),
        ToolCall(id="c2", name="now"),
    )
    assert response.finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("arguments", "call"),
    [
        ('{"a": [1, {"b": null}]}', ToolCall(id="c1", name="f", arguments={"a": [1, {"b": None}]})),
        ({"a": 1}, ToolCall(id="c1", name="f", arguments={"a": 1})),
        ("  ", ToolCall(id="c1", name="f")),
        (None, ToolCall(id="c1", name="f")),
        ('{"a": ', ToolCall(id="c1", name="f", malformed='{"a": ')),
        ("[1]", ToolCall(id="c1", name="f", malformed="[1]")),
        ([1], ToolCall(id="c1", name="f", malformed="[1]")),
        (7, ToolCall(id="c1", name="f", malformed="7")),
        ('{"a": "\\ud800"}', ToolCall(id="c1", name="f", malformed='{"a": "\\ud800"}')),
        ("[" * 20_000, ToolCall(id="c1", name="f", malformed="[" * 20_000)),
        ('{"a": 1e999}', ToolCall(id="c1", name="f", malformed='{"a": 1e999}')),
    ],
    ids=lambda value: str(value)[:20],
)
def test_arguments_are_parsed_or_kept_as_malformed(arguments: Any, call: ToolCall) -> None:
    assert whole("tool_calls", tool_calls=[function("f", arguments)]).tool_calls == (call,)
    _, response = streamed(
        chunk("tool_calls", tool_calls=[function("f", arguments, index=0)]), DONE
    )
    assert response.tool_calls == (call,)


def test_a_call_without_id_and_name_is_still_a_call() -> None:
    response = whole("stop", tool_calls=[{"function": {"arguments": "{}"}}, {}])

    assert response.tool_calls == (ToolCall(id="", name=""), ToolCall(id="", name=""))


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("tool_calls", FinishReason.TOOL_CALLS),
        ("function_call", FinishReason.TOOL_CALLS),
        ("eos", FinishReason.OTHER),
    ],
)
def test_finish_reasons(word: str, reason: FinishReason) -> None:
    assert whole(word, content="Hi").finish_reason is reason
    assert streamed(chunk(content="Hi"), chunk(word), DONE)[1].finish_reason is reason


def test_a_response_with_calls_ended_because_of_them_whatever_the_server_says() -> None:
    assert whole("stop", tool_calls=[function("f", "{}")]).finish_reason is FinishReason.TOOL_CALLS
    cut = whole("length", tool_calls=[function("f", '{"a')])
    assert (cut.finish_reason, cut.tool_calls[0].malformed) == (FinishReason.LENGTH, '{"a')


def test_a_whole_answer_may_lack_its_finish_reason() -> None:
    assert whole(None, content="Hi").finish_reason is FinishReason.OTHER


@pytest.mark.parametrize(
    ("given", "usage"),
    [
        (None, Usage()),
        (USAGE, Usage(input_tokens=10, output_tokens=5)),
        (
            {
                **USAGE,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(
                input_tokens=10,
                output_tokens=5,
                cached_tokens=4,
                cache_write_tokens=2,
                reasoning_tokens=3,
            ),
        ),
        (
            {**USAGE, "prompt_tokens_details": None, "completion_tokens_details": None},
            Usage(input_tokens=10, output_tokens=5),
        ),
        (  # DeepSeek
            {**USAGE, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 6},
            Usage(input_tokens=10, output_tokens=5, cached_tokens=4),
        ),
        (  # xAI counts reasoning apart from the completion; the total shows it
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            Usage(input_tokens=32, output_tokens=103, reasoning_tokens=94),
        ),
        ({"prompt_tokens": None, "completion_tokens": "?"}, Usage()),
    ],
)
def test_usage_has_one_meaning(given: Any, usage: Usage) -> None:
    assert whole(content="Hi", usage=given).usage == usage
    last = {"choices": [], "usage": given}
    assert streamed(chunk("stop", content="Hi"), last, DONE)[1].usage == usage


@pytest.mark.parametrize(("cost", "told"), [(0.25, 0.25), (1, 1.0), (None, 0.0), ("1", 0.0)])
def test_what_the_provider_says_it_charged(cost: Any, told: float) -> None:
    usage = {**USAGE, "cost": cost}

    assert whole(content="Hi", usage=usage).cost == told
    last = {"choices": [], "usage": usage}
    assert streamed(chunk("stop", content="Hi"), last, DONE)[1].cost == told


def test_a_refusal_is_an_error_that_keeps_what_was_paid() -> None:
    with pytest.raises(ModelError, match=r"refused: I can't\.") as raised:
        whole(content=None, refusal="I can't.", usage=USAGE)
    with pytest.raises(ModelError, match=r"refused: I can't\.") as later:
        streamed(
            chunk(refusal="I "),
            chunk(refusal="can't."),
            chunk("stop"),
            {"choices": [], "usage": USAGE},
            DONE,
        )

    for error in (raised.value, later.value):
        assert error.kind is ModelErrorKind.REFUSAL
        assert error.retryable is False
        assert error.provider_text == "I can't."
        assert error.usage == Usage(input_tokens=10, output_tokens=5)


@pytest.mark.parametrize(
    ("finish", "kind"),
    [("content_filter", ModelErrorKind.CONTENT_FILTER), ("error", ModelErrorKind.SERVER)],
)
def test_a_filter_or_a_failure_is_an_error_that_keeps_what_was_paid(
    finish: str, kind: ModelErrorKind
) -> None:
    with pytest.raises(ModelError) as raised:
        whole(finish, content="Hel", usage=USAGE)
    with pytest.raises(ModelError) as later:
        streamed(chunk(content="Hel"), {**chunk(finish), "usage": USAGE}, DONE)

    assert (raised.value.kind, later.value.kind) == (kind, kind)
    assert raised.value.usage == later.value.usage == Usage(input_tokens=10, output_tokens=5)


@pytest.mark.parametrize("choices", [[], None])
def test_no_choices_is_an_empty_response(choices: Any) -> None:
    with pytest.raises(ModelError, match="no choices") as raised:
        CHAT.response({"choices": choices, "usage": USAGE})

    assert raised.value.kind is ModelErrorKind.EMPTY_RESPONSE
    assert raised.value.usage == Usage(input_tokens=10, output_tokens=5)


def test_a_call_split_over_many_deltas_beside_another() -> None:
    parts, response = streamed(
        chunk(role="assistant", content=""),
        chunk(content="Let me "),
        chunk(content="see."),
        piece(index=0, id="c1", type="function", function={"name": "add", "arguments": ""}),
        piece(index=0, function={"arguments": '{"a"'}),
        piece(index=1, id="c2", type="function", function={"name": "now", "arguments": "{"}),
        piece(index=0, function={"arguments": ": 1}"}),
        piece(index=1, function={"arguments": "}"}),
        chunk("tool_calls"),
        {"choices": [], "usage": USAGE},
        DONE,
    )

    assert text_of(parts) == response.text == "Let me see."
    assert started(parts) == [(0, "c1", "add"), (1, "c2", "now")]
    assert arguments_of(parts) == {0: '{"a": 1}', 1: "{}"}
    assert response.tool_calls == (
        ToolCall(id="c1", name="add", arguments={"a": 1}),
        ToolCall(id="c2", name="now"),
    )


def test_calls_without_an_index_come_one_after_the_other() -> None:
    _, response = streamed(
        chunk(tool_calls=[function("add", '{"a": 1}'), function("add", '{"a": 2}', "c2")]),
        chunk("stop", tool_calls=[function("now", "{}", "c3")]),
        DONE,
    )

    assert [(call.id, call.arguments) for call in response.tool_calls] == [
        ("c1", {"a": 1}),
        ("c2", {"a": 2}),
        ("c3", {}),
    ]


def test_calls_without_index_and_id_begin_with_their_name() -> None:
    _, response = streamed(
        piece(function={"name": "add", "arguments": '{"a"'}),
        piece(function={"arguments": ": 1}"}),
        piece(function={"name": "now", "arguments": "{}"}),
        chunk("tool_calls"),
        DONE,
    )

    assert [(call.name, call.arguments) for call in response.tool_calls] == [
        ("add", {"a": 1}),
        ("now", {}),
    ]


@pytest.mark.parametrize("repeats_name", [True, False])
def test_a_delta_may_repeat_id_and_name_of_its_call(repeats_name: bool) -> None:
    more: dict[str, Any] = {"name": "add"} if repeats_name else {}
    for index in (0, None):
        _, response = streamed(
            piece(index=index, **function("add", '{"a"')),
            piece(index=index, id="c1", function={"arguments": ": 1}", **more}),
            chunk("tool_calls"),
            DONE,
        )

        assert response.tool_calls == (ToolCall(id="c1", name="add", arguments={"a": 1}),)


@pytest.mark.parametrize("repeats_id", [True, False])
def test_a_call_without_an_index_may_go_on_in_later_deltas(repeats_id: bool) -> None:
    more: dict[str, Any] = {"id": "c1"} if repeats_id else {}
    _, response = streamed(
        piece(**function("add", '{"a"')),
        piece(function={"arguments": ": 1}"}, **more),
        chunk("tool_calls"),
        DONE,
    )

    assert response.tool_calls == (ToolCall(id="c1", name="add", arguments={"a": 1}),)


def test_parallel_calls_that_all_say_index_0_are_told_apart_by_id_and_name() -> None:
    """As Google's compatible endpoint streams them."""
    parts, response = streamed(
        piece(index=0, **function("add", '{"a": 1}', "c1")),
        piece(index=0, **function("add", '{"a": 2}', "c2")),
        chunk("tool_calls"),
        DONE,
    )

    assert [(call.id, call.arguments) for call in response.tool_calls] == [
        ("c1", {"a": 1}),
        ("c2", {"a": 2}),
    ]
    assert started(parts) == [(0, "c1", "add"), (1, "c2", "add")]
    assert arguments_of(parts) == {0: '{"a": 1}', 1: '{"a": 2}'}


def test_a_new_id_in_every_delta_is_still_one_call() -> None:
    """As some servers send: only the first delta has the name."""
    _, response = streamed(
        piece(index=0, **function("add", '{"a"', "c1")),
        piece(index=0, id="c9", function={"arguments": ": 1}"}),
        chunk("tool_calls"),
        DONE,
    )

    assert response.tool_calls == (ToolCall(id="c1", name="add", arguments={"a": 1}),)


def test_id_and_name_may_come_later_than_the_call() -> None:
    _, response = streamed(
        piece(index=0, function={"arguments": '{"a"'}),
        piece(index=0, id="c1", function={"name": "add", "arguments": ": 1}"}),
        chunk("tool_calls"),
        DONE,
    )

    assert response.tool_calls == (ToolCall(id="c1", name="add", arguments={"a": 1}),)


def test_a_stream_is_whole_with_usage_in_place_of_the_last_message() -> None:
    _, response = streamed(chunk("stop", content="Hi"), {"choices": [], "usage": USAGE})

    assert response.text == "Hi"


@pytest.mark.parametrize(
    ("events", "missing"),
    [
        ([], "finish reason"),
        ([DONE], "finish reason"),
        ([chunk(content="Hi"), DONE], "finish reason"),
        ([chunk(content="Hi"), chunk("stop")], "DONE"),
    ],
)
def test_a_stream_that_is_not_whole_is_an_error(events: list[Any], missing: str) -> None:
    _, reader = read(CHAT, *events)
    with pytest.raises(ModelError, match=missing) as raised:
        reader.response()

    assert raised.value.kind is ModelErrorKind.INCOMPLETE_STREAM
    assert raised.value.retryable is True


def test_an_incomplete_stream_keeps_what_was_paid() -> None:
    _, reader = read(CHAT, {**chunk(content="Hi"), "usage": USAGE})
    with pytest.raises(ModelError) as raised:
        reader.response()

    assert raised.value.usage == Usage(input_tokens=10, output_tokens=5)


def test_the_stream_is_over_at_done() -> None:
    _, reader = read(CHAT, chunk("stop", content="Hi"))
    assert reader.is_over is False
    reader.read(DONE)
    assert reader.is_over is True


def test_chunks_without_choices_or_delta_are_passed_over() -> None:
    """Azure begins with the filter's verdict on the prompt."""
    _, response = streamed(
        {"choices": [], "prompt_filter_results": []},
        {"choices": [{"index": 0, "delta": None}]},
        chunk("stop", content="Hi"),
        DONE,
    )

    assert response.text == "Hi"

"""What the bridge makes of a pydantic-ai model's answer, whole and streamed."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from pydantic_ai import exceptions as theirs_errors
from pydantic_ai import messages as theirs
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel as EchoModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage

from stepwell import FinishReason, ModelError, TextDelta, ThinkingDelta, ToolCall, Usage
from stepwell.errors import ModelErrorKind
from stepwell.messages import ThinkingPart
from stepwell.models import ResponseEnd, ToolCallDelta, ToolCallEnd, ToolCallStart, UsageReport
from stepwell.models.pydantic_ai import PydanticAiModel
from tests.integration.models.pydantic_ai_doubles import (
    ADD,
    CITY,
    Heard,
    answered,
    asking,
    parts_of,
    streaming,
)


async def test_text_thinking_calls_usage_and_ids():
    response = await answered(
        theirs.ThinkingPart("hm", signature="sig", id="th", provider_name="acme"),
        theirs.TextPart("One "),
        theirs.TextPart("two"),
        theirs.ToolCallPart("add", '{"a": 1}', "c1"),
        theirs.ToolCallPart("add", {"a": 2}, "c2", provider_details={"thought_signature": "c2ln"}),
        usage=RequestUsage(
            input_tokens=100,
            cache_read_tokens=60,
            cache_write_tokens=10,
            output_tokens=20,
            output_reasoning_tokens=15,
        ),
        finish_reason="tool_call",
        provider_response_id="resp_1",
    )

    assert response.text == "One two"
    assert response.thinking == (ThinkingPart("hm", "sig", "th", "pydantic_ai:acme"),)
    assert response.tool_calls == (
        ToolCall(id="c1", name="add", arguments={"a": 1}),
        ToolCall(id="c2", name="add", arguments={"a": 2}, signature="c2ln"),
    )
    assert response.usage == Usage(
        input_tokens=100,
        output_tokens=20,
        cached_tokens=60,
        cache_write_tokens=10,
        reasoning_tokens=15,
    )
    assert response.finish_reason is FinishReason.TOOL_CALLS
    assert (response.request_id, response.cost) == ("resp_1", 0.0)
    assert response.model == "function:Heard:"


@pytest.mark.parametrize("arguments", ['{"a": ', "[1]", '"text"', "null"])
async def test_arguments_that_are_no_object_are_malformed(arguments):
    response = await answered(theirs.ToolCallPart("add", arguments, "c1"))

    assert response.tool_calls == (ToolCall(id="c1", name="add", malformed=arguments),)


@pytest.mark.parametrize("arguments", [None, "", "{}", {}])
async def test_no_arguments_are_an_empty_object(arguments):
    response = await answered(theirs.ToolCallPart("add", arguments, "c1"))

    assert response.tool_calls == (ToolCall(id="c1", name="add"),)


@pytest.mark.parametrize(
    ("said", "details", "expected"),
    [
        ("stop", None, FinishReason.STOP),
        ("length", None, FinishReason.LENGTH),
        (None, {"finish_reason": "odd"}, FinishReason.OTHER),
        (None, None, None),
    ],
)
async def test_finish_reasons(said, details, expected):
    response = await answered(finish_reason=said, provider_details=details)

    assert response.finish_reason is expected


async def test_calls_are_why_a_turn_ended_whatever_the_provider_says():
    response = await answered(theirs.ToolCallPart("add", "{}", "c1"), finish_reason="stop")

    assert response.finish_reason is FinishReason.TOOL_CALLS


@pytest.mark.parametrize(
    ("details", "kind", "words"),
    [
        ({"refusal": "I won't."}, ModelErrorKind.REFUSAL, "refused: I won't"),
        ({"finish_reason": "refusal"}, ModelErrorKind.REFUSAL, "it gave no reason"),
        ({"finish_reason": "SAFETY"}, ModelErrorKind.CONTENT_FILTER, "filter"),
    ],
)
async def test_a_refusal_is_an_error_that_keeps_what_was_paid(details, kind, words):
    paid = RequestUsage(input_tokens=9, output_tokens=1, cost=0.5)
    with pytest.raises(ModelError, match=words) as caught:
        await answered(finish_reason="content_filter", provider_details=details, usage=paid)

    error = caught.value
    assert (error.kind, error.retryable) == (kind, False)
    assert error.usage == Usage(input_tokens=9, output_tokens=1)
    assert error.cost == 0.5
    assert str(error).startswith("function:")


async def test_a_suspended_turn_is_no_answer():
    with pytest.raises(ModelError, match="suspended"):
        await answered(state="suspended")


async def test_a_known_model_has_a_price():
    paid = RequestUsage(input_tokens=1_000_000, output_tokens=1_000_000)
    listener = Heard(usage=paid, provider_name="openai")
    response = await listener.model(model_name="gpt-4o").respond(asking())

    assert response.cost == pytest.approx(12.5)


async def test_a_price_that_the_provider_tells_is_taken():
    response = await answered(usage=RequestUsage(input_tokens=5, cost=0.25))

    assert response.cost == 0.25


async def test_what_a_fallback_tried_in_vain_is_counted():
    rejected = FunctionModel(Heard(usage=RequestUsage(input_tokens=100, cost=0.5)))
    good = FunctionModel(Heard(theirs.TextPart("yes"), usage=RequestUsage(input_tokens=10)))

    def is_not_enough(response: theirs.ModelResponse) -> bool:
        return response.text == "ok"

    model = PydanticAiModel(FallbackModel(rejected, good, fallback_on=is_not_enough))
    response = await model.respond(asking(response_format=CITY))

    assert (response.text, response.usage.input_tokens, response.cost) == ("yes", 110, 0.5)


async def test_text_arrives_in_pieces_and_the_end_has_the_whole():
    parts = await parts_of(streaming("Hel", "lo ", "you"))

    assert parts[:3] == [TextDelta("Hel"), TextDelta("lo "), TextDelta("you")]
    assert isinstance(parts[-2], UsageReport)
    assert isinstance(parts[-1], ResponseEnd)
    assert parts[-1].response.text == "Hello you"
    assert parts[-2].usage == parts[-1].response.usage


async def test_thinking_arrives_apart_from_the_text_and_keeps_its_signature():
    parts = await parts_of(
        streaming(
            {0: DeltaThinkingPart(content="hm ")},
            {0: DeltaThinkingPart(content="well")},
            {0: DeltaThinkingPart(signature="sig")},
            "Yes",
        )
    )

    assert parts[:3] == [ThinkingDelta("hm "), ThinkingDelta("well"), TextDelta("Yes")]
    assert parts[-1].response.thinking == (
        ThinkingPart("hm well", "sig", None, "pydantic_ai:function"),
    )


async def test_arguments_of_parallel_calls_never_become_text():
    parts = await parts_of(
        streaming(
            "Adding.",
            {0: DeltaToolCall(name="add", json_args='{"a"', tool_call_id="c1")},
            {1: DeltaToolCall(name="sub", tool_call_id="c2")},
            {0: DeltaToolCall(json_args=": 1}"), 1: DeltaToolCall(json_args='{"b": 2}')},
        )
    )
    calls = (
        ToolCall(id="c1", name="add", arguments={"a": 1}),
        ToolCall(id="c2", name="sub", arguments={"b": 2}),
    )

    assert [part for part in parts if not isinstance(part, UsageReport)] == [
        TextDelta("Adding."),
        ToolCallStart(index=0, id="c1", name="add"),
        ToolCallDelta(index=0, arguments='{"a"'),
        ToolCallStart(index=1, id="c2", name="sub"),
        ToolCallDelta(index=0, arguments=": 1}"),
        ToolCallDelta(index=1, arguments='{"b": 2}'),
        ToolCallEnd(index=0, call=calls[0]),
        ToolCallEnd(index=1, call=calls[1]),
        parts[-1],
    ]
    assert parts[-1].response.tool_calls == calls
    assert parts[-1].response.text == "Adding."
    assert parts[-1].response.finish_reason is FinishReason.TOOL_CALLS


async def test_tools_that_the_provider_runs_itself_are_not_ours_to_call():
    own = theirs.NativeToolCallPart("web_search", {"q": "x"}, "n1", provider_name="function")
    parts = await parts_of(streaming({0: own}, "Found."))

    assert [type(part) for part in parts[:-2]] == [TextDelta]
    assert parts[-1].response.tool_calls == ()


async def test_arguments_that_come_whole_are_told_as_json():
    model = PydanticAiModel(EchoModel(call_tools=["add"]))
    parts = await parts_of(model, asking(tools=(ADD,)))

    assert ToolCallDelta(index=0, arguments='{"a":0}') in parts
    assert parts[-1].response.tool_calls[0].arguments == {"a": 0}


async def test_a_model_that_can_not_stream_answers_as_one_part():
    class Whole(WrapperModel):
        @asynccontextmanager
        async def request_stream(*args, **kwargs):
            raise NotImplementedError("no streams here")
            yield

    parts = await parts_of(PydanticAiModel(Whole(FunctionModel(Heard()))))

    assert parts[0] == TextDelta("ok")
    assert parts[-1].response.text == "ok"


async def test_a_fault_in_the_middle_is_raised_after_what_came_and_keeps_what_was_paid():
    model = streaming("One two three", theirs_errors.UnexpectedModelBehavior("odd", "body"))
    seen = []
    with pytest.raises(ModelError, match="odd") as caught:
        await parts_of(model, seen=seen)

    assert seen == [TextDelta("One two three")]
    assert caught.value.kind is ModelErrorKind.MALFORMED_RESPONSE
    assert caught.value.provider_text == "body"
    assert caught.value.usage.output_tokens > 0


async def test_whoever_stops_reading_ends_the_turn():
    ended = asyncio.Event()

    async def endless(messages, info):
        try:
            while True:
                yield "word "
                await asyncio.sleep(0)
        finally:
            ended.set()

    stream = PydanticAiModel(FunctionModel(stream_function=endless)).stream(asking())
    assert await anext(stream) == TextDelta("word ")
    await stream.aclose()

    assert ended.is_set()


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_cancellation_reaches_the_model_and_passes_through(streamed):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait(messages=None, info=None):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def wait_streaming(messages, info):
        yield "one"
        await wait()

    model = PydanticAiModel(FunctionModel(wait, stream_function=wait_streaming))
    turn = parts_of(model) if streamed else model.respond(asking())
    task = asyncio.create_task(turn)
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()

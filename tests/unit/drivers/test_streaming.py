"""What listeners hear of a streamed response: chunks in order, thinking, never arguments."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from stepwell import (
    Agent,
    AgentStatus,
    ErrorPolicy,
    Final,
    ModelError,
    ModelRequest,
    ModelResponse,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolStarted,
)
from stepwell.events import StreamEventReceived, ThinkingReceived
from stepwell.models import ResponseEnd, StreamPart, ToolCallDelta, ToolCallEnd, ToolCallStart
from stepwell.testing import EventRecorder, FakeClock, MockTool

CALL = ToolCall(id="c1", name="add", arguments={"a": 1})
ADD = MockTool.returning("add", 3)


class StreamingModel:
    """Streams each turn as it is given; an exception in it is raised in that place."""

    name = "streaming"

    def __init__(self, *turns: list[StreamPart | Exception]) -> None:
        self.turns = list(turns)
        self.closed = 0

    async def respond(self, request: ModelRequest) -> ModelResponse:
        raise AssertionError("it was asked to stream")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        try:
            for part in self.turns.pop(0):
                if isinstance(part, Exception):
                    raise part
                yield part
        finally:
            self.closed += 1


def ended(text: str = "", *calls: ToolCall) -> ResponseEnd:
    return ResponseEnd(ModelResponse(text=text, tool_calls=calls))


def texts(parts: list[object]) -> list[str]:
    return [part.text for part in parts if isinstance(part, TextDelta)]


async def heard_of(model: StreamingModel, **options: object) -> list[object]:
    agent = Agent(model, tools=[ADD], clock=FakeClock(), **options)
    return [part async for part in agent.stream("Go.")]


async def test_chunks_are_numbered_and_the_last_one_says_so() -> None:
    recorder = EventRecorder()
    agent = Agent(StreamingModel([TextDelta("One "), TextDelta("two."), ended("One two.")]))
    agent.wiretap(recorder)

    await agent.run("Go.")

    chunks = recorder.of(StreamEventReceived)
    assert [(c.content, c.chunk_index, c.is_complete) for c in chunks] == [
        ("One ", 0, False),
        ("two.", 1, False),
        ("", 2, True),
    ]


async def test_arguments_of_calls_are_never_among_the_text() -> None:
    call_parts: list[StreamPart | Exception] = [
        TextDelta("I will add."),
        ToolCallStart(index=0, id="c1", name="add"),
        ToolCallDelta(index=0, arguments='{"a"'),
        ToolCallDelta(index=0, arguments=": 1}"),
        ToolCallEnd(index=0, call=CALL),
        ended("I will add.", CALL),
    ]
    parts = await heard_of(StreamingModel(call_parts, [TextDelta("3"), ended("3")]))

    assert texts(parts) == ["I will add.", "3"]
    assert any(isinstance(part, ToolStarted) for part in parts)


@pytest.mark.parametrize("pieces", [['{"a": 1}'], ["", " {", '"a": ', "1}"]])
async def test_b168_arguments_that_a_model_writes_into_its_text_are_not_told(
    pieces: list[str],
) -> None:
    leaked = "".join(pieces)
    first = [*(TextDelta(piece) for piece in pieces), ended(leaked, CALL)]

    parts = await heard_of(StreamingModel(first, [TextDelta("3"), ended("3")]))

    assert texts(parts) == ["3"]
    final = parts[-1]
    assert isinstance(final, Final)
    assert leaked not in [message.text for message in final.state.messages]


async def test_json_that_is_the_answer_is_told_after_all() -> None:
    answer = [TextDelta('{"b"'), TextDelta(": 2}"), ended('{"b": 2}')]

    assert "".join(texts(await heard_of(StreamingModel(answer)))) == '{"b": 2}'


async def test_text_that_begins_with_blanks_is_told_whole_and_at_once() -> None:
    answer = [TextDelta("\n"), TextDelta(" Hello"), TextDelta(" {}"), ended("\n Hello {}")]

    assert texts(await heard_of(StreamingModel(answer))) == ["\n Hello", " {}"]


async def test_json_is_not_held_back_where_no_tool_could_be_called() -> None:
    answer = [TextDelta('{"b"'), TextDelta(": 2}"), ended('{"b": 2}')]
    agent = Agent(StreamingModel(answer), response_format={"type": "json_object"})

    parts = [part async for part in agent.stream("Go.")]

    assert texts(parts) == ['{"b"', ": 2}"]


async def test_arguments_are_held_back_beside_a_response_format_too() -> None:
    first = [TextDelta('{"a":'), TextDelta(" 1}"), ended('{"a": 1}', CALL)]
    model = StreamingModel(first, [TextDelta("{}"), ended("{}")])

    parts = await heard_of(model, response_format={"type": "json_object"})

    assert texts(parts) == ["{}"]


async def test_thinking_is_told_apart_from_text() -> None:
    recorder = EventRecorder()
    agent = Agent(StreamingModel([ThinkingDelta("Hm."), TextDelta("Yes."), ended("Yes.")]))
    agent.wiretap(recorder)

    parts = [part async for part in agent.stream("Go.")]

    assert [part.text for part in parts if isinstance(part, ThinkingDelta)] == ["Hm."]
    assert texts(parts) == ["Yes."]
    assert [event.content for event in recorder.of(ThinkingReceived)] == ["Hm."]


async def test_a_stream_that_breaks_off_is_an_error_step_and_no_answer() -> None:
    cut = ModelError("cut", kind="disconnected")
    model = StreamingModel([TextDelta("Hel"), cut])

    parts = await heard_of(model)

    final = parts[-1]
    assert isinstance(final, Final)
    assert final.state.status is AgentStatus.FAILED
    assert final.state.final_response is None
    assert len(final.state.messages) == 1
    assert model.closed == 1


async def test_after_a_break_the_next_step_begins_anew() -> None:
    recorder = EventRecorder()
    cut = ModelError("cut", kind="disconnected")
    model = StreamingModel([TextDelta("Hel"), cut], [TextDelta("Hello."), ended("Hello.")])
    agent = Agent(model, clock=FakeClock(), error_policy=ErrorPolicy.retry_all())
    agent.wiretap(recorder)

    state = await agent.run("Go.")

    assert state.status is AgentStatus.COMPLETED
    assert state.final_response == "Hello."
    chunks = [(c.step_number, c.content, c.chunk_index) for c in recorder.of(StreamEventReceived)]
    assert chunks == [(1, "Hel", 0), (2, "Hello.", 0), (2, "", 1)]


async def test_a_stream_that_is_left_is_closed() -> None:
    model = StreamingModel([TextDelta("One"), TextDelta("two"), ended("One two")])

    async with aclosing(Agent(model).stream("Go.")) as parts:
        async for part in parts:
            if isinstance(part, TextDelta):
                break

    assert model.closed == 1


async def test_text_nested_without_end_beside_a_call_is_only_text() -> None:
    deep = "{" + '"a":{' * 100_000
    first = [TextDelta(deep), ended(deep, CALL)]

    parts = await heard_of(StreamingModel(first, [TextDelta("3"), ended("3")]))

    assert texts(parts) == [deep, "3"]

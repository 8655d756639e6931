"""The official clients as oracles: they and we read the same recorded bytes and hear the same."""

import asyncio
import base64
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from msgspec import Struct, json, structs

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FinishReason, Message, ToolCall, Usage
from stepwell.models import (
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageReport,
)
from stepwell.models.provider import ProviderModel
from tests.servers.byte_server import Answer, ByteServer
from tests.servers.record import RECORDINGS, WIRES
from tests.servers.weather_agent import model_at

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # invalid escapes in its docstrings
    from google import genai
    from google.genai import errors as genai_errors

SECONDS = 10
REQUEST = ModelRequest(messages=(Message.user("hi"),))
SAID: Any = [{"role": "user", "content": "hi"}]
NO_TLS = {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}
"""Loading the system's certificates for each client would take most of the time."""


def recordings(pattern: str) -> list[Any]:
    """The recordings whose name fits, each as a test parameter that is named after it."""
    files = sorted(file for wire in WIRES for file in (RECORDINGS / wire).glob(pattern))
    return [pytest.param(file, id=f"{file.parent.name}-{file.name}") for file in files]


NO_ANSWER = ("doc_error", "extra_unofficial")  # the latter is what their own provider never sends
ANSWERS = [f for f in recordings("*.*") if not f.values[0].name.startswith(NO_ANSWER)]
STREAMS = [file for file in ANSWERS if file.values[0].suffix == ".sse"]
PAIRS = [file for file in STREAMS if file.values[0].with_suffix(".json").exists()]
ERRORS = recordings("doc_error*")


class Heard(Struct, frozen=True, kw_only=True):
    """What a client made of an answer, in words that hold for every client."""

    ending: FinishReason | ModelErrorKind
    usage: Usage
    text: str = ""
    thinking: tuple[tuple[str, str | None], ...] = ()
    """Texts with their signatures."""
    calls: tuple[ToolCall, ...] = ()

    @property
    def known(self) -> "Heard":
        """What both must agree on: of a failed turn only why it failed and what it cost."""
        if isinstance(self.ending, FinishReason):
            return self
        return Heard(ending=self.ending, usage=self.usage)


def base_url(server: ByteServer, wire: str) -> str:
    """The address as this format's clients want it."""
    return f"{server.url}/v1" if wire in ("chat", "responses") else server.url


def answer(file: Path) -> Answer:
    """The recording as the server sends it."""
    body = file.read_bytes()
    return Answer.sse(body) if file.suffix == ".sse" else Answer.json(body)


# What we hear


async def ours(model: ProviderModel, *, streamed: bool) -> Heard:
    """The answer as Stepwell reads it."""
    try:
        if streamed:
            response = checked([part async for part in model.stream(REQUEST)])
        else:
            response = await model.respond(REQUEST)
    except ModelError as error:
        return Heard(ending=ModelErrorKind(error.kind or ""), usage=error.usage or Usage())
    return heard(response)


def heard(response: ModelResponse) -> Heard:
    """A response as any client could have heard it."""
    assert response.finish_reason is not None
    return Heard(
        ending=response.finish_reason,
        usage=response.usage,
        text=response.text,
        thinking=tuple((part.text, part.signature) for part in response.thinking),
        calls=response.tool_calls,
    )


def checked(parts: list[StreamPart]) -> ModelResponse:
    """The response at the end of a stream, if the parts before it tell the same."""
    last = parts[-1]
    assert isinstance(last, ResponseEnd)
    assert [part for part in parts if isinstance(part, ResponseEnd)] == [last]
    response = last.response
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == response.text
    thought = "".join(part.text for part in parts if isinstance(part, ThinkingDelta))
    assert thought == "".join(part.text for part in response.thinking)
    # One at the end with all of it; before that, one with what the stream told first.
    *first, last = [part.usage for part in parts if isinstance(part, UsageReport)]
    assert (last, len(first) <= 1) == (response.usage, True)

    starts = [part for part in parts if isinstance(part, ToolCallStart)]
    ends = [part for part in parts if isinstance(part, ToolCallEnd)]
    called = list(enumerate(response.tool_calls))
    assert [(part.index, part.id, part.name) for part in starts] == [
        (index, call.id, call.name) for index, call in called
    ]
    assert [(part.index, part.call) for part in ends] == called
    for index, call in called:
        deltas = (p for p in parts if isinstance(p, ToolCallDelta) and p.index == index)
        text = "".join(part.arguments for part in deltas)
        assert text == call.malformed if call.malformed else parsed(text) == call.arguments
    return response


def parsed(arguments: str | None) -> Any:
    """Arguments as they arrive in a stream; a call without any has no text."""
    return json.decode(arguments) if arguments else {}


def call(id: str | None, name: str, arguments: str | None) -> ToolCall:
    """A call as the clients of OpenAI give it, with its arguments as text."""
    with suppress(ValueError):
        return ToolCall(id=id or "", name=name, arguments=parsed(arguments))
    return ToolCall(id=id or "", name=name, malformed=arguments)


# What the official clients hear


async def openai_chat(url: str, *, streamed: bool) -> Heard:
    """Chat completions by the SDK of OpenAI; in a stream it puts the message together itself."""
    plain = openai.DefaultAsyncHttpxClient(**NO_TLS)
    async with openai.AsyncOpenAI(
        base_url=url, api_key="k", max_retries=0, http_client=plain
    ) as client:
        ask = client.chat.completions
        if not streamed:
            completion = await ask.create(model="m", messages=SAID)
        else:
            async with ask.stream(model="m", messages=SAID) as stream:
                # Its helper refuses answers that are cut off; what it had read so far is there.
                with suppress(
                    openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError
                ):
                    await stream.until_done()
                completion = stream.current_completion_snapshot
    choice = completion.choices[0]
    message = choice.message
    endings: dict[str, FinishReason | ModelErrorKind] = {
        "stop": FinishReason.STOP,
        "tool_calls": FinishReason.TOOL_CALLS,
        "length": FinishReason.LENGTH,
        "content_filter": ModelErrorKind.CONTENT_FILTER,
    }
    thought = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    return Heard(
        ending=ModelErrorKind.REFUSAL if message.refusal else endings[choice.finish_reason],
        text=message.content or "",
        thinking=((thought, None),) if thought else (),
        calls=tuple(
            call(given.id, given.function.name, given.function.arguments)
            for given in message.tool_calls or ()
            if given.type == "function"
        ),
        usage=chat_usage(completion.usage),
    )


def chat_usage(usage: Any) -> Usage:
    """Chat completions count cached and reasoning tokens inside the others, as we do."""
    if usage is None:
        return Usage()
    of_input, of_output = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        cached_tokens=getattr(of_input, "cached_tokens", None) or 0,
        cache_write_tokens=getattr(of_input, "cache_write_tokens", None) or 0,
        reasoning_tokens=getattr(of_output, "reasoning_tokens", None) or 0,
    )


async def openai_responses(url: str, *, streamed: bool) -> Heard:
    """Responses by the SDK of OpenAI; in a stream it finds the event with the whole response."""
    plain = openai.DefaultAsyncHttpxClient(**NO_TLS)
    async with openai.AsyncOpenAI(
        base_url=url, api_key="k", max_retries=0, http_client=plain
    ) as client:
        if not streamed:
            response: Any = await client.responses.create(model="m", input="hi")
        else:
            events: Any = await client.responses.create(model="m", input="hi", stream=True)
            last = [event async for event in events][-1]
            response = last.response
    items = response.output
    contents = [part for item in items if item.type == "message" for part in item.content]
    calls = [item for item in items if item.type == "function_call"]
    usage = response.usage
    of_input, of_output = usage.input_tokens_details, usage.output_tokens_details
    return Heard(
        ending=responses_ending(response, contents, calls),
        text="".join(part.text for part in contents if part.type == "output_text"),
        thinking=tuple(
            ("\n\n".join(piece.text for piece in item.summary), item.encrypted_content)
            for item in items
            if item.type == "reasoning"
        ),
        calls=tuple(call(item.call_id, item.name, item.arguments) for item in calls),
        usage=Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=getattr(of_input, "cached_tokens", None) or 0,
            cache_write_tokens=getattr(of_input, "cache_write_tokens", None) or 0,
            reasoning_tokens=getattr(of_output, "reasoning_tokens", None) or 0,
        ),
    )


def responses_ending(response: Any, contents: Any, calls: Any) -> FinishReason | ModelErrorKind:
    if response.status == "failed":
        return ModelErrorKind.SERVER
    if any(part.type == "refusal" for part in contents):
        return ModelErrorKind.REFUSAL
    if response.status != "incomplete":
        return FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    why = response.incomplete_details
    endings: dict[str, FinishReason | ModelErrorKind] = {
        "max_output_tokens": FinishReason.LENGTH,
        "content_filter": ModelErrorKind.CONTENT_FILTER,
    }
    return endings[why.reason] if why else FinishReason.OTHER  # aimock does not say why


async def anthropic_messages(url: str, *, streamed: bool) -> Heard:
    """Messages by the SDK of Anthropic; in a stream it puts the blocks together itself."""
    plain = anthropic.DefaultAsyncHttpxClient(**NO_TLS)
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key="k", max_retries=0, http_client=plain
    ) as client:
        if not streamed:
            message = await client.messages.create(model="m", max_tokens=9, messages=SAID)
        else:
            async with client.messages.stream(model="m", max_tokens=9, messages=SAID) as stream:
                message = await stream.get_final_message()
    endings: dict[str, FinishReason | ModelErrorKind] = {
        "end_turn": FinishReason.STOP,
        "stop_sequence": FinishReason.STOP,
        "tool_use": FinishReason.TOOL_CALLS,
        "max_tokens": FinishReason.LENGTH,
        "model_context_window_exceeded": FinishReason.LENGTH,
        "refusal": ModelErrorKind.REFUSAL,
        "content_filter": FinishReason.OTHER,  # what aimock says; Anthropic has no such reason
    }
    usage = message.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    return Heard(
        ending=endings[message.stop_reason or ""],
        text="".join(block.text for block in message.content if block.type == "text"),
        thinking=tuple(
            (block.thinking, block.signature) if block.type == "thinking" else ("", block.data)
            for block in message.content
            if block.type in ("thinking", "redacted_thinking")
        ),
        calls=tuple(
            ToolCall(id=block.id, name=block.name, arguments=dict(block.input))
            for block in message.content
            if block.type == "tool_use"
        ),
        usage=Usage(
            input_tokens=usage.input_tokens + read + written,  # it counts them apart
            output_tokens=usage.output_tokens,
            cached_tokens=read,
            cache_write_tokens=written,
        ),
    )


async def gemini_content(url: str, *, streamed: bool) -> Heard:
    """generateContent by the SDK of Google; a stream comes in pieces of the same shape."""
    options = {"base_url": url, "client_args": NO_TLS, "async_client_args": NO_TLS}
    client = genai.Client(api_key="k", http_options=options)
    try:
        asking = client.aio.models
        if not streamed:
            pieces = [await asking.generate_content(model="m", contents="hi")]
        else:
            stream: AsyncIterator[Any] = await asking.generate_content_stream(
                model="m", contents="hi"
            )
            pieces = [piece async for piece in stream]
    finally:
        await client.aio.aclose()
        client.close()
    candidates = [piece.candidates[0] for piece in pieces if piece.candidates]
    parts = [
        part
        for candidate in candidates
        for part in (candidate.content and candidate.content.parts) or ()
    ]
    calls = tuple(gemini_call(part) for part in parts if part.function_call)
    thoughts = "".join(part.text for part in parts if part.thought and part.text)
    signed = [part for part in parts if part.thought_signature and not part.function_call]
    signature = signature_of(signed[-1]) if signed else None
    return Heard(
        ending=gemini_ending(pieces, candidates, calls),
        text="".join(part.text for part in parts if part.text and not part.thought),
        thinking=((thoughts, signature),) if thoughts or signature else (),
        calls=calls,
        usage=gemini_usage([p.usage_metadata for p in pieces if p.usage_metadata][-1]),
    )


def gemini_call(part: Any) -> ToolCall:
    given = part.function_call
    return ToolCall(
        id=given.id or "",
        name=given.name,
        arguments=given.args or {},
        signature=signature_of(part),
    )


def signature_of(part: Any) -> str | None:
    """The signature as it came; the client gives the bytes that it stands for."""
    signed = part.thought_signature
    return base64.b64encode(signed).decode() if signed else None


def gemini_ending(pieces: Any, candidates: Any, calls: Any) -> FinishReason | ModelErrorKind:
    if any(piece.prompt_feedback and piece.prompt_feedback.block_reason for piece in pieces):
        return ModelErrorKind.CONTENT_FILTER
    reason = [candidate.finish_reason for candidate in candidates if candidate.finish_reason][-1]
    endings: dict[str, FinishReason | ModelErrorKind] = {
        "STOP": FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
        "MAX_TOKENS": FinishReason.LENGTH,
        "SAFETY": ModelErrorKind.CONTENT_FILTER,
        "MALFORMED_FUNCTION_CALL": ModelErrorKind.MALFORMED_RESPONSE,
        "FUNCTION_CALL": FinishReason.TOOL_CALLS,  # what aimock says, not Google
    }
    return endings[reason.value]


def gemini_usage(usage: Any) -> Usage:
    """Google counts what was thought apart from the output."""
    thoughts = usage.thoughts_token_count or 0
    return Usage(
        input_tokens=usage.prompt_token_count or 0,
        output_tokens=(usage.candidates_token_count or 0) + thoughts,
        cached_tokens=usage.cached_content_token_count or 0,
        reasoning_tokens=thoughts,
    )


OFFICIAL = {
    "chat": openai_chat,
    "responses": openai_responses,
    "anthropic": anthropic_messages,
    "gemini": gemini_content,
}
OFFICIAL_FAULTS = (openai.OpenAIError, anthropic.AnthropicError, genai_errors.APIError)


# What is compared


@pytest.mark.filterwarnings("ignore::UserWarning:google.genai")  # of words it does not know
@pytest.mark.filterwarnings("ignore::UserWarning:pydantic")
@pytest.mark.parametrize("file", ANSWERS)
async def test_we_hear_what_the_official_client_hears(file: Path):
    wire, streamed = file.parent.name, file.suffix == ".sse"
    async with asyncio.timeout(SECONDS), ByteServer(answer(file)) as server:
        url = base_url(server, wire)
        official = await OFFICIAL[wire](url, streamed=streamed)
        mine = await ours(model_at(url, wire), streamed=streamed)

    assert mine.known == official.known
    assert len(server.requests) == 2


@pytest.mark.parametrize("file", PAIRS)
async def test_the_whole_answer_and_its_stream_are_the_same_response(file: Path):
    wire, whole = file.parent.name, file.with_suffix(".json")
    async with asyncio.timeout(SECONDS), ByteServer(answer(file), answer(whole)) as server:
        model = model_at(base_url(server, wire), wire)
        from_stream = await ours(model, streamed=True)
        at_once = await ours(model, streamed=False)

    assert without_made_up_ids(from_stream) == without_made_up_ids(at_once)


def without_made_up_ids(said: Heard) -> Heard:
    """llmock makes up new ids for each answer, so those of a pair differ."""
    calls = tuple(structs.replace(call, id="") for call in said.calls)
    return structs.replace(said, calls=calls)


@pytest.mark.parametrize("file", ERRORS)
async def test_what_is_no_answer_becomes_an_error_with_its_kind(file: Path):
    wire, streamed = file.parent.name, file.suffix == ".sse"
    expected = {
        "overloaded": ModelErrorKind.OVERLOADED,
        "in_stream": ModelErrorKind.OVERLOADED if wire == "gemini" else ModelErrorKind.SERVER,
        "no_choices": ModelErrorKind.EMPTY_RESPONSE,
        "no_candidates": ModelErrorKind.EMPTY_RESPONSE,
        "no_finish_reason": ModelErrorKind.INCOMPLETE_STREAM,
        "event": ModelErrorKind.SERVER,
        "failed": ModelErrorKind.SERVER,
        "rate_limited": ModelErrorKind.RATE_LIMIT,
    }
    async with asyncio.timeout(SECONDS), ByteServer(answer(file)) as server:
        mine = await ours(model_at(base_url(server, wire), wire), streamed=streamed)

    assert mine.ending is expected[file.stem.removeprefix("doc_error_")]


@pytest.mark.parametrize(
    ("wire", "name"),
    [
        ("chat", "doc_error_in_stream"),
        ("anthropic", "doc_error_overloaded"),
        ("gemini", "doc_error_in_stream"),
    ],
)
async def test_where_the_official_client_raises_in_a_stream_so_do_we(wire: str, name: str):
    file = RECORDINGS / wire / f"{name}.sse"
    async with asyncio.timeout(SECONDS), ByteServer(answer(file)) as server:
        url = base_url(server, wire)
        with pytest.raises(OFFICIAL_FAULTS) as official:
            await OFFICIAL[wire](url, streamed=True)
        with pytest.raises(ModelError) as mine:
            [part async for part in model_at(url, wire).stream(REQUEST)]

    assert mine.value.provider_text
    assert mine.value.provider_text in str(official.value)


def test_every_format_has_recordings_of_all_that_is_compared():
    for wire in WIRES:
        names = {file.values[0].stem for file in PAIRS if file.values[0].parent.name == wire}
        assert len(names) > 10

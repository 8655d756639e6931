"""The same content, whole or streamed in any pieces, is the same response."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct, json

from stepwell.models import ModelResponse
from stepwell.models.wire import WireFormat
from tests.examples import examples
from tests.unit.models.wire import samples
from tests.unit.models.wire.samples import (
    CHAT,
    GEMINI,
    MESSAGES,
    RESPONSES,
    arguments_of,
    read,
    started,
    text_of,
    thinking_of,
)

thorough = settings(
    max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck)
)
Cut = Callable[[str], list[str]]


class Content(Struct, frozen=True, kw_only=True):
    """What a model says: thinking, text, and calls with their arguments as JSON text."""

    thinking: str
    text: str
    calls: tuple[tuple[str, str], ...]

    @property
    def ended(self) -> bool:
        """Whether it ended by itself, not by its calls."""
        return not self.calls


contents = st.builds(
    Content,
    thinking=samples.texts,
    text=samples.texts,
    calls=st.lists(
        st.tuples(
            st.sampled_from(["add", "now"]),
            samples.arguments.map(lambda given: json.encode(given).decode()),
        ),
        max_size=3,
    ).map(tuple),
)


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """Cuts texts into pieces of some lengths."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))

    def cut(text: str) -> list[str]:
        pieces: list[str] = []
        while text:
            length = lengths[len(pieces) % len(lengths)]
            pieces.append(text[:length])
            text = text[length:]
        return pieces

    return cut


def agree(wire: WireFormat, whole: Any, events: list[Any], said: Content) -> None:
    """The response is the same both ways, and the parts told just that."""
    response: ModelResponse = wire.response(whole)
    parts, reader = read(wire, *events)
    assert reader.response() == response
    assert response.text == text_of(parts) == said.text
    assert "".join(part.text for part in response.thinking) == thinking_of(parts) == said.thinking
    assert [(call.name, call.arguments) for call in response.tool_calls] == [
        (name, json.decode(arguments)) for name, arguments in said.calls
    ]
    assert [(index, name) for index, _, name in started(parts)] == [
        (index, name) for index, (name, _) in enumerate(said.calls)
    ]
    told = arguments_of(parts)
    assert [json.decode(told[i]) if told.get(i) else {} for i in range(len(said.calls))] == [
        call.arguments for call in response.tool_calls
    ]


@thorough
@given(said=contents, cut=cuts(), has_index=st.booleans())
def test_chat_completions(said: Content, cut: Cut, has_index: bool) -> None:
    finish = "stop" if said.ended else "tool_calls"
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(said.calls)
    ]
    message = {"content": said.text, "reasoning_content": said.thinking, "tool_calls": calls}
    whole = {
        "model": "m",
        "choices": [{"message": message, "finish_reason": finish}],
        "usage": usage,
    }

    def chunk(finish: str | None = None, **delta: Any) -> Any:
        return {"model": "m", "choices": [{"delta": delta, "finish_reason": finish}]}

    events = [chunk(reasoning_content=piece) for piece in cut(said.thinking)]
    events += [chunk(content=piece) for piece in cut(said.text)]
    for index, call in enumerate(calls):
        at = {"index": index} if has_index else {}
        first, *rest = cut(call["function"]["arguments"])
        begun = {**call, **at, "function": {**call["function"], "arguments": first}}
        events.append(chunk(tool_calls=[begun]))
        events += [chunk(tool_calls=[{**at, "function": {"arguments": p}}]) for p in rest]
    events += [chunk(finish), {"model": "m", "choices": [], "usage": usage}, None]
    agree(CHAT, whole, events, said)


@thorough
@given(said=contents, cut=cuts())
def test_responses(said: Content, cut: Cut) -> None:
    summary = [{"type": "summary_text", "text": said.thinking}]
    message = {"type": "message", "content": [{"type": "output_text", "text": said.text}]}
    calls = [
        {"type": "function_call", "call_id": f"c{i}", "name": name, "arguments": arguments}
        for i, (name, arguments) in enumerate(said.calls)
    ]
    output = [{"type": "reasoning", "id": "rs_1", "summary": summary}, message, *calls]
    whole = {
        "model": "m",
        "status": "completed",
        "output": output,
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }
    events: list[Any] = [
        {"type": "response.reasoning_summary_text.delta", "delta": piece}
        for piece in cut(said.thinking)
    ]
    events += [{"type": "response.output_text.delta", "delta": piece} for piece in cut(said.text)]
    for index, call in enumerate(calls, start=2):
        begun = {**call, "arguments": ""}
        at = {"output_index": index}
        events.append({"type": "response.output_item.added", **at, "item": begun})
        events += [
            {"type": "response.function_call_arguments.delta", **at, "delta": piece}
            for piece in cut(call["arguments"])
        ]
    events.append({"type": "response.completed", "response": whole})
    agree(RESPONSES, whole, events, said)


@thorough
@given(said=contents, cut=cuts())
def test_messages(said: Content, cut: Cut) -> None:
    blocks: list[Any] = [
        {"type": "thinking", "thinking": said.thinking, "signature": "c2ln"},
        {"type": "text", "text": said.text},
    ]
    blocks += [
        {"type": "tool_use", "id": f"c{i}", "name": name, "input": json.decode(arguments)}
        for i, (name, arguments) in enumerate(said.calls)
    ]
    stop = "end_turn" if said.ended else "tool_use"
    usage = {"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 2}
    whole = {"model": "m", "content": blocks, "stop_reason": stop, "usage": usage}

    def delta(index: int, kind: str, **more: Any) -> Any:
        return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}

    def start(index: int, **more: Any) -> Any:
        block = {**blocks[index], **more}
        return {"type": "content_block_start", "index": index, "content_block": block}

    begun = {"model": "m", "content": [], "usage": {**usage, "output_tokens": 1}}
    events = [{"type": "message_start", "message": begun}, start(0, thinking="", signature="")]
    events += [delta(0, "thinking_delta", thinking=piece) for piece in cut(said.thinking)]
    events += [delta(0, "signature_delta", signature="c2ln"), start(1, text="")]
    events += [delta(1, "text_delta", text=piece) for piece in cut(said.text)]
    for index, (_, arguments) in enumerate(said.calls, start=2):
        events.append(start(index, input={}))
        events += [
            delta(index, "input_json_delta", partial_json=piece) for piece in ("", *cut(arguments))
        ]
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop},
            "usage": {"output_tokens": 3},
        }
    )
    events.append({"type": "message_stop"})
    agree(MESSAGES, whole, events, said)


@thorough
@given(said=contents, cut=cuts())
def test_gemini(said: Content, cut: Cut) -> None:
    calls = [
        {"functionCall": {"name": name, "args": json.decode(arguments)}, "thoughtSignature": "s"}
        for name, arguments in said.calls
    ]
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 3}

    def piece(*parts: Any, **more: Any) -> Any:
        candidate = {"content": {"parts": list(parts)}, **more}
        return {"candidates": [candidate], "modelVersion": "m", "usageMetadata": usage}

    whole = piece(
        {"text": said.thinking, "thought": True}, {"text": said.text}, *calls, finishReason="STOP"
    )
    events = [piece({"text": text, "thought": True}) for text in cut(said.thinking)]
    events += [piece({"text": text}) for text in cut(said.text)]
    events += [piece(call) for call in calls]
    events.append(piece(finishReason="STOP"))
    agree(GEMINI, whole, events, said)

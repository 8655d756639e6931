"""Any history that a state can hold becomes a body that its provider accepts: the rules of each
provider, and the shapes that its own SDK documents.
"""

from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import json

from stepwell.models import ModelRequest
from stepwell.models.wire import AnthropicMessages, ChatCompletions
from tests.examples import examples
from tests.unit.models.wire import samples
from tests.unit.models.wire.oracles import documented, google_types, request_types
from tests.unit.models.wire.samples import GEMINI, MODELS, RESPONSES, body_of
from tests.unit.models.wire.shapes import misfits

thorough = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck)
)
THINKING = ("thinking", "redacted_thinking")


def sent(body: dict[str, Any]) -> dict[str, Any]:
    """The body as it arrives at the provider."""
    return json.decode(json.encode(body))


@thorough
@given(
    asked=samples.requests("chat_completions"),
    wire=st.sampled_from(
        [
            ChatCompletions(has_developer_role=True),
            ChatCompletions(max_tokens_field="max_completion_tokens"),
            ChatCompletions(has_developer_role=True, replays_thinking=True),
            ChatCompletions(asks_for_usage=False, user_after_tools=False),
        ]
    ),
    streaming=st.booleans(),
)
def test_chat_completions_accept_every_history(
    asked: ModelRequest, wire: ChatCompletions, streaming: bool
) -> None:
    body = sent(body_of(wire, asked, streaming=streaming))

    awaited: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == awaited.pop(0)
        else:
            assert awaited == [], "calls without results"
            awaited = [call["id"] for call in message.get("tool_calls", ())]
        assert message.get("content") is not None or message.get("tool_calls")
        for call in message.get("tool_calls", ()):
            assert isinstance(json.decode(call["function"]["arguments"]), dict)
    assert awaited == []
    for message in body["messages"]:
        message.pop("reasoning_content", None)  # what DeepSeek adds to the format
    assert misfits(body, request_types("chat_completions")[streaming]) == []


@thorough
@given(asked=samples.requests("responses"), streaming=st.booleans())
def test_responses_accept_every_history(asked: ModelRequest, streaming: bool) -> None:
    body = sent(body_of(RESPONSES, asked, streaming=streaming))

    awaited: list[str] = []
    before = ""
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            assert item["call_id"] == awaited.pop(0)
        elif kind == "function_call":
            awaited.append(item["call_id"])
            assert isinstance(json.decode(item["arguments"]), dict)
        else:
            assert awaited == [], "calls without results"
        if before == "reasoning":
            assert kind in ("reasoning", "function_call") or item["role"] == "assistant"
        before = kind
    assert awaited == []
    assert before != "reasoning"
    body["input"] = documented(body["input"])
    assert misfits(body, request_types("responses")[streaming]) == []


@thorough
@given(
    asked=samples.requests("messages"),
    wire=st.builds(AnthropicMessages, cache_ttl=st.sampled_from([None, "5m", "1h"])),
    streaming=st.booleans(),
)
def test_anthropic_accepts_every_history(
    asked: ModelRequest, wire: AnthropicMessages, streaming: bool
) -> None:
    body = sent(body_of(wire, asked, streaming=streaming))

    roles = [turn["role"] for turn in body["messages"]]
    assert roles[0] == "user"
    assert all(one != other for one, other in pairwise(roles))
    awaited: list[str] = []
    for turn in body["messages"]:
        blocks = turn["content"]
        assert blocks, "an empty turn"
        answered = [b["tool_use_id"] for b in blocks[: len(awaited)] if b["type"] == "tool_result"]
        assert answered == awaited
        assert not any(b["type"] == "tool_result" for b in blocks[len(awaited) :])
        awaited = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert blocks[-1]["type"] not in THINKING
        for block in blocks:
            assert block["type"] != "text" or block["text"].strip()
            assert block["type"] not in THINKING or "cache_control" not in block
    assert awaited == []
    kinds = {block["type"] for turn in body["messages"] for block in turn["content"]}
    assert "tools" in body or "tool_use" not in kinds
    assert all(block["text"].strip() for block in body.get("system", ()))
    marks = _marked(body)
    assert len(marks) <= 4
    assert bool(marks) == (wire.cache_ttl is not None)
    assert misfits(body, request_types("messages")[streaming]) == []


def _marked(body: dict[str, Any]) -> list[Any]:
    blocks = [*body.get("tools", ()), *body.get("system", ())]
    blocks += [block for turn in body["messages"] for block in turn["content"]]
    return [block for block in blocks if "cache_control" in block]


@thorough
@given(
    asked=samples.requests("gemini"), model=st.sampled_from([MODELS["gemini"], "gemini-2.5-flash"])
)
def test_gemini_accepts_every_history(asked: ModelRequest, model: str) -> None:
    body = sent(GEMINI.body(asked, model, streaming=False))

    roles = [turn["role"] for turn in body["contents"]]
    assert roles[0] == "user"
    assert all(one != other for one, other in pairwise(roles))
    awaited: list[tuple[str, str]] = []
    for turn in body["contents"]:
        assert turn["parts"], "an empty turn"
        answers = [part["functionResponse"] for part in turn["parts"] if "functionResponse" in part]
        assert [(answer["id"], answer["name"]) for answer in answers] == awaited
        assert all("functionResponse" in part for part in turn["parts"][: len(awaited)])
        calls = [part for part in turn["parts"] if "functionCall" in part]
        awaited = [(c["functionCall"]["id"], c["functionCall"]["name"]) for c in calls]
        if calls and model.startswith("gemini-3"):
            assert any(part.get("thoughtSignature") for part in calls)
        for part in turn["parts"]:  # Gemini itself sends signatures with an empty text
            assert part.get("text") != "" or part.get("thoughtSignature")
    assert awaited == []
    _validated(body)


def _validated(body: dict[str, Any]) -> None:
    """Google's own models of the body; they forbid what they don't know."""
    for turn in body.pop("contents"):
        for part in turn["parts"]:
            part.pop("thoughtSignature", None)  # bytes in the SDK, any text on the wire
        google_types().Content.model_validate(turn)
    if instruction := body.pop("systemInstruction", None):
        google_types().Content.model_validate(instruction)
    for tool in body.pop("tools", ()):
        google_types().Tool.model_validate(tool)
    google_types().ToolConfig.model_validate(body.pop("toolConfig", {}))
    google_types().GenerationConfig.model_validate(body.pop("generationConfig", {}))
    assert body == {}

"""Between two steps only the tail of the request is new, so that provider prompt caches hit."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec import json

from stepwell import Agent, AgentBuilder, Message
from stepwell.messages import FinishReason, ThinkingPart, Usage
from stepwell.models import CachedContext, ModelRequest, ModelResponse, ToolSchema
from stepwell.models.wire import AnthropicMessages
from stepwell.models.wire.format import WireFormat
from stepwell.testing import MockTool, ScriptedModel, call
from tests.unit.models.wire.samples import (
    CHAT,
    FORMATS,
    GEMINI,
    MESSAGES,
    RESPONSES,
    WEATHER,
    answered,
    body_of,
    called,
    context,
    request,
)
from tests.unit.models.wire.samples import call as tool_call

MARK = {"type": "ephemeral"}


def thinks(origin: str) -> ModelResponse:
    """A turn with signed thinking, text and two calls."""
    return ModelResponse(
        text="Let me see.",
        thinking=(ThinkingPart("Hmm.", "c2ln", id="rs_1", origin=origin),),
        tool_calls=(call("weather", id="c1", city="Rome"), call("fails", id="c2")),
        finish_reason=FinishReason.TOOL_CALLS,
        usage=Usage(input_tokens=1, output_tokens=1),
    )


async def requests_of_a_run(origin: str) -> list[ModelRequest]:
    """What an agent asks in five steps: with thinking, failing tools, calls alone, and text."""
    model = ScriptedModel(
        [
            thinks(origin),
            call("weather", city="Oslo"),
            [call("weather", city="Bonn"), call("weather", city="Bern")],
            thinks("elsewhere"),
            "Sunny everywhere.",
            "You are welcome.",
        ]
    )
    agent = (
        AgentBuilder.base()
        .with_model(model)
        .with_cached_context(CachedContext(messages=(Message.system("Be brief."),)))
        .with_system_prompt("Be kind.")
        .with_tools(
            MockTool.returning("weather", "sunny"), MockTool.raising("fails", ValueError("boom"))
        )
        .with_max_retries(9)
        .build()
    )
    state = await agent.run("How is the weather?")
    await agent.run(state.with_user_message("Thanks."))
    assert len(model.requests) == 6
    return model.requests


def stable_and_growing(wire: WireFormat, asked: ModelRequest) -> tuple[bytes, list[bytes]]:
    """What must be the same in every step, and what may only grow, piece by piece."""
    body = without_marks(body_of(wire, asked))
    growing = body.pop({"responses": "input", "gemini": "contents"}.get(wire.name, "messages"))
    turns_merge = wire in (MESSAGES, GEMINI)
    pieces = [
        json.encode([turn.get("role"), piece])
        for turn in growing
        for piece in (turn.get("parts") or turn["content"] if turns_merge else [turn])
    ]
    return json.encode(body), pieces


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_marks(v) for k, v in value.items() if k != "cache_control"}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
async def test_each_request_of_a_run_begins_with_the_one_before(wire: WireFormat) -> None:
    asked = await requests_of_a_run(wire.name)
    sent = [stable_and_growing(wire, request) for request in asked]

    for (stable, before), (same, after) in pairwise(sent):
        assert same == stable
        assert after[: len(before)] == before
        assert len(after) > len(before)


@pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
async def test_the_stable_part_is_written_before_what_grows(wire: WireFormat) -> None:
    """Bytes in a stable order: tools and instructions as they were given, never sorted anew."""
    asked = (await requests_of_a_run(wire.name))[0]
    tools = tuple(ToolSchema(name=n, description="", parameters={}) for n in ("z", "a", "m"))
    text = json.encode(body_of(wire, request(tools=tools))).decode()

    assert text.index('"z"') < text.index('"a"') < text.index('"m"')
    whole = json.encode(body_of(wire, asked)).decode()
    assert whole.index("Be brief.") < whole.index("Be kind.")
    if wire in (CHAT, RESPONSES):
        assert whole.index("Be kind.") < whole.index("How is the weather?")


def marks(body: dict[str, Any]) -> list[str]:
    """Where the cache marks are."""
    places = [f"tool {i}" for i, tool in enumerate(body.get("tools", ())) if marked(tool)]
    places += [f"system {i}" for i, part in enumerate(body.get("system", ())) if marked(part)]
    return places + [
        f"{turn_number}.{number}"
        for turn_number, turn in enumerate(body["messages"])
        for number, block in enumerate(turn["content"])
        if marked(block)
    ]


def marked(block: dict[str, Any]) -> bool:
    return "cache_control" in block


async def test_marks_are_behind_the_instructions_the_last_request_and_the_newest() -> None:
    asked = await requests_of_a_run("messages")
    bodies = [body_of(MESSAGES, request) for request in asked]

    assert marks(bodies[0]) == ["system 1", "0.0"]
    assert marks(bodies[1]) == ["system 1", "0.0", "2.1"]
    assert marks(bodies[2]) == ["system 1", "2.1", "4.0"]
    assert marks(bodies[3]) == ["system 1", "4.0", "6.1"]
    for before, after in pairwise(bodies):
        assert marks(before)[-1] in marks(after), "what was written is read again"


def test_without_instructions_the_last_tool_is_marked() -> None:
    other = ToolSchema(name="b", description="", parameters={})
    body = body_of(MESSAGES, request(tools=(WEATHER, other)))

    assert marks(body) == ["tool 1", "0.0"]
    assert body["tools"][1]["cache_control"] == MARK


def test_without_tools_and_instructions_only_the_conversation_is_marked() -> None:
    assert marks(body_of(MESSAGES, request())) == ["0.0"]


def test_stable_examples_are_marked_too_and_marks_are_never_more_than_four() -> None:
    examples = context(
        Message.system("Be kind."), Message.user("2+2?"), Message.assistant("4"), Message.user("!")
    )
    talk = (Message.user("Hi"), called(tool_call("c1")), answered("c1"))
    body = body_of(MESSAGES, request(*talk, context=examples, tools=(WEATHER,)))

    assert marks(body) == ["system 0", "2.0", "2.1", "4.0"]


def test_the_instruction_of_this_turn_alone_is_behind_the_marks() -> None:
    body = body_of(MESSAGES, request(instruction=Message.system("Answer now.")))

    assert marks(body) == ["0.0"]
    assert body["messages"][0]["content"][-1] == {"type": "text", "text": "Answer now."}


def test_thinking_is_never_marked() -> None:
    thought = ThinkingPart("Hmm.", "c2ln", origin="messages")
    body = body_of(
        MESSAGES,
        request(Message.user("Hi"), called(thinking=[thought]), Message.user("Go on.")),
    )

    assert marks(body) == ["0.0", "0.1"]


@pytest.mark.parametrize(
    ("ttl", "mark"), [("5m", MARK), ("1h", {"type": "ephemeral", "ttl": "1h"})]
)
def test_how_long_the_cache_keeps_what_is_marked(ttl: str, mark: dict[str, str]) -> None:
    body = body_of(AnthropicMessages(cache_ttl=ttl), request(tools=(WEATHER,)))

    assert body["tools"][0]["cache_control"] == mark
    assert body["messages"][0]["content"][0]["cache_control"] == mark


def test_marks_can_be_left_out() -> None:
    body = body_of(AnthropicMessages(cache_ttl=None), request(tools=(WEATHER,)))

    assert marks(body) == []


async def test_a_last_step_without_tools_keeps_the_conversation() -> None:
    """Wrapping up takes the tools away and adds an instruction behind everything else."""
    model = ScriptedModel([call("weather", city="Rome"), "Enough."])
    agent = Agent(
        model, tools=[MockTool.returning("weather", "sunny")], max_steps=1, at_limit="wrap_up"
    )
    await agent.run("Go")
    first, last = (stable_and_growing(CHAT, request)[1] for request in model.requests)

    assert last[: len(first)] == first
    assert b"no tool can be called" in last[-1]

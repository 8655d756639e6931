"""Recorded answers of four providers, read through the bridge by pydantic-ai's adapters."""

import warnings
from pathlib import Path

import pytest
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    TextDelta,
    tool,
)
from stepwell.models.pydantic_ai import PydanticAiModel
from tests.integration.models.pydantic_ai_doubles import (
    ADD,
    asking,
    parts_of,
)
from tests.servers.byte_server import Answer

RECORDINGS = Path(__file__).parents[2] / "recordings"


def openai_responses(url: str):
    return OpenAIResponsesModel(
        "gpt-5", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="sk-1")
    )


def anthropic(url: str):
    return AnthropicModel(
        "claude-sonnet-9", provider=AnthropicProvider(base_url=url, api_key="sk-1")
    )


def gemini(url: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK's own source warns when it is compiled
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider
    return GoogleModel("gemini-2.5-flash", provider=GoogleProvider(base_url=url, api_key="sk-1"))


def chat_completions(url: str):
    return OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="sk-1"))


def recorded(folder: str, name: str, *, streamed: bool) -> Answer:
    path = RECORDINGS / folder / name
    if streamed:
        return Answer.sse(path.with_suffix(".sse").read_bytes())
    return Answer.json(path.with_suffix(".json").read_bytes())


@pytest.mark.parametrize(
    ("folder", "make"),
    [
        ("chat", chat_completions),
        ("responses", openai_responses),
        ("anthropic", anthropic),
        ("gemini", gemini),
    ],
)
@pytest.mark.parametrize("recording", ["llmock_text", "llmock_parallel_tool_calls"])
async def test_plain_and_streamed_say_the_same(byte_server, folder, make, recording):
    byte_server.script(
        recorded(folder, recording, streamed=False), recorded(folder, recording, streamed=True)
    )
    model = PydanticAiModel(make(byte_server.url))
    request = asking(tools=(ADD,))
    plain = await model.respond(request)
    *parts, end = await parts_of(model, request)

    streamed = end.response
    assert plain.text == streamed.text
    assert "".join(p.text for p in parts if isinstance(p, TextDelta)) == streamed.text
    assert [(c.name, c.arguments) for c in plain.tool_calls] == [
        (c.name, c.arguments) for c in streamed.tool_calls
    ]
    assert plain.finish_reason is streamed.finish_reason
    assert bool(plain.text) is (recording == "llmock_text")
    assert len(plain.tool_calls) == (0 if recording == "llmock_text" else 2)


async def run_through(model: PydanticAiModel, *, streamed: bool) -> AgentState:
    agent = Agent(model, tools=[get_weather])
    if not streamed:
        return await agent.run("Weather?")
    return [part async for part in agent.stream("Weather?")][-1].state


@tool(effect="pure")
def get_weather(city: str, unit: str = "celsius") -> str:
    """The weather in a city."""
    return f"Rain in {city}."


@pytest.mark.parametrize("streamed", [False, True])
async def test_anthropics_thinking_goes_back_signed_and_usage_includes_the_cache(
    byte_server, streamed
):
    byte_server.script(
        recorded("anthropic", "doc_thinking_and_tool_use", streamed=streamed),
        recorded("anthropic", "llmock_text", streamed=streamed),
    )
    state = await run_through(PydanticAiModel(anthropic(byte_server.url)), streamed=streamed)

    assert state.status is AgentStatus.COMPLETED, state.explain()
    used = state.steps[0].step.usage
    assert (used.input_tokens, used.cached_tokens, used.cache_write_tokens) == (2257, 2048, 188)
    _, said, results = byte_server.requests[1].json["messages"]
    kinds = [block["type"] for block in said["content"]]
    assert kinds == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    assert said["content"][0]["signature"].startswith("EqQBCgIYAhIM")
    assert said["content"][1]["data"].startswith("EmwKAhgBEgy3")
    assert [block["type"] for block in results["content"]] == ["tool_result", "tool_result"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_geminis_signatures_go_back_with_their_calls(byte_server, streamed):
    byte_server.script(
        recorded("gemini", "doc_thoughts_and_function_calls", streamed=streamed),
        recorded("gemini", "llmock_text", streamed=streamed),
    )
    state = await run_through(PydanticAiModel(gemini(byte_server.url)), streamed=streamed)

    assert state.status is AgentStatus.COMPLETED, state.explain()
    given = [call.signature for call in state.steps[0].step.tool_calls]
    sent = [  # the SDK writes the same bytes in the other alphabet of base64
        (part.get("thoughtSignature") or "").replace("-", "+").replace("_", "/") or None
        for content in byte_server.requests[1].json["contents"]
        for part in content["parts"]
        if "functionCall" in part
    ]
    assert given == sent
    assert any(given)

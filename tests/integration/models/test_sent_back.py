"""What a provider said in one step is sent back in the next as that provider wants it."""

from pathlib import Path

import pytest

from stepwell import AgentStatus
from tests.servers.byte_server import Answer, ByteServer
from tests.servers.weather_agent import WeatherAgent, model_at

RECORDINGS = Path(__file__).parents[2] / "recordings"
ANSWERS = {
    "chat": ("doc_parallel_tool_calls", "llmock_text"),
    "responses": ("doc_reasoning_and_tool_calls", "llmock_text"),
    "anthropic": ("doc_thinking_and_tool_use", "llmock_text"),
    "gemini": ("doc_thoughts_and_function_calls", "llmock_text"),
}
STREAMED = pytest.mark.parametrize("streamed", [False, True])


def recorded(wire: str, name: str, *, streamed: bool) -> Answer:
    file = RECORDINGS / wire / f"{name}.{'sse' if streamed else 'json'}"
    return Answer.sse(file.read_bytes()) if streamed else Answer.json(file.read_bytes())


async def two_steps(server: ByteServer, wire: str, *, streamed: bool) -> tuple[dict, dict]:
    """The bodies of both requests of a run whose first answer calls tools."""
    server.script(*(recorded(wire, name, streamed=streamed) for name in ANSWERS[wire]))
    weather = WeatherAgent(model_at(server.url, wire), system_prompt="You know the weather.")
    run = await weather.run("How is it in Zürich and Lima?", streamed=streamed)
    assert run.state.status is AgentStatus.COMPLETED
    assert weather.cities == ["Zürich", "Lima"]
    first, second = (request.json for request in server.requests)
    return first, second


@STREAMED
async def test_chat_gets_its_calls_back_with_one_result_each(byte_server, streamed):
    first, second = await two_steps(byte_server, "chat", streamed=streamed)

    told = second["messages"]
    assert told[: len(first["messages"])] == first["messages"]
    assert [message["role"] for message in told] == ["system", "user", "assistant", "tool", "tool"]
    ids = [call["id"] for call in told[2]["tool_calls"]]
    assert ids == ["call_DdmO9pD3xa9XTPNJ32zg2hcA", "call_ABCwJ0nVuRVzqMN9PAtr7xY5"]
    assert [message["tool_call_id"] for message in told[3:]] == ids
    assert told[2]["tool_calls"][0]["function"]["arguments"] == (
        '{"city":"Zürich","unit":"celsius"}'
    )


@STREAMED
async def test_responses_get_their_encrypted_reasoning_back(byte_server, streamed):
    first, second = await two_steps(byte_server, "responses", streamed=streamed)

    told = second["input"]
    assert told[: len(first["input"])] == first["input"]
    reasoning, *calls = told[len(first["input"]) :]
    assert reasoning["type"] == "reasoning"
    assert reasoning["encrypted_content"].startswith("gAAAAABoiPbTwLJx")
    assert [item["type"] for item in calls] == [
        *("function_call", "function_call"),
        *("function_call_output", "function_call_output"),
    ]
    assert [item["call_id"] for item in calls] == ["call_12345xyz", "call_67890abc"] * 2


@STREAMED
async def test_anthropic_gets_its_signed_and_its_redacted_thinking_back(byte_server, streamed):
    _, second = await two_steps(byte_server, "anthropic", streamed=streamed)

    asked, answered, results = second["messages"]
    assert (asked["role"], answered["role"], results["role"]) == ("user", "assistant", "user")
    thinking, redacted, text, *calls = answered["content"]
    assert (thinking["type"], redacted["type"]) == ("thinking", "redacted_thinking")
    assert thinking["thinking"].endswith("Zürich first.")
    assert thinking["signature"].startswith("EqQBCgIYAhIM1gbc")
    assert redacted["data"].startswith("EmwKAhgBEgy3va3p")
    assert text == {"type": "text", "text": "Let me look both up: Zürich 🌦 and Lima."}
    assert [call["type"] for call in calls] == ["tool_use", "tool_use"]
    assert calls[0]["input"] == {"city": "Zürich", "unit": "celsius"}
    assert [block["type"] for block in results["content"]] == ["tool_result", "tool_result"]
    assert [block["tool_use_id"] for block in results["content"]] == [call["id"] for call in calls]


@STREAMED
async def test_anthropic_caches_everything_but_the_tail(byte_server, streamed):
    first, second = await two_steps(byte_server, "anthropic", streamed=streamed)

    assert second["system"] == first["system"]
    assert second["tools"] == first["tools"]
    assert "cache_control" in second["system"][-1]
    # What the first request ended with is marked in both, so that the second one hits it.
    assert "cache_control" in first["messages"][-1]["content"][-1]
    assert second["messages"][0] == first["messages"][0]
    assert "cache_control" in second["messages"][-1]["content"][-1]
    marks = str(second).count("cache_control")
    assert 0 < marks <= 4


@STREAMED
async def test_gemini_gets_the_signature_back_on_the_call_that_had_it(byte_server, streamed):
    _, second = await two_steps(byte_server, "gemini", streamed=streamed)

    asked, answered, results = second["contents"]
    assert (asked["role"], answered["role"], results["role"]) == ("user", "model", "user")
    calls = [part for part in answered["parts"] if "functionCall" in part]
    assert [part["functionCall"]["name"] for part in calls] == [
        *("get_weather", "get_weather", "get_time")
    ]
    assert calls[0]["thoughtSignature"].startswith("CpcBAdHtim9")
    assert ["thoughtSignature" in part for part in calls] == [True, False, False]
    replies = [part["functionResponse"] for part in results["parts"]]
    assert [reply["name"] for reply in replies] == ["get_weather", "get_weather", "get_time"]
    assert replies[1]["id"] == "fc-2"

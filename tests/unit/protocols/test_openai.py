"""Runs in the words of OpenAI's API: one text, one end."""

from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.journal import Projector
from stepwell.messages import Usage
from stepwell.protocols.client_stream import ClientInputError
from stepwell.protocols.openai import (
    ChatCompletionTranslator,
    ResponseTranslator,
    RunFailedError,
    read_chat_input,
    read_responses_input,
)
from stepwell.protocols.openai.run_end import CompletionIds, chat_usage
from stepwell.state import AgentState
from stepwell.testing import ScriptedModel, call
from stepwell.tools import tool

Json = dict[str, Any]
IDS = CompletionIds(execution_id="e1", session_id="s1", model="helper", created=1)


@tool
def look(what: str) -> str:
    """Look something up.

    Args:
        what: What.
    """
    return f"found {what}"


def ran(agent: Agent, translator: Any) -> list[Json]:
    """All events of a run."""
    projector, events = Projector(), list[Json]()
    projector.expect_beginnings()

    def hear(event: Any) -> None:
        for entry in projector.entries(event):
            events.extend(translator.translate(entry))

    events.extend(translator.start(AgentState.empty()))
    agent.wiretap(hear)
    state = agent.run_sync("Hi")
    return [*events, *translator.finish(state)]


def test_the_streamed_text_is_that_of_the_whole_completion() -> None:
    translator = ChatCompletionTranslator(IDS, include_usage=True)
    chunks = ran(Agent(ScriptedModel(["Hello there."])), translator)
    streamed = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
    whole = translator.result()
    assert streamed == whole["choices"][0]["message"]["content"] == "Hello there."
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


def test_a_run_that_a_limit_stops_is_cut_off() -> None:
    agent = Agent(ScriptedModel([call("look", id="c1", what="it")]), tools=[look], max_steps=1)
    translator = ResponseTranslator(IDS)
    events = ran(agent, translator)
    assert events[-1]["type"] == "response.incomplete"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_run_that_breaks_off_is_an_error() -> None:
    chat, response = ChatCompletionTranslator(IDS), ResponseTranslator(IDS)
    assert chat.fail("gone", "reset")[0]["error"]["code"] == "reset"
    with pytest.raises(RunFailedError, match="gone"):
        chat.result()
    assert response.fail("gone", "reset")[-1]["type"] == "response.failed"
    assert response.result()["error"]["message"] == "gone"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": []}, "model"),
        ({"model": "m", "messages": []}, "must end with a message of the user"),
        ({"model": "m", "messages": [{"role": "tool", "content": "x"}]}, "must end"),
        ({"model": "m", "messages": [{"role": "odd", "content": "x"}]}, "role is 'odd'"),
        ({"model": "m", "messages": "x"}, "Expected `array`"),
        ({"model": "m", "messages": [{"role": "user", "content": [{"type": "x"}]}]}, "take text"),
    ],
)
def test_bad_input_is_named(body: Json, words: str) -> None:
    with pytest.raises(ClientInputError, match=words):
        read_chat_input(body)


def test_only_what_was_said_is_history() -> None:
    said = [
        {"role": "developer", "content": "Obey."},
        {"role": "user", "content": [{"type": "input_text", "text": "one"}]},
        {"type": "function_call", "name": "pay", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "paid"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
        {"role": "user", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    given = read_responses_input({"model": "m", "input": said, "text": {"format": TEXT}})
    assert [message.text for message in given.history] == ["one", "done"]
    assert given.text == "two\n\nthree"


TEXT = {"type": "text"}


def test_usage_has_all_counts() -> None:
    used = Usage(input_tokens=3, output_tokens=4, cached_tokens=1, reasoning_tokens=2)
    assert chat_usage(used)["total_tokens"] == 7

"""What both kinds of client streams share: who reads, who leaves, what is told of faults, bytes."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, AgentState, ConfigurationError
from stepwell.errors import SerializationError
from stepwell.models import ModelRequest, ModelResponse, StreamPart, TextDelta
from stepwell.protocols.ag_ui import (
    AG_UI_HEADERS,
    AgUiTranslator,
    ag_ui_events,
    ag_ui_stream,
    encode_sse,
    state_from_ag_ui,
)
from stepwell.protocols.ai_sdk import AI_SDK_HEADERS, ai_sdk_chunks, ai_sdk_stream
from stepwell.protocols.ai_sdk import state_from_ai_sdk as from_ai_sdk
from stepwell.protocols.client_stream import ClientInputError, client_stream
from stepwell.testing import ScriptedModel

Told = AsyncGenerator[dict[str, Any], None]


def streams(agent: Agent, task: Any = "Go.", **more: Any) -> list[Told]:
    return [
        ag_ui_events(agent, task, thread_id="t", run_id="r", **more),
        ai_sdk_chunks(agent, task, **more),
    ]


def error_in(told: list[dict[str, Any]]) -> str:
    [error] = [one for one in told if one["type"] in ("RUN_ERROR", "error")]
    return error["message"] if "message" in error else error["errorText"]


class Talkative:
    """Streams until it is cancelled."""

    name = "talkative"

    def __init__(self) -> None:
        self.said, self.ended = 0, asyncio.Event()

    async def respond(self, request: ModelRequest) -> ModelResponse:
        raise NotImplementedError

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        try:
            while True:
                self.said += 1
                yield TextDelta("more ")
                await asyncio.sleep(0)
        finally:
            self.ended.set()


async def test_a_reader_who_does_not_read_ends_the_run() -> None:
    model, translator = Talkative(), AgUiTranslator("t", "r")
    stream = client_stream(
        Agent(model), "Go.", translator, cancellation=None, on_state=None, max_unread=50
    )
    await anext(stream)
    async with asyncio.timeout(90):
        await model.ended.wait()
    rest = [event async for event in stream]

    assert 40 < model.said < 60
    assert rest[-1] == {
        "type": "RUN_ERROR",
        "message": "the client reads too slowly",
        "code": "slow_reader",
    }


async def test_a_reader_who_had_no_turn_meanwhile_is_not_slow() -> None:
    text = " ".join(["word"] * 200)
    stream = client_stream(
        Agent(ScriptedModel([text])),
        "Go.",
        AgUiTranslator("t", "r"),
        cancellation=None,
        on_state=None,
        max_unread=50,
    )

    assert [event async for event in stream][-1]["type"] == "RUN_FINISHED"


@pytest.mark.parametrize("fault", [OSError("disk at secret place"), SerializationError("secret")])
async def test_what_on_state_raises_is_logged_and_not_sent(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def keep(_: AgentState) -> None:
        raise fault

    for stream in streams(Agent(ScriptedModel(["Hi.", "Hi."])), on_state=keep):
        told = [one async for one in stream]
        assert error_in(told) == f"the run broke off ({type(fault).__name__})"
        assert "secret" not in json.dumps(told)
    assert caplog.text.count("secret") >= 2


@pytest.mark.parametrize("task", [None, 5, {"messages": []}])
def test_a_task_that_is_none_is_a_mistake_of_the_server(task: Any) -> None:
    agent = Agent(ScriptedModel([]))
    for run in (
        lambda: ag_ui_stream(agent, task, thread_id="t", run_id="r"),
        lambda: ai_sdk_stream(agent, task),
    ):
        with pytest.raises(ConfigurationError, match="task is"):
            run()


def test_a_previous_state_that_is_none_is_a_mistake_of_the_server() -> None:
    wrong: Any = {"messages": []}
    with pytest.raises(ConfigurationError, match="previous is"):
        state_from_ag_ui({"threadId": "t", "runId": "r", "messages": []}, previous=wrong)
    with pytest.raises(ConfigurationError, match="previous is"):
        from_ai_sdk({"id": "c", "messages": []}, previous=wrong)


async def test_both_streams_are_server_sent_events() -> None:
    agent = Agent(ScriptedModel(["Hi.", "Hi."]))
    ag_ui = [p async for p in ag_ui_stream(agent, "Go.", thread_id="t", run_id="r")]
    ai_sdk = [p async for p in ai_sdk_stream(agent, "Go.")]

    for pieces in (ag_ui, ai_sdk):
        assert all(p.startswith(b"data: ") and p.endswith(b"\n\n") for p in pieces)
    assert json.loads(ag_ui[-1][6:])["type"] == "RUN_FINISHED"
    assert set(AG_UI_HEADERS.items()) < set(AI_SDK_HEADERS.items())


def test_an_event_with_half_characters_is_json_for_browsers() -> None:
    event = {"half": "\ud83d", "not": float("nan"), "big": 2**70, "path": Path("a")}

    read = json.loads(encode_sse(event)[6:], parse_constant=pytest.fail)
    assert read == {"half": "\ufffd", "not": None, "big": 2**70, "path": "a"}


# What no state can hold


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


def ag_ui(message: Any, **more: Any) -> dict[str, Any]:
    return {"threadId": "t", "runId": "r", "messages": [message], **more}


def ai_sdk(part: Any, **more: Any) -> dict[str, Any]:
    part = {"type": "tool-x", "toolCallId": "c", "state": "output-available", **part}
    return {"id": "c", "messages": [{"id": "a", "role": "assistant", "parts": [part], **more}]}


def calling(arguments: str) -> dict[str, Any]:
    made = {"id": "c", "function": {"name": "f", "arguments": arguments}}
    return {"id": "a", "role": "assistant", "toolCalls": [made]}


HALF = "half \ud83d"
ASKS = {"id": "u", "role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (ag_ui({**ASKS, "content": HALF}), "messages[0].content"),
        (ag_ui({**ASKS, "role": HALF}), "messages[0].role"),
        (ag_ui({**ASKS, HALF: 1}), "a key of messages[0]"),
        (ag_ui(calling('{"a": "' + HALF + '"}')), "messages[0].toolCalls[0].function.arguments"),
        (ag_ui(calling('{"a": ' + "[" * 150 + "]" * 150 + "}")), "function.arguments"),
        (ag_ui(ASKS, resume=[{"interruptId": "q", "payload": nested(950)}]), "resume[0].payload"),
        (ag_ui(ASKS, resume=[{"interruptId": "q", "payload": 10**400}]), "resume[0].payload"),
        (ag_ui({**ASKS, "content": b"bytes"}), "messages[0].content is a bytes"),
        ({**ag_ui(ASKS), 1: 2}, "a key that is not text"),
        ('{"threadId": "' + HALF + '"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_ag_ui_input_that_no_state_can_hold_names_the_field(given: Any, named: str) -> None:
    with pytest.raises(ClientInputError) as raised:
        state_from_ag_ui(given)
    assert named in str(raised.value).encode().decode()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (ai_sdk({"output": HALF}), "messages[0].parts[0].output"),
        (ai_sdk({"output": {HALF: 1}}), "a key of messages[0].parts[0].output"),
        (ai_sdk({"output": 1}, id=HALF), "messages[0].id"),
        (ai_sdk({"output": 1, "toolCallId": HALF}), "messages[0].parts[0].toolCallId"),
        (ai_sdk({"output": nested(950)}), "messages[0].parts[0].output"),
        (ai_sdk({"output": 10**400}), "messages[0].parts[0].output"),
        ({"id": "c", "messages": nested(950)}, "messages"),
        ('{"id": "' + HALF + '"}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_ai_sdk_input_that_no_state_can_hold_names_the_field(given: Any, named: str) -> None:
    with pytest.raises(ClientInputError) as raised:
        from_ai_sdk(given)
    assert named in str(raised.value).encode().decode()

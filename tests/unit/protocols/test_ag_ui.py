"""A run as AG-UI events. Every stream is checked against the protocol's own types and order."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    ErrorPolicy,
    HookContext,
    Message,
    ToolContext,
    make_hook,
    tool,
)
from stepwell.events import AgentEvent
from stepwell.journal import Projector
from stepwell.messages import FilePart, FinishReason, ImagePart, TextPart, ToolCall
from stepwell.models import ModelRequest, ModelResponse, ResponseEnd, StreamPart, TextDelta
from stepwell.protocols.ag_ui import AgUiTranslator, ag_ui_events, encode_sse
from stepwell.protocols.ag_ui.messages import wire_messages
from stepwell.testing import FakeClock, MockTool, ScriptedModel, SequentialIds, call
from tests.unit.protocols.ag_ui_rules import checked


async def told(agent: Agent, task: Any = "Go.", **more: Any) -> list[dict[str, Any]]:
    return [e async for e in ag_ui_events(agent, task, thread_id="t", run_id="r", **more)]


async def told_and_kept(agent: Agent, task: Any = "Go.") -> tuple[list[dict[str, Any]], AgentState]:
    states: list[AgentState] = []
    events = await told(agent, task, on_state=states.append)
    return events, states[-1]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def of_type(events: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] in kinds]


async def test_one_tool_call_then_the_answer() -> None:
    agent = Agent(
        ScriptedModel([call("add", id="c1", a=1, b=2), "It is 3."]),
        tools=[MockTool("add", lambda a, b: a + b)],
        clock=FakeClock(),
        new_id=SequentialIds(),
    )
    events, state = await told_and_kept(agent)

    assert types(events) == [
        "RUN_STARTED",
        "MESSAGES_SNAPSHOT",
        "STEP_STARTED",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "STEP_FINISHED",
        "STEP_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "STEP_FINISHED",
        "MESSAGES_SNAPSHOT",
        "CUSTOM",
        "RUN_FINISHED",
    ]
    assert checked(events) == wire_messages(state.messages)
    assert events[5]["toolCallId"] == events[6]["toolCallId"] == "c1"
    assert (events[6]["content"], events[6]["messageId"]) == ("3", state.messages[2].id)
    pieces = of_type(events, "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END")
    assert {e["messageId"] for e in pieces} == {state.messages[3].id}
    assert events[2]["timestamp"] == int(FakeClock().now().timestamp() * 1000)
    assert events[-2]["value"]["stopReason"] == "completed"
    assert events[-1]["usage"][0]["totalTokens"] == state.usage.total_tokens
    assert events[-1]["result"] == "It is 3."


async def test_blocked_calls_and_calls_that_never_ran_have_results() -> None:
    def block(context: HookContext) -> HookContext | None:
        return context.block("not allowed") if context.call.name == "forbidden" else None

    def stops() -> None:
        raise SystemExit

    calls = [call("forbidden", id="f"), call("empty", id="e"), call("stops", id="s")]
    agent = Agent(
        ScriptedModel([calls, "Done."]),
        tools=[
            MockTool.returning("forbidden", 1),
            MockTool.returning("empty", None),
            MockTool("stops", stops, parallel=False),
        ],
        hooks=[make_hook("before_tool", block)],
        error_policy=ErrorPolicy.ignore_tool_errors(),
    )
    events, state = await told_and_kept(agent)
    results = {e["toolCallId"]: e["content"] for e in of_type(events, "TOOL_CALL_RESULT")}

    assert checked(events) == wire_messages(state.messages)
    assert results["f"] == "Error: Blocked: not allowed"
    assert results["e"] == "null"
    assert results["s"].startswith("Error: tool 'stops' failed")


async def test_progress_is_told_as_an_event_of_its_own() -> None:
    @tool
    def works(context: ToolContext) -> str:
        """Work."""
        context.progress("half done", 0.5)
        return "done"

    events = await told(Agent(ScriptedModel([call("works", id="w"), "Done."]), tools=[works]))
    [progress] = [e for e in of_type(events, "CUSTOM") if e["name"] == "stepwell.progress"]

    assert progress["value"] == {"toolCallId": "w", "message": "half done", "fraction": 0.5}
    checked(events)


async def test_messages_that_hooks_add_come_where_they_stand() -> None:
    def add(context: HookContext) -> HookContext:
        note = Message.system("Mind the step.", id=f"note-{context.state.step_number}")
        return context.with_state(context.state.with_message(note))

    agent = Agent(
        ScriptedModel([call("good", id="g"), "Done."]),
        tools=[MockTool.returning("good", 1)],
        hooks=[make_hook("before_step", add)],
    )
    events, state = await told_and_kept(agent)

    assert [m.role for m in state.messages] == [
        "user",
        "system",
        "assistant",
        "tool",
        "system",
        "assistant",
    ]
    assert checked(events) == wire_messages(state.messages)


async def test_a_history_that_a_hook_cuts_short_is_sent_anew() -> None:
    def cut(context: HookContext) -> HookContext | None:
        if context.state.step_number != 2:
            return None
        summary = Message.user("In short: go.", id="summary")
        kept = [summary, *context.state.messages[-2:]]
        return context.with_state(context.state.with_messages(kept))

    agent = Agent(
        ScriptedModel([call("good", id="g"), "Done."]),
        tools=[MockTool.returning("good", 1)],
        hooks=[make_hook("before_step", cut)],
    )
    events, state = await told_and_kept(agent)

    assert [m.text for m in state.messages] == ["In short: go.", "", "1", "Done."]
    assert {"type": "MESSAGES_SNAPSHOT", "messages": []} in events
    assert checked(events) == wire_messages(state.messages)


# Endings


async def test_a_text_that_is_empty_is_an_error_and_no_broken_stream() -> None:
    events = await told(Agent(ScriptedModel(["never"])), "")

    assert types(events) == ["RUN_STARTED", "RUN_ERROR"]
    assert "the text is empty" in events[-1]["message"]


async def test_what_a_defect_says_is_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    def keep(_: AgentState) -> None:
        raise OSError("the password is hunter2")

    with caplog.at_level(logging.ERROR, "stepwell.protocols"):
        events = await told(Agent(ScriptedModel(["Hello."])), on_state=keep)

    checked(events)
    assert events[-1] == {
        "type": "RUN_ERROR",
        "message": "the run broke off (OSError)",
        "code": "OSError",
    }
    assert "hunter2" in caplog.text


async def test_a_limit_that_raises_ends_like_any_limit() -> None:
    agent = Agent(
        ScriptedModel(lambda _: call("good")),
        tools=[MockTool.returning("good", 1)],
        max_steps=1,
        at_limit="raise",
    )
    events = await told(agent)

    checked(events)
    assert events[-1]["outcome"] == {"type": "success"}
    assert events[-2]["value"]["stopReason"] == "steps_limit"


async def test_states_are_kept_before_the_end_is_told() -> None:
    order: list[str] = []

    async def keep(state: AgentState) -> None:
        await asyncio.sleep(0)
        order.append(state.status)

    agent = Agent(ScriptedModel([call("good"), "Done."]), tools=[MockTool.returning("good", 1)])
    events = ag_ui_events(agent, "Go.", thread_id="t", run_id="r", on_state=keep)
    order += [event["type"] async for event in events if event["type"] == "RUN_FINISHED"]

    assert order == ["in_progress", "completed", "RUN_FINISHED"]


class Endless:
    """Streams until it is cancelled."""

    name = "endless"
    was_cancelled = False

    async def respond(self, request: ModelRequest) -> ModelResponse:
        raise NotImplementedError

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        try:
            while True:
                yield TextDelta("more ")
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


async def test_leaving_the_stream_ends_the_run() -> None:
    model = Endless()
    events = ag_ui_events(Agent(model), "Go.", thread_id="t", run_id="r")
    async for event in events:
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            break
    await events.aclose()

    assert model.was_cancelled


async def test_text_and_calls_of_one_response_are_one_message() -> None:
    class Both:
        name = "both"
        turns = 0

        async def respond(self, request: ModelRequest) -> ModelResponse:
            self.turns += 1
            calls = (ToolCall(id="c", name="good", arguments={}),) if self.turns == 1 else ()
            return ModelResponse(
                text=f"Turn {self.turns}.", tool_calls=calls, finish_reason=FinishReason.STOP
            )

        async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
            response = await self.respond(request)
            yield TextDelta("")
            yield TextDelta(response.text)
            yield ResponseEnd(response)

    agent = Agent(Both(), tools=[MockTool.returning("good", 1)])
    events, state = await told_and_kept(agent)
    [started] = of_type(events, "TOOL_CALL_START")

    assert checked(events) == wire_messages(state.messages)
    assert started["parentMessageId"] == state.messages[1].id
    assert state.messages[1].text == "Turn 1."


async def test_the_translator_alone_needs_only_entries_and_the_result() -> None:
    heard: list[AgentEvent] = []
    agent = Agent(ScriptedModel(["Hello."]))
    agent.wiretap(heard.append)
    state = await agent.run("Go.")
    translator, projector = AgUiTranslator("t", "r"), Projector()
    entries = [entry for event in heard for entry in projector.entries(event)]

    events = [wire for entry in entries for wire in translator.translate(entry)]
    events += translator.finish(state)

    assert checked(events) == wire_messages(state.messages)


# Bytes


def test_sse_holds_any_text_in_one_line() -> None:
    event = {"delta": "Zürich\n\r\u2028 🌸", "half": "\ud83c", "big": 10**30, "none": float("nan")}
    line = encode_sse({key: event[key] for key in ("delta", "none")})

    assert line.startswith(b"data: {")
    assert line.endswith(b"}\n\n")
    assert line.count(b"\n") == 2
    assert "Zürich".encode() in line
    assert json.loads(line[6:]) == {"delta": event["delta"], "none": None}
    assert json.loads(encode_sse({"x": event["half"]})[6:]) == {"x": "\ufffd"}
    assert json.loads(encode_sse({"x": event["big"]})[6:]) == {"x": 10**30}


def test_files_of_a_user_are_content_parts() -> None:
    parts = (
        TextPart("See:"),
        ImagePart(data="aGk=", media_type="image/png"),
        FilePart(url="https://example.org/a.pdf", name="a.pdf"),
    )
    [message] = wire_messages([Message.user(parts, id="m")])

    assert message["content"] == [
        {"type": "text", "text": "See:"},
        {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
        {
            "type": "document",
            "source": {"type": "url", "value": "https://example.org/a.pdf"},
            "metadata": {"name": "a.pdf"},
        },
    ]

"""AG-UI streams of runs with turns: subagents, answers, other drivers, endings in the middle."""

import asyncio
from typing import Any

from msgspec.structs import replace

from stepwell import (
    Agent,
    AgentState,
    Cancellation,
    ErrorPolicy,
    HookContext,
    Message,
    ModelError,
    UseSubagents,
    UseUserInput,
    make_hook,
)
from stepwell.continuation import AgentStop, StopReason, StopSignal
from stepwell.drivers import ReActDriver
from stepwell.events import AgentEvent, AgentFinished
from stepwell.journal import Projector
from stepwell.messages import ImagePart
from stepwell.models import ModelRequest, ModelResponse
from stepwell.protocols.ag_ui import AgUiTranslator, ag_ui_events, state_from_ag_ui
from stepwell.protocols.ag_ui.messages import wire_messages
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import DeterministicAgentDriver, MockTool, ScriptedModel, call
from tests.unit.protocols.ag_ui_rules import checked


async def told(agent: Agent, task: Any = "Go.", **more: Any) -> list[dict[str, Any]]:
    return [e async for e in ag_ui_events(agent, task, thread_id="t", run_id="r", **more)]


async def told_and_kept(
    agent: Agent, task: Any = "Go.", **more: Any
) -> tuple[list[dict[str, Any]], AgentState]:
    """The events, after a look at whether a client ends up with the history."""
    states: list[AgentState] = []
    events = await told(agent, task, on_state=states.append, **more)
    waiting = [p.call_id for p in states[-1].pending if p.call_id]
    assert checked(events) == wire_messages(states[-1].messages, waiting)
    return events, states[-1]


def of_type(events: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] in kinds]


def registry(*names: str) -> AgentRegistry:
    return AgentRegistry(
        [AgentSpec(name=name, description="Judges.", system_prompt="You judge.") for name in names]
    )


async def test_subagents_have_ids_of_their_own_also_when_runs_overlap() -> None:

    def answer(request: ModelRequest) -> Any:
        said = [message.text for message in request.messages]
        if said[0].startswith("judge"):
            return f"verdict on {said[0]}" if len(said) > 1 else call("look", id="same")
        if len(said) > 1:
            return f"end of {said[0]}"
        spawn = {"subagent": "critic", "prompt": f"judge {said[0]}"}
        return call("spawn_subagent", id="same", **spawn)

    agent = Agent(
        ScriptedModel(answer),
        tools=[MockTool.returning("look", "ok")],
        capabilities=[UseSubagents(registry("critic"))],
    )
    both = await asyncio.gather(told(agent, "one"), told(agent, "two"))

    for events, name in zip(both, ("one", "two"), strict=True):
        checked(events)
        text = "".join(e["delta"] for e in of_type(events, "TEXT_MESSAGE_CONTENT"))
        assert text == f"verdict on judge {name}end of {name}"
        [started], [finished] = (
            of_type(events, "SUBAGENT_STARTED"),
            of_type(events, "SUBAGENT_FINISHED"),
        )
        assert started["parentToolCallId"] == "same"
        assert started["name"] == "critic"
        assert finished["result"] == f"verdict on judge {name}"
        tagged = {e["toolCallId"] for e in of_type(events, "TOOL_CALL_START")}
        assert tagged == {"same", f"{started['subagentRunId']}:same"}


async def test_a_subagent_that_fails_is_an_error_of_its_own() -> None:
    spawn = call("spawn_subagent", id="s", subagent="critic", prompt="Is it good?")
    agent = Agent(
        ScriptedModel([spawn, ModelError("no line"), "It could not be judged."]),
        capabilities=[UseSubagents(registry("critic"))],
        error_policy=ErrorPolicy.ignore_tool_errors(),
    )
    events, state = await told_and_kept(agent)
    [error] = of_type(events, "SUBAGENT_ERROR")

    assert "no line" in error["message"]
    assert error["code"] == "failed"
    assert checked(events) == wire_messages(state.messages)


async def test_subagents_of_subagents_name_who_called_them() -> None:
    def answer(request: ModelRequest) -> Any:
        first, *more = [message.text for message in request.messages]
        below = {"Go.": ("boss", "level 1"), "level 1": ("clerk", "level 2")}.get(first)
        if below is None or more:
            return f"end of {first}"
        return call("spawn_subagent", id="s", subagent=below[0], prompt=below[1])

    subagents = UseSubagents.with_depth(3, registry("boss", "clerk"))
    events, _ = await told_and_kept(Agent(ScriptedModel(answer), capabilities=[subagents]))
    boss, clerk = of_type(events, "SUBAGENT_STARTED")

    assert (boss["name"], clerk["name"]) == ("boss", "clerk")
    assert "parentSubagentRunId" not in boss
    assert clerk["parentSubagentRunId"] == boss["subagentRunId"]
    assert clerk["parentToolCallId"] == f"{boss['subagentRunId']}:s"
    texts = of_type(events, "TEXT_MESSAGE_CONTENT")
    said = {e.get("subagentRunId"): "" for e in texts}
    for piece in texts:
        said[piece.get("subagentRunId")] += piece["delta"]
    assert list(said.values()) == ["end of level 2", "end of level 1", "end of Go."]


async def test_a_subagent_that_is_cancelled_is_closed() -> None:
    cancellation = Cancellation()

    async def hangs() -> None:
        cancellation.request("enough")
        await asyncio.Event().wait()

    spawn = call("spawn_subagent", id="s", subagent="critic", prompt="Is it good?")
    agent = Agent(
        ScriptedModel([spawn, call("hangs", id="h")]),
        tools=[MockTool("hangs", hangs)],
        capabilities=[UseSubagents(registry("critic"))],
    )
    events, _ = await told_and_kept(agent, cancellation=cancellation)

    assert [e["code"] for e in of_type(events, "SUBAGENT_ERROR")] == ["cancelled"]
    assert events[-1]["outcome"] == {"type": "cancelled"}


async def test_calls_that_never_ran_are_told_in_their_place() -> None:
    late = AgentStop(StopSignal(reason=StopReason.TIME_LIMIT, message="too late"))
    stops = MockTool.raising("stops", late)
    agent = Agent(
        ScriptedModel([[call("stops", id="a"), call("alone", id="b")], "Wrapped up."]),
        tools=[stops, MockTool("alone", lambda: 1, parallel=False)],
        at_limit="wrap_up",
    )
    events, state = await told_and_kept(agent)

    assert "Not run" in state.messages[3].text
    assert [e["toolCallId"] for e in of_type(events, "TOOL_CALL_RESULT")] == ["a", "b"]
    assert {"type": "MESSAGES_SNAPSHOT", "messages": []} not in events
    assert state.final_response == "Wrapped up."


async def test_questions_with_the_same_id_are_answered_one_by_one() -> None:
    turns = [
        call("user_input", id="q", question="First?"),
        call("user_input", id="q", question="Second?"),
        "Thank you.",
    ]
    agent = Agent(ScriptedModel(turns), capabilities=[UseUserInput()])
    events, state = await told_and_kept(agent)
    asked_for: list[str] = []
    for answer in ("one", "two"):
        [asked] = events[-1]["outcome"]["interrupts"]
        asked_for.append(asked["id"])
        resume = [{"interruptId": asked["id"], "status": "resolved", "payload": answer}]
        sent = {"threadId": "t", "runId": "r", "messages": [], "resume": resume}
        events, state = await told_and_kept(agent, state_from_ag_ui(sent, previous=state))

    assert [m.text for m in state.messages if m.is_tool()] == ["one", "two"]
    assert len(set(asked_for)) == 2
    assert events[-1]["result"] == "Thank you."


async def test_thoughts_of_a_react_driver_are_reasoning() -> None:
    replies = [
        '{"thought": "Look first.", "type": "call_tool", "tool": "look", "args": {}}',
        '{"thought": "Easy.", "type": "final_answer", "answer": "Four."}',
    ]
    driver = ReActDriver(ScriptedModel(replies))
    events, _ = await told_and_kept(Agent(driver=driver, tools=[MockTool.returning("look", 4)]))

    thoughts = [e["delta"] for e in of_type(events, "REASONING_MESSAGE_CONTENT")]
    assert thoughts == ["Look first.", "Easy."]
    assert [e["delta"] for e in of_type(events, "TEXT_MESSAGE_CONTENT")] == ["Four."]


async def test_a_driver_that_tells_nothing_is_told_from_its_messages() -> None:
    driver = DeterministicAgentDriver.from_responses("Hello there.")
    events, state = await told_and_kept(Agent(driver=driver))

    assert "".join(e["delta"] for e in of_type(events, "TEXT_MESSAGE_CONTENT")) == "Hello there."
    assert of_type(events, "TEXT_MESSAGE_START")[0]["messageId"] == state.messages[1].id


async def test_a_call_that_waits_says_so_and_nothing_else() -> None:
    question = call("user_input", id="q", question="Where?")
    events, _ = await told_and_kept(Agent(ScriptedModel([question]), capabilities=[UseUserInput()]))
    [result] = of_type(events, "TOOL_CALL_RESULT")

    assert result["content"] == "Waiting for an answer."
    assert result["metadata"] == {"stepwell": {"waiting": True}}


async def heard_in(agent: Agent) -> tuple[list[AgentEvent], AgentState]:
    heard: list[AgentEvent] = []
    agent.wiretap(heard.append)
    return heard, await agent.run("Go.")


async def test_a_subagent_whose_end_was_never_told_is_closed_all_the_same() -> None:
    spawn = call("spawn_subagent", id="s", subagent="critic", prompt="Is it good?")
    agent = Agent(
        ScriptedModel([spawn, "Yes.", "It is."]), capabilities=[UseSubagents(registry("critic"))]
    )
    heard, state = await heard_in(agent)
    translator, projector = AgUiTranslator("t", "r"), Projector()
    events = [
        wire
        for event in heard
        for entry in projector.entries(event)
        if not (entry.payload.parent_execution_id and isinstance(event, AgentFinished))
        for wire in translator.translate(entry)
    ]
    events += translator.finish(state)

    assert checked(events) == wire_messages(state.messages)
    assert "cut off" in of_type(events, "SUBAGENT_ERROR")[0]["message"]


async def test_text_is_closed_before_a_call_begins_whatever_the_driver_tells() -> None:
    class Speaks(ScriptedModel):
        def _response(self, turn: Any) -> ModelResponse:
            response = super()._response(turn)
            return replace(response, text=response.text or "I look.")

    model = Speaks([call("look", id="l"), "Done."])
    heard, state = await heard_in(Agent(model, tools=[MockTool.returning("look", 1)]))
    translator, projector = AgUiTranslator("t", "r"), Projector()
    events = [
        wire
        for event in heard
        if not getattr(event, "is_complete", False)
        for entry in projector.entries(event)
        for wire in translator.translate(entry)
    ]
    events += translator.finish(state)
    kinds = [event["type"] for event in events]

    assert checked(events) == wire_messages(state.messages)
    assert kinds.index("TEXT_MESSAGE_END") < kinds.index("TOOL_CALL_START")


async def test_a_message_without_text_has_no_empty_piece() -> None:
    def show(context: HookContext) -> HookContext:
        image = ImagePart(data="aGk=", media_type="image/png")
        return context.with_state(context.state.with_message(Message.user([image], id="image")))

    agent = Agent(ScriptedModel(["Nice."]), hooks=[make_hook("after_step", show)])
    events, _ = await told_and_kept(agent)

    assert {e["messageId"] for e in of_type(events, "TEXT_MESSAGE_END")} > {"image"}

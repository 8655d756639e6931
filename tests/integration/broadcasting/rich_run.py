"""A run with everything in it: tools, errors, a retry, a subagent, a pause, a limit, a cancel."""

from collections.abc import Mapping
from typing import Any

from stepwell import (
    Agent,
    Cancellation,
    ErrorPolicy,
    HookContext,
    InputRequired,
    ModelError,
    ToolFailure,
    make_hook,
)
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.capabilities.subagents import UseSubagents
from stepwell.events import AgentStepStarted
from stepwell.messages import ToolCall
from stepwell.models import ModelRequest
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import FakeClock, MockTool, ScriptedModel, SequentialIds, call
from tests.answers import answer_call

Envelopes = tuple[Mapping[str, Any], ...]

PRESETS = {
    "minimal": BroadcastConfig.minimal(),
    "standard": BroadcastConfig.standard(),
    "debug": BroadcastConfig.debug(),
}

MAIN: list[Any] = [
    [
        call("search", id="c1", query="dbplus", filters={"types": ["program"], "since": None}),
        call("missing", id="c2", path="notes.txt"),
        call("deploy", id="c3", to="production"),
    ],
    call("broken", id="c4"),
    ModelError("the provider stumbled"),
    call("spawn_subagent", id="c5", subagent="reader", prompt="Read it."),
    call("ask", id="c6"),
    "All of it is done.",
    "Never said.",
]
READER: list[Any] = [call("search", id="c1", query="inner"), "It says hello."]


def _turn(scripts: dict[str, list[Any]]) -> Any:
    def turn(request: ModelRequest) -> str | ToolCall | list[ToolCall] | Exception:
        return scripts[request.context.messages[-1].text].pop(0)

    return turn


def _refuse_deploying(context: HookContext) -> HookContext | None:
    return context.block("not on a Friday") if context.call.name == "deploy" else None


def eventful_agent() -> Agent:
    """An agent with its script; good for one ``eventful_run``."""
    reader = AgentSpec(name="reader", description="Reads.", system_prompt="reader")
    return Agent(
        ScriptedModel(_turn({"main": list(MAIN), "reader": list(READER)})),
        system_prompt="main",
        tools=[
            MockTool("search", lambda query, filters=None: {"found": [query]}),
            MockTool("missing", lambda path: ToolFailure(f"{path} is not there")),
            MockTool("deploy", lambda to: "deployed"),
            MockTool.raising("broken", ValueError("boom")),
            MockTool.returning("ask", InputRequired(prompt="Which colour?")),
        ],
        capabilities=[UseSubagents(AgentRegistry([reader]))],
        hooks=[make_hook("before_tool", _refuse_deploying)],
        error_policy=ErrorPolicy.retry_all(5),
        clock=FakeClock(),
        new_id=SequentialIds(),
    )


async def eventful_run(config: BroadcastConfig) -> Envelopes:
    """What is broadcast of two executions: one that pauses and completes, one that is cancelled."""
    agent, screen = eventful_agent(), RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(
        screen, "session-1", "execution-1", config, new_id=SequentialIds("envelope")
    )
    agent.wiretap(adapter.wiretap())
    state = await agent.run("Go.")
    state = await agent.run(answer_call(state, "c6", "blue"))
    adapter.reset("execution-2")
    cancellation = Cancellation()
    agent.on_event(AgentStepStarted, lambda _: cancellation.request("closed the tab"))
    await agent.run(state.with_user_message("And now?"), cancellation=cancellation)
    await adapter.flush()
    assert adapter.failed == adapter.dropped == 0
    return screen.envelopes

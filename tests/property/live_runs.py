"""Real sessions for the message list: what was broadcast, what was stored, what was typed."""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st

from stepwell import Agent, AgentState, Cancellation, ErrorPolicy, ToolFailure, UseUserInput
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.capabilities.subagents import UseSubagents
from stepwell.errors import ModelError
from stepwell.events import ToolCallStarted
from stepwell.messages import FinishReason, ToolCall
from stepwell.models import ModelRequest, ModelResponse
from stepwell.serialization.slim import SlimAgentStateSerializer
from stepwell.serialization.slim_config import SlimSerializationConfig
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import FakeClock, MockTool, ScriptedModel, SequentialIds, call

Json = dict[str, Any]
Turn = tuple[str, tuple[str, ...]] | str
"""What the model says and which tools it calls; "error" makes the provider fail."""

STANDARD = BroadcastConfig.standard()
TOOLS = ("look", "fails", "raises", "spawn", "ask", "stop")
TEXTS = ("", "Let me see.", "One moment, I look it up for you.", "Grüße, 東京 \N{SNAKE}!")

answers = st.sampled_from(TEXTS)
turns = st.lists(
    st.just("error") | st.tuples(answers, st.lists(st.sampled_from(TOOLS), max_size=3).map(tuple)),
    max_size=4,
)
sessions = st.lists(turns, min_size=1, max_size=3)


class Session(NamedTuple):
    """What is left of a session."""

    envelopes: list[Json]
    stored: list[Json]
    said: list[str]


class _Recorder:
    """Async, so that it needs no threads."""

    def __init__(self) -> None:
        self.envelopes: list[Json] = []

    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        self.envelopes.append(dict(envelope))


class _Speaker:
    """The words of the agent and of its subagents, who look something up and answer."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self._calls = 0

    def turn(self, request: ModelRequest) -> ModelResponse | Exception:
        if any("You help" in message.text for message in request.context.messages):
            is_asked = request.messages[-1].is_user()
            return self._said("I help.", ("look",) if is_asked else ())
        turn = self.turns.pop(0) if self.turns else ("That is all.", ())
        return ModelError("the provider is down") if isinstance(turn, str) else self._said(*turn)

    def _said(self, text: str, tools: tuple[str, ...]) -> ModelResponse:
        calls = tuple(self._call(name) for name in tools)
        reason = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
        return ModelResponse(text=text, tool_calls=calls, finish_reason=reason)

    def _call(self, name: str) -> ToolCall:
        self._calls += 1
        id = f"c{self._calls}"
        match name:
            case "spawn":
                return call("spawn_subagent", id=id, subagent="helper", prompt="Please help.")
            case "ask":
                return call("user_input", id=id, question="Which one?")
            case _:
                return call(name, id=id, at=self._calls, what="a place with a long, long name")


async def _session(runs: list[list[Turn]], config: BroadcastConfig) -> Session:
    speaker, recorder, cancellation = _Speaker(), _Recorder(), Cancellation()
    helper = AgentSpec(name="helper", description="helps", system_prompt="You help.")
    agent = Agent(
        ScriptedModel(speaker.turn),
        tools=[
            MockTool.returning("look", {"found": 3}),
            MockTool.returning("fails", ToolFailure("no such place")),
            MockTool.raising("raises", ValueError("out of order")),
            MockTool.returning("stop", "stopping"),
        ],
        capabilities=[UseUserInput(), UseSubagents(AgentRegistry([helper]))],
        error_policy=ErrorPolicy.retry_all(3),
        repeated_calls=None,
        model_retries=0,
        max_steps=6,
        clock=FakeClock(),
        new_id=SequentialIds(),
    )

    def cancel(event: ToolCallStarted) -> None:
        if event.tool == "stop":
            cancellation.request("that will do")

    agent.on_event(ToolCallStarted, cancel)
    adapter = AgentEventEnvelopeAdapter(
        recorder, "session", "e1", config, new_id=SequentialIds("envelope")
    )
    agent.wiretap(adapter.wiretap())
    state, said = AgentState.empty(), []
    for number, script in enumerate(runs, start=1):
        adapter.reset(f"e{number}")
        cancellation = Cancellation()
        speaker.turns = list(script)
        said.append(f"Question {number}?")
        state = await agent.run(state.with_user_message(said[-1]), cancellation=cancellation)
        while state.pending:
            for asked in state.pending:
                state = state.with_answer(asked, "This one.")
            state = await agent.run(state, cancellation=cancellation)
    await adapter.flush()
    whole = SlimSerializationConfig(max_messages=1000, max_content_length=100_000)
    stored = SlimAgentStateSerializer(whole).serialize(state)["messages"]
    return Session(recorder.envelopes, stored, said)


def session_of(runs: list[list[Turn]], config: BroadcastConfig = STANDARD) -> Session:
    """A session with these runs, each after the other."""
    return asyncio.run(_session(runs, config))

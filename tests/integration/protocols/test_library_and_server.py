"""A client of the library and one of the server read the same of a run, in AG-UI and the AI SDK.

Random runs on a real database: tools that work, fail, raise or are blocked, several at once,
subagents, streamed text, pauses with their answers, cancelled runs. The library's client is given
the entries as they are made; the server's those that were stored as JSON and read back.
"""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stepwell import (
    Agent,
    Cancellation,
    ErrorPolicy,
    HookContext,
    ToolFailure,
    UseUserInput,
    make_hook,
)
from stepwell.capabilities.subagents import UseSubagents
from stepwell.errors import ModelError
from stepwell.events import AgentEvent, ToolCallStarted
from stepwell.journal import Projector
from stepwell.journal.envelope import StepCompletedPayload
from stepwell.messages import FinishReason, ToolCall
from stepwell.models import ModelRequest, ModelResponse
from stepwell.protocols.ag_ui import AgUiTranslator
from stepwell.protocols.ai_sdk import AiSdkTranslator
from stepwell.protocols.client_stream import ClientTranslator
from stepwell.server.live.execution_stream import ExecutionStream, FollowedExecution
from stepwell.server.live.feeds import Feeds
from stepwell.server.settings import ServerSettings
from stepwell.sessions.attempt.runner import RunControl
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.views.reader import Reader
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import AgentState
from stepwell.testing import FakeClock, MockTool, ScriptedModel, call
from tests.integration.sessions.world import World, world

Json = dict[str, Any]
TOOLS = ("look", "fails", "raises", "blocked", "spawn", "ask", "stop")
TEXTS = ("", "Let me see.", "One moment, I look it up for you.", "Grüße, 東京 \N{SNAKE}!")
Turn = tuple[str, tuple[str, ...]] | str

turns = st.lists(
    st.just("error")
    | st.tuples(st.sampled_from(TEXTS), st.lists(st.sampled_from(TOOLS), max_size=3).map(tuple)),
    max_size=4,
)


class Script:
    """The words of the agent, and of its subagents, who look something up and answer."""

    def __init__(self, turns: list[Turn]) -> None:
        self._turns = list(turns)
        self._calls = 0

    def turn(self, request: ModelRequest) -> ModelResponse | Exception:
        if any("You help" in message.text for message in request.context.messages):
            is_asked = request.messages[-1].is_user()
            return self._response("I help.", ("look",) if is_asked else ())
        turn = self._turns.pop(0) if self._turns else ("That is all.", ())
        return ModelError("down") if isinstance(turn, str) else self._response(*turn)

    def _response(self, text: str, tools: tuple[str, ...]) -> ModelResponse:
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
                return call(name, id=id, at=self._calls, what="a place " * 40)


def refuse(context: HookContext) -> HookContext | None:
    return context.block("not allowed") if context.call.name == "blocked" else None


def agent_of(turns: list[Turn]) -> Agent:
    helper = AgentSpec(name="helper", description="helps", system_prompt="You help.")
    return Agent(
        ScriptedModel(Script(turns).turn),
        tools=[
            MockTool.returning("look", {"found": ["something long"] * 40}),
            MockTool.returning("fails", ToolFailure("no such place")),
            MockTool.raising("raises", ValueError("out of order")),
            MockTool.returning("blocked", "never"),
            MockTool.returning("stop", "stopping"),
        ],
        hooks=[make_hook("before_tool", refuse)],
        capabilities=[UseUserInput(), UseSubagents(AgentRegistry([helper]))],
        error_policy=ErrorPolicy.retry_all(3),
        repeated_calls=None,
        model_retries=0,
        max_steps=6,
    )


class Run:
    """One run of an execution: what its listeners heard, and where its log begins."""

    def __init__(self, here: World, id: str, begins_with: AgentState | None, after: int) -> None:
        self.here = here
        self.events: list[AgentEvent] = []
        self.followed = FollowedExecution(
            session_id=here.session_id, execution_id=id, after=after, begins_with=begins_with
        )

    async def library(self, translator: ClientTranslator) -> list[Json]:
        """What a client of the library is sent."""
        reader, projector = Reader(self.here.store), Projector()
        row = await self.here.execution(self.followed.execution_id)
        assert row.last_snapshot_id is not None
        before = self.followed.begins_with
        if before is None:
            last = await reader.state_of(row.last_snapshot_id)
            asked = [m for m in last.messages if not m.id.startswith(f"{row.id}:")]
            before = AgentState.empty(agent_id=last.agent_id).with_messages(asked)
        sent = translator.start(before)
        for event in self.events:
            for entry in projector.entries(event):
                is_own = entry.execution_id == row.id
                # Of a subagent's calls no more is stored than their entries have.
                sent += translator.translate(entry if is_own else replace(entry, detail=None))
                if is_own and isinstance(entry.payload, StepCompletedPayload):
                    sent += translator.step(
                        await reader.state_at(row.id, entry.payload.step_number)
                    )
        return sent + translator.finish(await reader.state_of(row.last_snapshot_id))

    async def server(self, translator: ClientTranslator) -> list[Json]:
        """What a client of the server is sent."""
        store = self.here.store
        feeds = Feeds(store, FakeClock(), ServerSettings())
        services = cast("Any", SimpleNamespace(store=store, reader=Reader(store)))
        stream, sent = ExecutionStream(services, self.followed, translator), list[Json]()
        session_id, after = self.followed.session_id, self.followed.after
        async with await feeds.subscribe(session_id, after) as subscription, asyncio.timeout(90):
            async for batch in stream.batches(subscription, 1.0):
                sent += batch
        await feeds.close()
        return sent


async def run_to_the_end(here: World, agent: Agent) -> list[Run]:
    """Each run of an execution, which goes on after every pause."""
    cancellation, runs = Cancellation(), list[Run]()
    agent.on_event(ToolCallStarted, lambda e: _cancel_at_stop(e, cancellation))
    id = await here.send("Go.")
    for _ in range(4):
        events = await here.events()
        row = await here.execution(id)
        state = None
        if row.last_snapshot_id is not None:
            state = await Reader(here.store).state_of(row.last_snapshot_id)
        run = Run(here, id, state, len(events))
        stop = agent.wiretap(run.events.append)
        status = await here.run(id, control=RunControl(cancellation))
        stop()
        runs.append(run)
        if status != "paused":
            break
        lifecycle = Lifecycle(here.store, here.jobs, here.agents)
        for asked in (await here.execution(id)).questions:
            await lifecycle.answer(id, asked["question_id"], "This one.")
    return runs


def _cancel_at_stop(event: ToolCallStarted, cancellation: Cancellation) -> None:
    if event.tool == "stop":
        cancellation.request("that will do")


def merged(sent: list[Json]) -> list[Json]:
    """The same with pieces of text that follow one another as one: the log has fewer of them."""
    result: list[Json] = []
    for one in sent:
        last = result[-1] if result else {}
        data, last_data = one.get("data"), last.get("data")
        has_text = one["type"].startswith(("TEXT_MESSAGE_", "text-"))
        if "delta" in one and has_text and _name(one) == _name(last):
            last["delta"] += one["delta"]
        elif isinstance(data, dict) and "delta" in data and _name(one) == _name(last):
            last["data"] = {**last_data, "delta": last_data["delta"] + data["delta"]}
        else:
            result.append({k: v for k, v in one.items() if k != "timestamp" or not has_text})
    return result


def _name(one: Json) -> tuple[Any, ...]:
    data = one.get("data")
    agent = data.get("agent_id") if isinstance(data, dict) else None
    return one.get("type"), one.get("id"), one.get("messageId"), agent


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(turns=turns)
@pytest.mark.parametrize(
    "make",
    [lambda: AgUiTranslator("t", "r"), lambda: AiSdkTranslator("m")],
    ids=["ag-ui", "ai-sdk"],
)
async def test_both_read_the_same(turns: list[Turn], make: Callable[[], ClientTranslator]) -> None:
    agent = agent_of(turns)
    with tempfile.TemporaryDirectory() as folder:
        async with world(Path(folder), agent) as here:
            for run in await run_to_the_end(here, agent):
                library, server = await run.library(make()), await run.server(make())
                assert merged(server) == merged(library)

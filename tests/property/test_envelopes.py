"""Whatever a run does: its envelopes are counted, every beginning has its end, and it ends once."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Approval,
    Cancellation,
    ErrorPolicy,
    HookContext,
    InputRequired,
    ModelError,
    ModelRequest,
    ModelResponse,
    TextDelta,
    ToolFailure,
    make_hook,
)
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import SubagentPolicy, UseSubagents
from stepwell.continuation import AgentStop
from stepwell.events import AgentEvent, AgentFinished, ToolCallStarted
from stepwell.journal.summaries import args_summary, result_summary, truncated_args
from stepwell.messages import ToolCall
from stepwell.models import ResponseEnd, StreamPart
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import MockTool
from tests.examples import examples
from tests.unit.broadcasting.following import assert_in_order

Data = Mapping[str, Any]
TERMINAL = {"completed", "failed", "cancelled", "stopped"}

NAMES = ("good", "fails", "raises", "stops", "asks", "risky", "slow", "alone", "missing", "blocked")
acts = st.sampled_from([*NAMES, "a", "b"])
turns = st.lists(
    st.one_of(
        st.lists(acts, min_size=1, max_size=3),
        st.sampled_from(["words of an answer", "", "breaks off", "error"]),
    ),
    max_size=4,
)
policies = st.sampled_from(
    [
        ErrorPolicy.stop_on_any_error(),
        ErrorPolicy.retry_tool_errors(2),
        ErrorPolicy.ignore_tool_errors(),
        ErrorPolicy.retry_all(3),
    ]
)
scenarios = st.fixed_dictionaries(
    {
        "scripts": st.fixed_dictionaries({"main": turns, "a": turns, "b": turns}),
        "policy": policies,
        "at_limit": st.sampled_from(["stop", "wrap_up", "pause"]),
        "max_steps": st.integers(0, 5),
        "cancel_at": st.none() | st.integers(1, 8),
        "config": st.sampled_from(
            [BroadcastConfig.minimal(), BroadcastConfig.standard(), BroadcastConfig.debug()]
        ),
        "answers": st.lists(st.booleans(), min_size=1, max_size=3),
    }
)


class Screen:
    """Keeps what is broadcast, without a thread for each envelope."""

    def __init__(self) -> None:
        self.envelopes: list[Data] = []

    async def broadcast(self, channel: str, envelope: Data) -> None:
        self.envelopes.append(envelope)


class Model:
    """Speaks by the scripts of its agents; a stream may break off."""

    name = "by script"

    def __init__(self, scripts: dict[str, list[Any]]) -> None:
        self.scripts = scripts

    async def respond(self, request: ModelRequest) -> ModelResponse:
        raise AssertionError("somebody listens, so it is asked to stream")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        script = self.scripts[request.context.messages[-1].text]
        number = sum(message.is_assistant() for message in request.messages)
        turn = script[number] if number < len(script) else "the end"
        if turn == "error":
            raise ModelError("scripted")
        if turn == "breaks off":
            yield TextDelta("half of")
            raise ModelError("cut")
        if isinstance(turn, str):
            for word in turn.split():
                yield TextDelta(word)
            yield ResponseEnd(ModelResponse(text=turn))
            return
        yield ResponseEnd(ModelResponse(tool_calls=tuple(_call(*one) for one in enumerate(turn))))


def _call(index: int, name: str) -> ToolCall:
    spawns = {"subagent": name, "prompt": "Go."}
    is_agent = name in ("a", "b")
    return ToolCall(
        id=f"c{index}",
        name="spawn_subagent" if is_agent else name,
        arguments=spawns if is_agent else {},
    )


def _refuse_blocked(context: HookContext) -> HookContext | None:
    return context.block("not allowed") if context.call.name == "blocked" else None


def tools() -> list[MockTool]:
    async def slow() -> str:
        for _ in range(3):
            await asyncio.sleep(0)
        return "slow but sure"

    return [
        MockTool.returning("good", {"ok": True}),
        MockTool.returning("fails", ToolFailure("not there")),
        MockTool.raising("raises", ValueError("boom")),
        MockTool.raising("stops", AgentStop(message="enough")),
        MockTool.returning("asks", InputRequired(prompt="Which one?")),
        MockTool.returning("risky", "done"),
        MockTool("slow", slow),
        MockTool("alone", lambda: "done alone", parallel=False),
        MockTool.returning("blocked", "never"),
    ]


class Scenario:
    """An agent with subagents that does what a plan says, broadcast."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.cancellation = Cancellation()
        specs = (AgentSpec(name=n, description=n, system_prompt=n) for n in ("a", "b"))
        self.agent = Agent(
            Model(plan["scripts"]),
            system_prompt="main",
            tools=tools(),
            capabilities=[
                UseSubagents(AgentRegistry(specs), SubagentPolicy(max_depth=2)),
                UseApprovals("risky"),
            ],
            hooks=[make_hook("before_tool", _refuse_blocked)],
            error_policy=plan["policy"],
            at_limit=plan["at_limit"],
            max_steps=plan["max_steps"],
        )
        self.screen = Screen()
        self.adapter = AgentEventEnvelopeAdapter(self.screen, "s1", "e1", plan["config"])
        self.agent.wiretap(self.adapter.wiretap())
        self.finished: list[AgentFinished] = []
        self.agent.on_event(AgentFinished, self.finished.append)
        self._begun = 0
        if plan["cancel_at"] is not None:
            self.agent.on_event(ToolCallStarted, lambda _: self._count(plan["cancel_at"]))

    def _count(self, cancel_at: int) -> None:
        self._begun += 1
        if self._begun == cancel_at:
            self.cancellation.request("enough of it")

    async def to_the_end(self, answers: list[bool]) -> AgentState:
        """Run, and answer what is asked; a run that waits for more budget is left waiting."""
        state = await self.agent.run("Go.", cancellation=self.cancellation)
        for _ in range(10):
            asked = [p for p in state.pending if p.call_id is not None]
            if state.status is not AgentStatus.PAUSED or not asked:
                break
            for number, waits in enumerate(asked):
                yes = answers[number % len(answers)]
                answer = (yes or Approval.denied("no")) if waits.kind == "approval" else "this"
                state = state.with_answer(waits, answer)
            state = await self.agent.run(state, cancellation=self.cancellation)
        await self.adapter.flush()
        return state


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=scenarios)
async def test_every_beginning_has_its_end_and_every_execution_ends_once(
    plan: dict[str, Any],
) -> None:
    scenario = Scenario(plan)
    state = await scenario.to_the_end(plan["answers"])

    envelopes = tuple(scenario.screen.envelopes)
    assert_in_order(envelopes)
    assert scenario.adapter.delivered == len(envelopes)
    last = {e["execution_id"]: e["payload"] for e in envelopes if e["type"] == "agent.status"}
    assert last["e1"]["status"] == state.status == scenario.adapter.status
    assert last["e1"]["step_count"] == state.step_count
    assert last["e1"]["stop_reason"] == (state.stop and state.stop.stop_reason)
    ended = {event.execution_id: event.status for event in scenario.finished}
    assert len(last) == len(ended)
    for execution, status in ended.items():
        if execution in last and status != AgentStatus.PAUSED:
            assert last[execution]["status"] == status
    if state.is_finished:
        assert {payload["status"] for payload in last.values()} <= TERMINAL
    parents = {e["payload"]["parent_execution_id"] for e in envelopes}
    assert parents <= {None, *last}
    for envelope in envelopes:
        assert json.loads(json.dumps(envelope, allow_nan=False)) == envelope


class _Odd:
    pass


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
    st.dates(),
    st.builds(_Odd),
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=())) | st.integers(), inner)
    ),
    max_leaves=20,
)


@settings(max_examples=examples(100), deadline=None)
@given(
    args=st.dictionaries(st.text(st.characters(exclude_categories=())), values, max_size=5),
    value=values,
    longest=st.integers(1, 20),
)
def test_any_arguments_and_results_become_valid_json(
    args: dict[str, Any], value: Any, longest: int
) -> None:
    summary, result = args_summary(args), result_summary(value)
    assert len(summary) <= 3 * (30 + 30 + 4)
    assert result is None or len(result) <= 100
    told = truncated_args(args, longest)
    assert len(told) <= len(args)
    text = json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
    assert json.loads(text) == told


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=scenarios, dropped=st.sets(st.integers(0, 200)))
async def test_events_that_are_lost_make_no_handler_raise(
    plan: dict[str, Any], dropped: set[int]
) -> None:
    """Only some handlers may be wired, or a listener may come late: what is told stays in order."""
    scenario = Scenario(plan)
    heard: list[AgentEvent] = []
    scenario.agent.wiretap(heard.append)
    await scenario.agent.run("Go.", cancellation=scenario.cancellation)
    screen = Screen()
    adapter = AgentEventEnvelopeAdapter(screen, "s1", "e1", BroadcastConfig.debug())
    listen = adapter.wiretap()

    for number, event in enumerate(heard):
        if number not in dropped:
            listen(event)
    adapter.on_agent_status_changed("stopped")
    await adapter.flush()

    numbers = [envelope["seq"] for envelope in screen.envelopes]
    assert numbers == list(range(1, len(numbers) + 1))
    for execution in {envelope["execution_id"] for envelope in screen.envelopes}:
        statuses = [
            envelope["payload"]["status"]
            for envelope in screen.envelopes
            if envelope["execution_id"] == execution and envelope["type"] == "agent.status"
        ]
        assert sum(status in TERMINAL for status in statuses) <= 1
        assert not set(statuses[:-1]) & TERMINAL

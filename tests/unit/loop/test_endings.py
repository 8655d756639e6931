"""Every way a run can end: reason, resolver, all votes, status and events."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Cancellation,
    ContinuationCriteria,
    ContinuationDecision,
    ErrorPolicy,
    InputRequired,
    ModelError,
    StopReason,
    Usage,
    make_hook,
)
from stepwell.continuation import AgentStop
from stepwell.errors import ErrorType
from stepwell.events import (
    AgentExecutionStarted,
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    ContinuationEvaluated,
)
from stepwell.testing import EventRecorder, FakeClock, MockTool, ScriptedModel, call

BASE_VOTES = [
    "StepsLimit",
    "TokenUsageLimit",
    "ExecutionTimeLimit",
    "RepeatedCallCheck",
    "FinishReasonCheck",
    "ErrorPolicyCriterion",
    "ToolCallPresenceCheck",
]


@dataclass
class Ending:
    """One way to end: how the agent is made, and what must be told about the end."""

    reason: StopReason
    resolver: str
    status: AgentStatus
    make: Callable[[], Agent]
    steps: int
    extra_votes: list[str] = field(default_factory=list)
    votes: list[str] | None = None
    says: str = ""


def endless(_request: Any) -> Any:
    return call("ping")


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    return function


def agent_with(turns: Any = endless, *tools: MockTool, **options: Any) -> Agent:
    model = options.pop("model", None) or ScriptedModel(turns, cost=0.25)
    return Agent(model, tools=tools or (MockTool.returning("ping", "pong"),), **options)


def failing_tool() -> MockTool:
    return MockTool.raising("ping", ValueError("boom"))


def slow_clock_agent(**options: Any) -> Agent:
    clock = FakeClock()
    tool = MockTool("ping", lambda: clock.advance(40))
    return agent_with(endless, tool, clock=clock, **options)


def model_fails() -> Any:
    return [ModelError("no answer")]


def hooked(trigger: str, error: BaseException) -> Agent:
    hook = make_hook(trigger, raising(error), name="bad_hook")
    return agent_with([call("ping"), "done"], hooks=[hook])


class StoppingDriver:
    async def use_tools(self, state: AgentState) -> AgentState:
        raise AgentStop("guard", "the driver has seen enough", source="StoppingDriver")


class BrokenDriver:
    async def use_tools(self, state: AgentState) -> AgentState:
        raise KeyError("broken")


def broken_criterion(_state: AgentState) -> ContinuationDecision:
    raise RuntimeError("cannot judge")


ENDINGS = {
    "natural": Ending(
        StopReason.COMPLETED,
        "ToolCallPresenceCheck",
        AgentStatus.COMPLETED,
        lambda: agent_with([call("ping"), "done"]),
        2,
    ),
    "steps_limit": Ending(
        StopReason.STEPS_LIMIT,
        "StepsLimit",
        AgentStatus.STOPPED,
        lambda: agent_with(max_steps=3),
        3,
        says="with_max_steps",
    ),
    "token_limit": Ending(
        StopReason.TOKEN_LIMIT,
        "TokenUsageLimit",
        AgentStatus.STOPPED,
        lambda: agent_with(max_tokens=30),
        2,
        says="30 of 30 tokens used",
    ),
    "cost_limit": Ending(
        StopReason.COST_LIMIT,
        "CostLimit",
        AgentStatus.STOPPED,
        lambda: agent_with(max_cost=0.5),
        2,
        votes=[*BASE_VOTES[:2], "CostLimit", *BASE_VOTES[2:]],
        says="with_max_cost",
    ),
    "time_limit": Ending(
        StopReason.TIME_LIMIT,
        "ExecutionTimeLimit",
        AgentStatus.STOPPED,
        lambda: slow_clock_agent(timeout=60),
        2,
        says="80.000 of 60 seconds used",
    ),
    "cumulative_time_limit": Ending(
        StopReason.TIME_LIMIT,
        "CumulativeExecutionTimeLimit",
        AgentStatus.STOPPED,
        lambda: slow_clock_agent(cumulative_timeout=60),
        2,
        votes=[*BASE_VOTES[:2], "CumulativeExecutionTimeLimit", *BASE_VOTES[3:]],
        says="with_cumulative_timeout",
    ),
    "tool_error_stops": Ending(
        StopReason.ERROR,
        "ErrorPolicyCriterion",
        AgentStatus.FAILED,
        lambda: agent_with(endless, failing_tool()),
        1,
        says="tool ping failed with ValueError: boom",
    ),
    "tool_error_retries_run_out": Ending(
        StopReason.RETRY_LIMIT,
        "ErrorPolicyCriterion",
        AgentStatus.FAILED,
        lambda: agent_with(endless, failing_tool(), max_retries=2),
        2,
        says="with_max_retries",
    ),
    "tool_error_ignored_then_done": Ending(
        StopReason.COMPLETED,
        "ToolCallPresenceCheck",
        AgentStatus.COMPLETED,
        lambda: agent_with(
            [call("ping"), "done"], failing_tool(), error_policy=ErrorPolicy.ignore_tool_errors()
        ),
        2,
    ),
    "tool_error_retried_then_done": Ending(
        StopReason.COMPLETED,
        "ToolCallPresenceCheck",
        AgentStatus.COMPLETED,
        lambda: agent_with(
            [call("ping"), "done"], failing_tool(), error_policy=ErrorPolicy.retry_tool_errors(3)
        ),
        2,
    ),
    "model_error": Ending(
        StopReason.ERROR,
        "ErrorPolicyCriterion",
        AgentStatus.FAILED,
        lambda: agent_with(model_fails()),
        1,
        says="retry_all",
    ),
    "driver_raises": Ending(
        StopReason.ERROR,
        "ErrorPolicyCriterion",
        AgentStatus.FAILED,
        lambda: Agent(driver=BrokenDriver()),
        1,
        says="KeyError: 'broken'",
    ),
    "stop_from_tool": Ending(
        StopReason.STOP_REQUESTED,
        "ping",
        AgentStatus.STOPPED,
        lambda: agent_with(endless, MockTool.raising("ping", AgentStop(message="enough"))),
        1,
        extra_votes=["ping"],
        says="enough",
    ),
    "stop_from_hook": Ending(
        StopReason.GUARD,
        "bad_hook",
        AgentStatus.STOPPED,
        lambda: hooked("after_step", AgentStop("guard", "not today")),
        1,
        extra_votes=["bad_hook"],
        says="not today",
    ),
    "stop_from_driver": Ending(
        StopReason.GUARD,
        "StoppingDriver",
        AgentStatus.STOPPED,
        lambda: Agent(driver=StoppingDriver()),
        0,
        extra_votes=["StoppingDriver"],
        says="the driver has seen enough",
    ),
    "input_required": Ending(
        StopReason.INPUT_REQUIRED,
        "ping",
        AgentStatus.PAUSED,
        lambda: agent_with(endless, MockTool.returning("ping", InputRequired(prompt="Which?"))),
        1,
        extra_votes=["ping"],
        says="with_answer",
    ),
    "finish_reason": Ending(
        StopReason.FINISH_REASON,
        "FinishReasonCheck",
        AgentStatus.COMPLETED,
        lambda: Agent.from_plan(
            agent_with().plan.__class__(
                model=ScriptedModel(endless),
                tools=(MockTool.returning("ping", "pong"),),
                stop_on_finish_reasons=("tool_calls",),
            )
        ),
        1,
    ),
    "criterion_raises": Ending(
        StopReason.ERROR,
        "broken_criterion",
        AgentStatus.FAILED,
        lambda: agent_with(criteria=[ContinuationCriteria.when(broken_criterion)]),
        0,
        extra_votes=["broken_criterion"],
        says="RuntimeError: cannot judge",
    ),
    **{
        f"hook_raises_{trigger}": Ending(
            StopReason.ERROR,
            "bad_hook",
            AgentStatus.FAILED,
            lambda trigger=trigger: hooked(trigger, ValueError("hook broke")),
            steps,
            extra_votes=["bad_hook"],
            says="ValueError: hook broke",
        )
        for trigger, steps in {
            "before_execution": 0,
            "before_step": 0,
            "before_inference": 1,
            "after_inference": 1,
            "before_tool": 1,
            "after_tool": 1,
            "after_step": 1,
            "on_stop": 2,
            "after_execution": 2,
        }.items()
    },
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_every_ending_is_explained(name: str) -> None:
    ending = ENDINGS[name]
    agent = ending.make()
    recorder = EventRecorder()
    agent.wiretap(recorder)

    state = await agent.run("Go.")

    assert state.status is ending.status
    assert state.stop is not None
    assert state.stop.stop_reason is ending.reason
    assert state.stop.resolved_by == ending.resolver
    assert state.step_count == ending.steps
    votes = [vote.criterion for vote in state.stop.evaluations]
    assert votes == (ending.votes or BASE_VOTES) + ending.extra_votes
    assert ending.says in state.explain()
    assert str(ending.reason) in state.explain()

    finished = recorder.of(AgentFinished)
    assert [event.status for event in finished] == [ending.status]
    assert finished[0].outcome == state.stop
    assert finished[0].total_steps == ending.steps
    assert recorder.events[-1] is finished[0]
    assert len(recorder.of(AgentExecutionStarted)) == 1
    assert len(recorder.of(AgentStepCompleted)) == ending.steps
    decisions = recorder.of(ContinuationEvaluated)
    assert decisions[-1].outcome == state.stop
    assert [d.outcome.should_continue for d in decisions] == [True] * (len(decisions) - 1) + [False]
    failed = recorder.of(AgentFailed)
    assert len(failed) == (1 if ending.status is AgentStatus.FAILED else 0)


async def test_on_error_hook_that_raises_fails_the_run() -> None:
    hook = make_hook("on_error", raising(ValueError("hook broke")), name="bad_hook")
    state = await agent_with(endless, failing_tool(), hooks=[hook], max_retries=3).run("Go.")
    assert state.status is AgentStatus.FAILED
    assert state.stop is not None
    assert state.stop.resolved_by == "bad_hook"
    assert state.stop.evaluation_for("ErrorPolicyCriterion").decision == "request"


async def test_cancelled_before_the_first_step() -> None:
    """B35."""
    cancellation = Cancellation()
    cancellation.request("changed my mind")
    model = ScriptedModel(endless)
    agent = agent_with(model=model)
    recorder = EventRecorder()
    agent.wiretap(recorder)
    state = await agent.run("Go.", cancellation=cancellation)
    assert (state.status, state.step_count) == (AgentStatus.CANCELLED, 0)
    assert state.stop is not None
    assert state.stop.resolved_by == "user"
    assert state.stop.stop_reason is StopReason.USER_REQUESTED
    assert model.requests == []
    assert cancellation.requested
    assert recorder.names == [
        "AgentExecutionStarted",
        "ContinuationEvaluated",
        "AgentStateUpdated",
        "AgentFinished",
    ]


async def test_cancelled_inside_a_tool_keeps_the_step() -> None:
    cancellation = Cancellation()

    async def hang() -> None:
        cancellation.request("closed the tab")
        await asyncio.Event().wait()

    agent = agent_with(endless, MockTool("ping", hang))
    state = await agent.run("Go.", cancellation=cancellation)
    assert (state.status, state.step_count) == (AgentStatus.CANCELLED, 1)
    execution = state.steps[0].step.tool_executions[0]
    assert execution.outcome == "cancelled"
    assert "closed the tab" in execution.text
    assert state.usage == Usage(input_tokens=10, output_tokens=5)
    assert state.stop is not None
    assert "tool ping was running and was cancelled" in state.explain()


async def test_cancelled_inside_the_model_call_ends_at_once() -> None:
    cancellation = Cancellation()

    class HangingModel:
        name = "hanging"

        async def respond(self, request: Any) -> Any:
            cancellation.request()
            await asyncio.Event().wait()

        def stream(self, request: Any) -> Any:
            raise NotImplementedError

    state = await Agent(HangingModel()).run("Go.", cancellation=cancellation)
    assert (state.status, state.step_count) == (AgentStatus.CANCELLED, 0)
    assert "the call to hanging was running and was cancelled" in state.explain()


async def test_a_listener_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """B50."""
    agent = agent_with([call("ping"), "done"])
    recorder = EventRecorder()
    agent.wiretap(raising(ValueError("bad listener")))
    agent.wiretap(recorder)
    state = await agent.run("Go.")
    assert state.status is AgentStatus.COMPLETED
    assert recorder.names[-1] == "AgentFinished"
    assert "bad listener" in caplog.text


async def test_wall_deadline_inside_a_tool_cancels_it() -> None:
    """B91."""
    agent = agent_with(endless, MockTool("ping", lambda: asyncio.sleep(60)), timeout=0.5)
    state = await agent.run("Go.")
    assert (state.status, state.step_count) == (AgentStatus.STOPPED, 1)
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TIME_LIMIT
    assert "Deadline" in [vote.criterion for vote in state.stop.evaluations]
    assert state.steps[0].step.tool_executions[0].outcome == "cancelled"
    assert not state.had_errors


async def test_b075_success_then_driver_exception_offers_no_further_step() -> None:
    agent = agent_with([call("ping"), ModelError("gone", error_type=ErrorType.UNKNOWN)])
    state = await agent.run("Go.")
    assert state.status is AgentStatus.FAILED
    assert state.step_count == 2
    assert not agent.has_next_step(state)

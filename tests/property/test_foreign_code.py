"""Whatever hooks, criteria, tools and listeners do, a run ends as data and its history is valid."""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import (
    Agent,
    AgentStatus,
    Cancellation,
    ContinuationCriteria,
    ContinuationDecision,
    ContinuationEvaluation,
    ErrorPolicy,
    HookTrigger,
    InputRequired,
    Message,
    ModelError,
    ModelResponse,
    ToolFailure,
    ToolOutput,
    make_hook,
)
from stepwell.continuation import AgentStop
from stepwell.events import AgentFinished, ContinuationEvaluated
from stepwell.messages import Role
from stepwell.testing import EventRecorder, FakeClock, MockTool, ScriptedModel, call
from tests.examples import examples


def raises(*_args: Any, **_kwargs: Any) -> Any:
    raise ValueError("foreign fault")


def stops(*_args: Any, **_kwargs: Any) -> Any:
    raise AgentStop("guard", "foreign stop")


HOOKS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda _: None,
    "raises": raises,
    "stops": stops,
    "signals": lambda c: c.stop("signalled", reason="completed"),
    "asks for a step": lambda c: c.request_step("again", consumes=("hook", "guard")),
    "loses the state": lambda c: c.with_state(None),
    "answers nonsense": lambda _: 7,
    "blocks": lambda c: c.block("no"),
    "substitutes": lambda c: c.with_result({"given": 1}),
    "substitutes a question": lambda c: c.with_result(InputRequired(prompt="?")),
    "marks": lambda c: c.with_state(c.state.with_metadata({"mark": 1})),
    "speaks": lambda c: c.with_state(c.state.with_message(Message.user("by the way"))),
    "waits": lambda _: asyncio.sleep(0),
    "hangs": raises,  # replaced per run by one that cancels the run and hangs
}
AT_THE_END = (HookTrigger.ON_STOP, HookTrigger.ON_ERROR, HookTrigger.AFTER_EXECUTION)
TOOLS: dict[str, Any] = {
    "good": lambda: "fine",
    "fails": lambda: ToolFailure("not there"),
    "raises": raises,
    "stops": stops,
    "asks": lambda: InputRequired(prompt="Which?"),
    "odd_output": lambda: ToolOutput(value="x", metadata=["odd"]),
    "unshowable": lambda: type("Odd", (), {"__str__": raises})(),
    "slow": lambda: asyncio.sleep(0),
}
CRITERIA: dict[str, Callable[[Any], Any]] = {
    "allows": lambda _: ContinuationDecision.ALLOW,
    "raises": raises,
    "nonsense": lambda _: "perhaps",
    "plain words": lambda _: ContinuationEvaluation(criterion="c", decision="allow", reason="r"),
    "requests": lambda _: ContinuationDecision.REQUEST,
}
MODELS: dict[str, Any] = {
    "text": "hello",
    "nothing": "",
    "fault": ModelError("no answer"),
    "bug": KeyError("bug"),
    "wrong": ModelResponse(text="x", cost=None),
}

calls = st.lists(st.sampled_from([*TOOLS, "missing"]), min_size=1, max_size=3).map(
    lambda names: [call(name) for name in names]
)
scenarios = st.fixed_dictionaries(
    {
        "turns": st.lists(calls | st.sampled_from(list(MODELS.values())), min_size=1, max_size=5),
        "hooks": st.lists(
            st.tuples(st.sampled_from(list(HookTrigger)), st.sampled_from(sorted(HOOKS))),
            max_size=4,
        ),
        "criteria": st.lists(st.sampled_from(sorted(CRITERIA)), max_size=1),
        "policy": st.sampled_from([ErrorPolicy.stop_on_any_error(), ErrorPolicy.retry_all(3)]),
        "at_limit": st.sampled_from(["stop", "wrap_up", "pause"]),
        "listener": st.sampled_from(["none", "raises", "records"]),
        "cancel_at": st.none() | st.integers(0, 30),
    }
)


def hanging(cancellation: Cancellation) -> Callable[[Any], Any]:
    """Cancels the run and hangs; hooks of the end are not interrupted, so there it does not."""

    async def hang(context: Any) -> None:
        if context.trigger not in AT_THE_END and not cancellation.requested:
            cancellation.request("hung")
            await asyncio.Event().wait()

    return hang


def agent_for(plan: dict[str, Any], recorder: EventRecorder, cancellation: Cancellation) -> Agent:
    script = iter(plan["turns"])
    hooks = {**HOOKS, "hangs": hanging(cancellation)}
    agent = Agent(
        ScriptedModel(lambda _: next(script, "the end")),
        tools=[MockTool(name, function) for name, function in TOOLS.items()],
        hooks=[make_hook(trigger, hooks[name], name=name) for trigger, name in plan["hooks"]],
        criteria=[ContinuationCriteria.when(CRITERIA[name]) for name in plan["criteria"]],
        error_policy=plan["policy"],
        at_limit=plan["at_limit"],
        max_steps=4,
        clock=FakeClock(),
    )
    if plan["listener"] == "raises":
        agent.wiretap(raises)
    agent.wiretap(recorder)

    def count(_event: Any) -> None:
        if len(recorder.events) == plan["cancel_at"]:
            cancellation.request("enough")

    agent.wiretap(count)
    return agent


@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=scenarios)
async def test_foreign_code_never_breaks_a_run(plan: dict[str, Any]) -> None:
    recorder, cancellation = EventRecorder(), Cancellation()
    agent = agent_for(plan, recorder, cancellation)
    async with asyncio.timeout(90):
        states = [state async for state in agent.iterator("Go.", cancellation=cancellation)]

    final = states[-1]
    assert final.status is not AgentStatus.IN_PROGRESS
    assert final.stop is not None
    assert str(final.stop.stop_reason) in final.explain()
    assert [event.status for event in recorder.of(AgentFinished)] == [final.status]
    assert type(recorder.events[-1]) is AgentFinished
    assert recorder.of(ContinuationEvaluated)[-1].outcome == final.stop
    assert final.execution.in_flight is None
    assert final.execution.signals == final.execution.continue_requests == ()
    recorded = [e.call.name for s in final.steps for e in s.step.tool_executions]
    for tool in agent.plan.tools:
        assert len(tool.calls) <= recorded.count(tool.schema.name), "a tool ran without a record"
    for state in states:
        assert_every_call_has_one_result(tuple(state.messages))


def assert_every_call_has_one_result(messages: tuple[Message, ...]) -> None:
    awaited: list[str] = []
    for message in messages:
        if message.role is Role.TOOL:
            assert message.tool_result.call_id == awaited.pop(0)
        else:
            assert not awaited
            awaited = [wanted.id for wanted in message.tool_calls]
    assert not awaited

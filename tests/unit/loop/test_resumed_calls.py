"""Calls that asked a person and run again with the answer, in a step of their own."""

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Cancellation,
    InputRequired,
    StepwellError,
    StopReason,
    ToolContext,
    ToolOutput,
    Usage,
    make_hook,
    tool,
)
from stepwell.state import Approval, StepType, ToolOutcome
from stepwell.testing import MockTool, ScriptedModel, call
from tests.answers import answer_call


@tool(parallel=False)
def transfer(amount: int, context: ToolContext) -> str | InputRequired:
    """Move money.

    Args:
        amount: How much.
    """
    if context.resumed is None:
        return InputRequired(
            prompt=f"Move {amount}?", resumes=True, kept={"quote": 7}, details={"amount": amount}
        )
    return f"{context.resumed.answer}: moved {amount} at {context.resumed.kept['quote']}"


def texts(state: AgentState) -> list[str]:
    return [message.text for message in state.messages]


async def test_the_call_runs_again_with_the_answer_before_the_model_is_asked_again() -> None:
    model = ScriptedModel([call("transfer", id="c1", amount=5), "Done."])
    agent = Agent(model, tools=[transfer])
    paused = await agent.run("Pay")

    assert (paused.status, paused.pending[0].prompt) == (AgentStatus.PAUSED, "Move 5?")
    state = await agent.run(answer_call(paused, "c1", "yes"))

    assert state.final_response == "Done."
    assert texts(state) == ["Pay", "", "yes: moved 5 at 7", "Done."]
    asked, ran, answered = (taken.step for taken in state.steps)
    assert [e.outcome for e in asked.tool_executions] == [ToolOutcome.PENDING]
    assert (ran.step_type, ran.messages) == (StepType.TOOL_EXECUTION, ())
    assert [e.text for e in ran.tool_executions] == ["yes: moved 5 at 7"]
    assert answered.step_type is StepType.FINAL_RESPONSE
    assert asked.messages[-1].text == "yes: moved 5 at 7"
    assert "answered call ran" in state.steps[1].outcome.explain(state.status)
    assert len(model.requests) == 2


async def test_all_doors_give_the_same_resumed_run() -> None:
    async def paused() -> tuple[Agent, AgentState]:
        model = ScriptedModel([call("transfer", id="c1", amount=5), "Done."])
        agent = Agent(model, tools=[transfer])
        return agent, answer_call(await agent.run("Pay"), "c1", "yes")

    agent, state = await paused()
    ran = await agent.run(state)
    agent, state = await paused()
    while agent.has_next_step(state):
        state = await agent.next_step(state)
    agent, again = await paused()
    parts = [part async for part in agent.stream(again)]

    assert texts(ran) == texts(state) == texts(parts[-1].state)  # type: ignore[union-attr]
    assert len(ran.steps) == len(state.steps) == 3


async def test_other_calls_of_the_response_run_while_one_asks_about_itself() -> None:
    ping = MockTool.returning("ping", "pong")
    calls = [
        call("transfer", id="a", amount=1),
        call("ping", id="b"),
        call("transfer", id="c", amount=2),
    ]
    agent = Agent(ScriptedModel([calls, "Done."]), tools=[transfer, ping])
    paused = await agent.run("Pay twice")

    assert [p.call_id for p in paused.pending] == ["a", "c"]
    assert len(ping.calls) == 1
    half = answer_call(paused, "c", "ok")
    assert half.status is AgentStatus.PAUSED
    state = await agent.run(answer_call(half, "a", "sure"))
    assert texts(state)[2:5] == ["sure: moved 1 at 7", "pong", "ok: moved 2 at 7"]
    assert len(ping.calls) == 1


async def test_a_call_may_ask_again_and_again() -> None:
    @tool
    def interview(context: ToolContext) -> str | InputRequired:
        """Ask twice."""
        heard = [] if context.resumed is None else [*context.resumed.kept, context.resumed.answer]
        if len(heard) == 2:
            return " and ".join(heard)
        return InputRequired(prompt=f"Question {len(heard) + 1}?", resumes=True, kept=heard)

    agent = Agent(ScriptedModel([call("interview", id="c1"), "Thanks."]), tools=[interview])
    state = await agent.run("Go")
    state = await agent.run(answer_call(state, "c1", "one"))
    assert [p.prompt for p in state.pending] == ["Question 2?"]
    state = await agent.run(answer_call(state, "c1", "two"))

    assert texts(state) == ["Go", "", "one and two", "Thanks."]
    assert state.steps[0].step.messages[-1].text == "one and two"
    assert [len(taken.step.messages) for taken in state.steps] == [2, 0, 0, 1]


async def test_what_a_waiting_call_spent_is_counted_once() -> None:
    @tool
    def costly(context: ToolContext) -> ToolOutput:
        """Spend."""
        spent = Usage(input_tokens=10)
        if context.resumed is None:
            asked = InputRequired(prompt="Go on?", resumes=True)
            return ToolOutput(value=asked, usage=spent, cost=0.5)
        return ToolOutput(value="done", usage=spent, cost=0.25)

    agent = Agent(ScriptedModel([call("costly", id="c1"), "Done."]), tools=[costly])
    paused = await agent.run("Go")
    assert (paused.usage.input_tokens, paused.cost) == (20, 0.5)
    state = await agent.run(answer_call(paused, "c1", "yes"))
    assert (state.usage.input_tokens, state.cost) == (40, 0.75)


async def test_an_answered_call_that_never_ran_says_so() -> None:
    agent = Agent(ScriptedModel([call("transfer", id="c1", amount=5)]), tools=[transfer])
    paused = await agent.run("Pay")
    cancellation = Cancellation()
    cancellation.request("changed my mind")
    state = await agent.run(answer_call(paused, "c1", "yes"), cancellation=cancellation)

    assert state.status is AgentStatus.CANCELLED
    assert texts(state)[-1] == "Error: Not run, because the run ended."
    assert state.answered == ()


async def test_at_a_limit_the_last_step_answers_without_running_the_call() -> None:
    model = ScriptedModel([call("transfer", id="c1", amount=5), "I could not pay."])
    agent = Agent(model, tools=[transfer], max_steps=1, at_limit="wrap_up")
    paused = await agent.run("Pay")
    state = await agent.run(answer_call(paused, "c1", "yes"))

    assert state.final_response == "I could not pay."
    assert texts(state)[2] == "Error: Not run, because a limit of the run was reached."


async def test_an_approval_is_checked_when_it_is_given() -> None:
    @tool
    def delete(context: ToolContext) -> str | InputRequired:
        """Delete."""
        if context.resumed is None:
            return InputRequired(prompt="Delete?", kind="approval", resumes=True)
        assert isinstance(context.resumed.answer, Approval)
        return f"approved: {context.resumed.answer.approved}"

    agent = Agent(ScriptedModel([call("delete", id="c1"), "Done."]), tools=[delete])
    paused = await agent.run("Delete it")

    with pytest.raises(StepwellError, match="does not say whether the call may run"):
        answer_call(paused, "c1", "perhaps")
    state = await agent.run(answer_call(paused, "c1", {"approved": True}))
    assert texts(state)[2] == "approved: True"
    assert paused.stop is not None
    assert paused.stop.stop_reason is StopReason.INPUT_REQUIRED


async def test_an_answer_that_no_state_can_hold_is_refused_at_once() -> None:
    ask = MockTool.returning("ask", InputRequired(prompt="Which?"))
    calls = [call("transfer", id="c1", amount=5), call("ask", id="c2")]
    paused = await Agent(ScriptedModel([calls]), tools=[transfer, ask]).run("Pay")

    for asked in paused.pending:
        with pytest.raises(StepwellError, match="must be text or JSON data"):
            paused.with_answer(asked, object())


@pytest.mark.parametrize("limit", [{"max_steps": 1}, {"max_tokens": 15}])
async def test_a_run_paused_at_a_limit_takes_no_step_that_was_not_granted(
    limit: dict[str, int],
) -> None:
    again = make_hook("after_step", lambda context: context.request_step("once more"))
    model = ScriptedModel(lambda request: "Hello.")
    agent = Agent(model, hooks=[again], at_limit="pause", **limit)
    state = await agent.run("Go")
    for _ in range(3):
        state = await agent.run(state)

    assert (state.status, len(model.requests)) == (AgentStatus.PAUSED, 1)
    granted = state.with_budget_granted(steps=1, tokens=15)
    assert (await agent.run(granted)).step_count == 2

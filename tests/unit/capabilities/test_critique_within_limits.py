"""Self-critique beside typed output, other hooks, limits, deadlines, cancellation and failures."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import json
from pydantic import BaseModel

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Cancellation,
    HookContext,
    ModelRequest,
    ModelResponse,
    StepwellError,
    StopReason,
    Usage,
    make_hook,
)
from stepwell.capabilities.critique import UseSelfCritique
from stepwell.testing import ScriptedModel

APPROVED = '{"feedback": "", "approved": true}'


class Total(BaseModel):
    total: int


def rejected(feedback: str) -> str:
    return json.encode({"feedback": feedback, "approved": False}).decode()


def critic_saying(*verdicts: Any, **facts: Any) -> ScriptedModel:
    return ScriptedModel(verdicts, name="critic", **facts)


def agent_with(answers: list[Any], critic: Any, *, max_iterations: int = 3, **agent: Any) -> Agent:
    use = UseSelfCritique(max_iterations, model=critic)
    return Agent(ScriptedModel(answers), capabilities=[use], **agent)


def reason_of(state: AgentState) -> StopReason | None:
    return None if state.stop is None else state.stop.stop_reason


async def test_an_answer_that_does_not_fit_its_type_is_asked_for_again_without_a_critique() -> None:
    critic = critic_saying(rejected("Too low."), APPROVED)
    answers = ["nope", '{"total": 1}', "nope", '{"total": 2}']
    state = await agent_with(answers, critic, output_type=Total).run("Add it up")

    assert state.output == Total(total=2)
    assert len(critic.requests) == 2
    judged = [s.step.metadata.get("critique", {}).get("approved") for s in state.steps]
    assert judged == [None, False, None, True]
    assert ["output_misfit" in s.step.metadata for s in state.steps] == [True, False, True, False]


async def test_a_typed_answer_that_stays_rejected_is_kept_with_its_value() -> None:
    critic = critic_saying(rejected("No."))
    state = await agent_with(['{"total": 1}'], critic, max_iterations=1, output_type=Total).run(
        "Go"
    )

    assert reason_of(state) is StopReason.GUARD
    assert state.output == Total(total=1)
    assert state.steps[-1].step.output == {"total": 1}


async def test_answers_that_never_fit_fail_the_run_and_nobody_is_asked() -> None:
    critic = critic_saying(APPROVED)
    agent = agent_with(["nope", "nope"], critic, output_type=Total, output_retries=1)
    state = await agent.run("Go")

    assert (state.status, critic.requests) == (AgentStatus.FAILED, [])


async def test_an_answer_that_another_hook_sends_back_is_not_judged() -> None:
    def once(context: HookContext) -> HookContext | None:
        return context.request_step("more") if not context.state.steps else None

    critic = critic_saying(APPROVED)
    agent = agent_with(["a", "b"], critic, hooks=[make_hook("after_step", once)])
    state = await agent.run("Go")

    assert (state.final_response, len(critic.requests)) == ("b", 1)


async def test_an_answer_with_which_another_hook_stops_the_run_is_not_judged() -> None:
    critic = critic_saying(rejected("No."))
    stop = make_hook("after_step", lambda context: context.stop("enough"))
    state = await agent_with(["a"], critic, hooks=[stop]).run("Go")

    assert (reason_of(state), critic.requests) == (StopReason.STOP_REQUESTED, [])


async def test_a_rejection_on_the_last_step_stops_at_the_step_limit() -> None:
    critic = critic_saying(rejected("No."), rejected("No."))
    state = await agent_with(["a", "b"], critic, max_steps=2).run("Go")

    assert reason_of(state) is StopReason.STEPS_LIMIT
    assert state.final_response == "b"
    assert state.metadata["critique"]["approved"] is False


async def test_an_approved_answer_on_the_last_step_completes() -> None:
    state = await agent_with(["a"], critic_saying(APPROVED), max_steps=1).run("Go")

    assert state.status is AgentStatus.COMPLETED


async def test_what_the_critic_spends_can_reach_the_token_limit() -> None:
    critic = critic_saying(rejected("No."), usage=Usage(input_tokens=90, output_tokens=10))
    state = await agent_with(["a", "b"], critic, max_tokens=100).run("Go")

    assert reason_of(state) is StopReason.TOKEN_LIMIT
    assert state.usage.total_tokens == 115


async def test_the_verdict_is_bounded_by_the_tokens_and_the_time_that_are_left() -> None:
    critic = critic_saying(APPROVED)
    await agent_with(["a"], critic, max_tokens=100, timeout=60).run("Go")
    assert critic.requests[0].settings.max_tokens == 85
    assert 50 < (critic.requests[0].seconds_left or 0) <= 60

    critic = critic_saying(APPROVED)
    use = UseSelfCritique(model=critic, timeout=7.0)
    await Agent(ScriptedModel(["a"]), capabilities=[use], timeout=60).run("Go")
    assert critic.requests[0].seconds_left == 7.0


@pytest.mark.parametrize("limits", [{"max_tokens": 15}, {"max_cost": 0.5}])
async def test_nobody_is_asked_once_the_budget_is_used_up(limits: dict[str, Any]) -> None:
    critic = critic_saying(rejected("No."))
    own = ScriptedModel(["a"], cost=0.5)
    agent = Agent(own, capabilities=[UseSelfCritique(model=critic)], **limits)
    state = await agent.run("Go")

    assert (state.status, critic.requests) == (AgentStatus.COMPLETED, [])
    assert state.metadata["critique"]["approved"] is None
    assert "budget of the run is used up" in state.metadata["critique"]["failure"]


async def test_an_unreadable_verdict_is_not_asked_for_again_without_budget() -> None:
    critic = critic_saying("Well.", usage=Usage(input_tokens=85))
    state = await agent_with(["a"], critic, max_tokens=100).run("Go")

    assert len(critic.requests) == 1
    assert state.metadata["critique"]["approved"] is None
    assert state.usage.total_tokens == 100


async def test_the_answer_that_wraps_up_is_not_judged() -> None:
    critic = critic_saying(rejected("No."))
    agent = agent_with(["a", "b"], critic, max_steps=1, at_limit="wrap_up")
    state = await agent.run("Go")

    assert (state.final_response, len(critic.requests)) == ("b", 1)
    assert reason_of(state) is StopReason.STEPS_LIMIT
    assert state.metadata["critique"]["approved"] is None
    assert "wraps up" in state.metadata["critique"]["failure"]


async def test_typed_output_that_paused_at_a_limit_is_asked_for_again_after_a_grant() -> None:
    agent = Agent(
        ScriptedModel(["nope", '{"total": 1}']), output_type=Total, max_steps=1, at_limit="pause"
    )
    paused = await agent.run("Go")
    state = await agent.run(paused.with_budget_granted(steps=1))

    assert paused.status is AgentStatus.PAUSED
    assert state.output == Total(total=1)


class Silent:
    """A model that never answers."""

    name = "silent"

    def __init__(self, on_asked: Callable[[], None] = lambda: None) -> None:
        self.ended = False
        self._on_asked = on_asked

    async def respond(self, request: ModelRequest) -> ModelResponse:
        self._on_asked()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True
        return ModelResponse()


async def test_a_cancellation_ends_the_critic_and_the_step_is_kept() -> None:
    cancellation = Cancellation()
    critic = Silent(cancellation.request)
    state = await agent_with(["a"], critic).run("Go", cancellation=cancellation)

    assert critic.ended
    assert (state.status, reason_of(state)) == (AgentStatus.CANCELLED, StopReason.USER_REQUESTED)
    assert state.final_response == "a"
    assert "hook SelfCritique was running" in state.explain()
    assert "critique" not in state.metadata


async def test_a_cancellation_that_came_with_the_answer_lets_nobody_be_asked() -> None:
    cancellation = Cancellation()
    critic = critic_saying(rejected("No."))

    def answer(request: ModelRequest) -> str:
        cancellation.request()
        return "a"

    agent = Agent(ScriptedModel(answer), capabilities=[UseSelfCritique(model=critic)])
    await agent.run("Go", cancellation=cancellation)

    assert critic.requests == []


async def test_the_deadline_of_the_run_ends_the_critic() -> None:
    critic = Silent()
    state = await agent_with(["a"], critic, timeout=0.5).run("Go")

    assert critic.ended
    assert reason_of(state) is StopReason.TIME_LIMIT


async def test_b223_a_critic_that_takes_too_long_lets_the_answer_pass() -> None:
    critic = Silent()
    use = UseSelfCritique(model=critic, timeout=0.01)
    state = await Agent(ScriptedModel(["a"]), capabilities=[use]).run("Go")

    assert critic.ended
    assert state.status is AgentStatus.COMPLETED
    assert "no answer within 0.01 s" in state.metadata["critique"]["failure"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionError("gone"), "ConnectionError: gone"),
        (TimeoutError(), "TimeoutError"),
        (KeyError("choices"), "KeyError: 'choices'"),
    ],
)
async def test_b223_whatever_a_critic_raises_lets_the_answer_pass(
    error: Exception, told: str
) -> None:
    state = await agent_with(["Four."], critic_saying("Well.", error)).run("Go")

    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "Four.")
    assert state.had_errors is False
    assert state.metadata["critique"]["approved"] is True
    assert state.metadata["critique"]["failure"] == f"the critic failed: {told}"
    assert state.usage.total_tokens == 15 * 2


async def test_a_mistake_in_a_recording_of_the_critic_does_not_pass_for_its_failure() -> None:
    mistake = StepwellError("the cassette has no turn for this request")
    state = await agent_with(["Four."], critic_saying(mistake)).run("Go")

    assert state.status is AgentStatus.FAILED
    assert "the cassette has no turn" in state.explain()


async def test_a_critic_that_cancels_its_own_call_lets_the_answer_pass() -> None:
    def give_up() -> None:
        raise asyncio.CancelledError

    state = await agent_with(["a"], Silent(give_up)).run("Go")

    assert state.status is AgentStatus.COMPLETED
    assert "cancelled its own call" in state.metadata["critique"]["failure"]


async def test_runs_that_overlap_share_nothing() -> None:
    def verdict(request: ModelRequest) -> str:
        return APPROVED if "better" in request.messages[-1].text else rejected("No.")

    def answer(request: ModelRequest) -> str:
        return "better" if len(request.messages) > 1 else "bad"

    use = UseSelfCritique(2, model=ScriptedModel(verdict))
    agent = Agent(ScriptedModel(answer), capabilities=[use])
    states = await asyncio.gather(*(agent.run(f"Go {n}") for n in range(5)))

    assert [state.final_response for state in states] == ["better"] * 5
    assert [state.step_count for state in states] == [2] * 5


async def test_an_empty_answer_is_judged_as_well() -> None:
    critic = critic_saying(rejected("It is empty."), APPROVED)
    state = await agent_with([ModelResponse(), "Four."], critic).run("Go")

    assert state.final_response == "Four."

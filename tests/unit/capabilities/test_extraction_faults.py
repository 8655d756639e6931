"""``extract_data`` when models fail, budgets end, and runs are cancelled."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Cancellation,
    ErrorPolicy,
    ModelError,
    ModelRequest,
    ModelResponse,
    StopReason,
    Usage,
)
from stepwell.capabilities.extraction import StructuredOutputPolicy, UseStructuredOutputs
from stepwell.errors import ErrorType
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import ScriptedModel, call

ASKED = Usage(input_tokens=100, output_tokens=50)
GOOD = '{"result": ["Ada"]}'


def helper_saying(*turns: Any) -> ScriptedModel:
    return ScriptedModel(turns, name="helper", usage=ASKED, cost=0.5)


def agent_with(helper: Any, policy: StructuredOutputPolicy | None = None, **agent: Any) -> Agent:
    own = ScriptedModel([call("extract_data", id="c1", input="Ada", schema="names"), "done"])
    use = UseStructuredOutputs({"names": list[str]}, policy, model=helper)
    return Agent(own, capabilities=[use], **agent)


def execution_of(state: AgentState) -> ToolExecution:
    return state.steps[0].step.tool_executions[0]


@pytest.mark.parametrize("kind", ["refusal", "content_filter", "context_too_long"])
async def test_what_another_text_avoids_is_a_failure_that_the_agent_sees(kind: str) -> None:
    error = ModelError("I won't.", kind=kind, usage=ASKED, cost=0.5)
    state = await agent_with(helper_saying("no", error)).run("Go")
    execution = execution_of(state)

    assert execution.outcome is ToolOutcome.FAILED
    assert execution.text == "Error: the model gave no answer: I won't."
    assert (execution.usage.total_tokens, execution.cost) == (300, 1.0)
    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, False)


async def test_other_faults_are_judged_by_the_error_policy_and_all_tries_are_paid() -> None:
    error = ModelError("429", kind="rate_limit", retry_after=3.0, usage=ASKED, cost=0.5)
    state = await agent_with(helper_saying("no", error), model_retries=0).run("Go")
    execution = execution_of(state)

    assert (state.status, execution.outcome) == (AgentStatus.FAILED, ToolOutcome.RAISED)
    assert execution.error is not None
    assert execution.error.type is ErrorType.RATE_LIMIT
    assert (execution.usage.total_tokens, execution.cost) == (300, 1.0)
    assert "429" in execution.text


async def test_a_policy_that_ignores_tool_errors_goes_on() -> None:
    agent = agent_with(helper_saying(ModelError("down")), error_policy=ErrorPolicy.retry_all(3))
    state = await agent.run("Go")

    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "done")


async def test_what_is_no_response_is_a_fault_of_the_model() -> None:
    class Odd:
        name = "odd"

        async def respond(self, request: ModelRequest) -> Any:
            return "fine"

    execution = execution_of(await agent_with(Odd()).run("Go"))

    assert execution.outcome is ToolOutcome.RAISED
    assert "model odd returned a str" in execution.text


@pytest.mark.parametrize(("budget", "sent"), [(1000, 1000), (100_000, None), (None, None)])
async def test_an_answer_is_bounded_by_the_tokens_that_are_left(
    budget: int | None, sent: int | None
) -> None:
    helper = helper_saying("no", GOOD)
    await agent_with(helper, max_tokens=budget).run("Go")

    less = None if sent is None else sent - 150
    assert [request.settings.max_tokens for request in helper.requests] == [sent, less]


async def test_the_model_knows_how_long_it_may_take() -> None:
    helper = helper_saying(GOOD)
    await agent_with(helper, StructuredOutputPolicy(timeout=30.0), timeout=60).run("Go")
    assert helper.requests[0].seconds_left == 30.0

    helper = helper_saying(GOOD)
    await agent_with(helper, StructuredOutputPolicy(timeout=None), timeout=60).run("Go")
    assert 50 < (helper.requests[0].seconds_left or 0) <= 60


@pytest.mark.parametrize("limits", [{"max_tokens": 300}, {"max_cost": 1.0}])
async def test_no_more_is_asked_once_the_budget_is_used_up(limits: dict[str, Any]) -> None:
    helper = helper_saying(*["no"] * 9)
    state = await agent_with(helper, **limits).run("Go")
    execution = execution_of(state)

    assert len(helper.requests) == 2
    assert execution.outcome is ToolOutcome.FAILED
    assert "the budget of the run is used up; the last one: Invalid JSON" in execution.text
    assert (execution.usage.total_tokens, execution.cost) == (300, 1.0)
    assert state.status is AgentStatus.STOPPED


class Silent:
    """Answers with the turns it is given, then never again."""

    name = "silent"

    def __init__(self, *turns: ModelResponse, on_asked: Callable[[], None] = lambda: None) -> None:
        self.ended = False
        self._turns = list(turns)
        self._on_asked = on_asked

    async def respond(self, request: ModelRequest) -> ModelResponse:
        if self._turns:
            return self._turns.pop(0)
        self._on_asked()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended = True
        return ModelResponse()


async def test_a_cancellation_of_the_run_ends_the_question() -> None:
    cancellation = Cancellation()
    helper = Silent(on_asked=cancellation.request)
    state = await agent_with(helper).run("Go", cancellation=cancellation)

    assert helper.ended
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.USER_REQUESTED
    assert execution_of(state).outcome is ToolOutcome.CANCELLED


async def test_the_deadline_of_the_run_ends_the_question() -> None:
    helper = Silent()
    state = await agent_with(helper, timeout=0.5).run("Go")

    assert helper.ended
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.TIME_LIMIT


async def test_a_try_that_takes_too_long_is_a_timeout_that_keeps_what_was_spent() -> None:
    helper = Silent(ModelResponse(text="no", usage=ASKED, cost=0.5))
    state = await agent_with(helper, StructuredOutputPolicy(timeout=0.01)).run("Go")
    execution = execution_of(state)

    assert helper.ended
    assert execution.error is not None
    assert execution.error.type is ErrorType.TIMEOUT
    assert "no answer within 0.01 s" in execution.text
    assert (execution.usage, execution.cost) == (ASKED, 0.5)


async def test_a_model_that_cancels_its_own_call_has_failed() -> None:
    def give_up() -> None:
        raise asyncio.CancelledError

    execution = execution_of(await agent_with(Silent(on_asked=give_up)).run("Go"))

    assert "cancelled its own call" in execution.text


async def test_calls_of_one_response_run_beside_each_other() -> None:
    def answer(request: ModelRequest) -> str:
        return f'{{"result": ["{request.messages[0].text.splitlines()[1]}"]}}'

    names = ["Ada", "Bo", "Cy"]
    calls = [call("extract_data", input=name, schema="names", store_as=name) for name in names]
    use = UseStructuredOutputs({"names": list[str]}, model=ScriptedModel(answer))
    agent = Agent(ScriptedModel([calls, "done"]), capabilities=[use])
    state = await agent.run("Go")

    assert state.metadata == {name: [name] for name in names}

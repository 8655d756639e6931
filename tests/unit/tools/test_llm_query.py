"""An agent asks a model one question, apart from its own conversation."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Cancellation,
    ConfigurationError,
    ErrorPolicy,
    FinishReason,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    StopReason,
    Usage,
)
from stepwell.errors import ErrorType, InvalidToolError
from stepwell.models import ModelPresets
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import FakeClock, ScriptedModel, call
from stepwell.tools import LlmQueryTool, ToolEffect

ASKED = Usage(input_tokens=100, output_tokens=50)


def answering(turn: Any, **facts: Any) -> ScriptedModel:
    return ScriptedModel([turn], name="helper", usage=ASKED, cost=0.5, **facts)


async def run_asking(
    helper: Any, prompt: str = "Capital of France?", *, agent: Any = None, **tool: Any
) -> AgentState:
    own = ScriptedModel([call("llm_query", id="c1", prompt=prompt), "done"], cost=0.25)
    return await Agent(
        own, tools=[LlmQueryTool(helper, **tool)], model_retries=0, **(agent or {})
    ).run("Go")


def execution_of(state: AgentState) -> ToolExecution:
    return state.steps[0].step.tool_executions[0]


async def test_the_answer_is_the_result_and_its_usage_and_cost_count_into_the_run() -> None:
    state = await run_asking(answering("Paris."))
    execution = execution_of(state)

    assert (execution.outcome, execution.text) == (ToolOutcome.COMPLETED, "Paris.")
    assert (execution.usage, execution.cost) == (ASKED, 0.5)
    assert state.usage.total_tokens == 150 + 2 * 15
    assert state.cost == 1.0


async def test_the_model_sees_the_system_prompt_and_the_question_and_nothing_else() -> None:
    helper = answering("Paris.")
    settings = ModelSettings(temperature=0.0)
    await run_asking(helper, system_prompt="One word.", settings=settings)
    request = helper.requests[0]

    assert [(m.role, m.text) for m in request.context.messages] == [("system", "One word.")]
    assert [(m.role, m.text) for m in request.messages] == [("user", "Capital of France?")]
    assert (request.tools, request.settings) == ((), settings)


async def test_without_a_system_prompt_there_is_none() -> None:
    helper = answering("Paris.")
    await run_asking(helper)

    assert helper.requests[0].context.messages == ()


def test_the_model_is_told_what_to_write_and_nothing_of_the_context() -> None:
    schema = LlmQueryTool(answering("")).schema

    assert schema.name == "llm_query"
    assert "sees nothing of this conversation" in schema.description
    assert schema.parameters["required"] == ["prompt"]
    assert list(schema.parameters["properties"]) == ["prompt"]
    assert "whole question" in schema.parameters["properties"]["prompt"]["description"]


def test_name_description_and_timeout_can_be_chosen() -> None:
    tool = LlmQueryTool(answering(""), name="ask", description="Ask.", timeout=3.0)

    assert (tool.schema.name, tool.schema.description, tool.timeout) == ("ask", "Ask.", 3.0)
    assert LlmQueryTool(answering(""), timeout=None).timeout is None


def test_asking_again_after_a_crash_is_allowed() -> None:
    assert LlmQueryTool(answering("")).effect is ToolEffect.IDEMPOTENT


def test_a_model_can_be_given_by_its_name() -> None:
    assert LlmQueryTool("ollama:qwen3").schema.name == "llm_query"
    with pytest.raises(ConfigurationError, match="no-such-provider"):
        LlmQueryTool("no-such-provider:x")


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(InvalidToolError, match=r"42 has no respond\(\)"):
        LlmQueryTool(42)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", ["", " \n"])
async def test_an_empty_prompt_is_a_failure_that_asks_nobody(prompt: str) -> None:
    helper = answering("Paris.")
    state = await run_asking(helper, prompt=prompt)

    assert execution_of(state).outcome is ToolOutcome.FAILED
    assert "the prompt is empty" in execution_of(state).text
    assert (helper.requests, state.status) == ([], AgentStatus.COMPLETED)


async def test_a_missing_prompt_is_an_error_of_the_call() -> None:
    own = ScriptedModel([call("llm_query"), "done"])
    state = await Agent(own, tools=[LlmQueryTool(answering("Paris."))]).run("Go")

    assert execution_of(state).outcome is ToolOutcome.INVALID


@pytest.mark.parametrize("kind", ["refusal", "content_filter", "context_too_long"])
async def test_what_another_prompt_would_avoid_is_a_failure_for_the_asking_model(kind: str) -> None:
    state = await run_asking(answering(ModelError("not that", kind=kind)))
    execution = execution_of(state)

    assert (execution.outcome, execution.error) == (ToolOutcome.FAILED, None)
    assert execution.text == "Error: the model gave no answer: not that"
    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, False)


async def test_any_other_failure_of_the_model_is_an_error_that_the_policy_judges() -> None:
    busy = ModelError("429", kind="rate_limit", retry_after=2.0)
    state = await run_asking(answering(busy))
    execution = execution_of(state)

    assert (execution.outcome, state.status) == (ToolOutcome.RAISED, AgentStatus.FAILED)
    assert execution.error is not None
    assert execution.error.type is ErrorType.RATE_LIMIT
    assert (execution.error.kind, execution.error.retry_after) == ("rate_limit", 2.0)


async def test_under_a_policy_that_retries_the_asking_model_sees_the_error_and_goes_on() -> None:
    agent = {"error_policy": ErrorPolicy.retry_all(3), "clock": FakeClock()}
    state = await run_asking(answering(ModelError("cut", kind="disconnected")), agent=agent)

    assert (state.status, state.final_response) == (AgentStatus.COMPLETED, "done")
    assert "ModelError: cut" in execution_of(state).text


async def test_what_a_failed_turn_was_charged_for_counts_into_the_run() -> None:
    paid = ModelError("cut", kind="disconnected", usage=ASKED, cost=0.5)
    agent = {"error_policy": ErrorPolicy.retry_all(3), "clock": FakeClock()}
    state = await run_asking(answering(paid), agent=agent)

    assert state.usage.total_tokens == 150 + 2 * 15
    assert state.cost == 1.0


async def test_what_a_refusal_was_charged_for_counts_into_the_run() -> None:
    paid = ModelError("not that", kind="refusal", usage=ASKED, cost=0.5)
    state = await run_asking(answering(paid))

    assert execution_of(state).outcome is ToolOutcome.FAILED
    assert state.usage.total_tokens == 150 + 2 * 15
    assert state.cost == 1.0


@pytest.mark.parametrize(
    ("text", "reason", "shown"),
    [
        ("Par", FinishReason.LENGTH, "Par\n\n(Cut off at the token limit.)"),
        ("", FinishReason.LENGTH, "(The answer has no text: its token limit was reached.)"),
        (" ", FinishReason.STOP, "(The answer has no text.)"),
    ],
)
async def test_an_answer_that_is_not_whole_says_so(
    text: str, reason: FinishReason, shown: str
) -> None:
    turn = ModelResponse(text=text, finish_reason=reason, usage=ASKED, cost=0.5)
    execution = execution_of(await run_asking(answering(turn)))

    assert (execution.text, execution.usage) == (shown, ASKED)


@pytest.mark.parametrize(
    ("budget", "own", "sent"),
    [
        (None, None, None),
        (None, 300, 300),
        (1000, None, 1000),
        (1000, 300, 300),
        (1000, 5000, 1000),
        (100_000, None, None),
    ],
)
async def test_the_answer_is_bounded_by_the_tokens_that_are_left(
    budget: int | None, own: int | None, sent: int | None
) -> None:
    helper = answering("Paris.")
    await run_asking(helper, settings=ModelSettings(max_tokens=own), agent={"max_tokens": budget})

    assert helper.requests[0].settings.max_tokens == sent


async def test_the_model_knows_how_long_it_may_take() -> None:
    helper = answering("Paris.")
    await run_asking(helper, timeout=30.0, agent={"timeout": 60})
    assert helper.requests[0].seconds_left == 30.0

    helper = answering("Paris.")
    await run_asking(helper, timeout=None, agent={"timeout": 60})
    assert 50 < (helper.requests[0].seconds_left or 0) <= 60


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

    def stream(self, request: ModelRequest) -> Any:
        raise NotImplementedError


async def test_a_cancellation_of_the_run_ends_the_question() -> None:
    cancellation = Cancellation()
    helper = Silent(cancellation.request)
    own = ScriptedModel([call("llm_query", prompt="Hm?"), "done"])
    agent = Agent(own, tools=[LlmQueryTool(helper)])
    state = await agent.run("Go", cancellation=cancellation)

    assert helper.ended
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.USER_REQUESTED


async def test_it_knows_the_presets_it_is_given() -> None:
    presets = ModelPresets({"fast": lambda: ScriptedModel(["Paris."])})

    state = await run_asking("fast", model_presets=presets)

    assert execution_of(state).text == "Paris."

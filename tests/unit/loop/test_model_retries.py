"""A model turn that failed before any output is asked again; only then the error policy applies."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentStatus,
    Cancellation,
    ConfigurationError,
    ErrorPolicy,
    FallbackModel,
    ModelError,
    StopReason,
)
from stepwell.events import InferenceRetryScheduled, StreamEventReceived
from stepwell.messages import Usage
from stepwell.models import (
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    RetryingModel,
    StreamPart,
    TextDelta,
)
from stepwell.testing import EventRecorder, FakeClock, ScriptedModel


def busy(**facts: Any) -> ModelError:
    return ModelError("429 from acme", **{"kind": "rate_limit", **facts})


def agent_of(turns: Sequence[Any], **options: Any) -> tuple[Agent, FakeClock, EventRecorder]:
    clock, recorder = FakeClock(), EventRecorder()
    agent = Agent(ScriptedModel(turns, name="acme"), clock=clock, **options)
    agent.wiretap(recorder)
    return agent, clock, recorder


@pytest.mark.parametrize(
    "facts",
    [
        {"kind": "rate_limit"},
        {"kind": "overloaded", "status": 503},
        {"kind": "overloaded", "status": 529},
        {"kind": "timeout"},
        {"kind": "connect"},
        {"kind": "disconnected"},
        {"kind": "incomplete_stream"},
        {"kind": None, "status": 429},
        {"kind": None, "error_type": "timeout"},
    ],
)
async def test_a_fault_that_passes_is_retried_twice(facts: dict[str, Any]) -> None:
    agent, clock, recorder = agent_of([busy(**facts), busy(**facts), "Paris."])

    state = await agent.run("Capital of France?")

    assert state.final_response == "Paris."
    assert (state.step_count, state.had_errors) == (1, False)
    assert len(clock.slept) == 2
    assert 0 < clock.slept[0] <= 0.5 < clock.slept[1] <= 1.0
    told = recorder.of(InferenceRetryScheduled)
    assert [(event.attempt, event.max_attempts) for event in told] == [(2, 3), (3, 3)]
    assert [event.delay_seconds for event in told] == clock.slept
    assert {(event.model, event.step_number) for event in told} == {("acme", 1)}


@pytest.mark.parametrize(
    "facts",
    [
        {"kind": "quota"},
        {"kind": "authentication"},
        {"kind": "context_too_long"},
        {"kind": "refusal"},
        {"kind": "malformed_response"},
        {"kind": "rate_limit", "retryable": False},
    ],
)
async def test_other_faults_are_not_retried(facts: dict[str, Any]) -> None:
    agent, clock, recorder = agent_of([busy(**facts), "Paris."])

    state = await agent.run("Capital of France?")

    assert state.status is AgentStatus.FAILED
    assert clock.slept == []
    assert recorder.of(InferenceRetryScheduled) == []


async def test_after_the_last_retry_the_error_policy_applies() -> None:
    agent, clock, _ = agent_of(
        [busy(), busy(), busy(), "Paris."], error_policy=ErrorPolicy.retry_all(3)
    )

    state = await agent.run("Capital of France?")

    assert state.final_response == "Paris."
    assert state.steps[0].step.errors[0].message == "429 from acme (gave up after 3 attempts)"
    assert len(clock.slept) == 3  # the third is the policy's own


async def test_retry_after_is_honoured() -> None:
    agent, clock, _ = agent_of([busy(retry_after=7.0), busy(retry_after=0.0), "Paris."])

    await agent.run("Capital of France?")

    assert clock.slept == [7.0, 0.0]


async def test_a_wait_behind_the_deadline_is_not_begun() -> None:
    agent, clock, recorder = agent_of([busy(retry_after=30.0), "Paris."], timeout=20.0)

    state = await agent.run("Capital of France?")

    assert state.status is AgentStatus.FAILED
    assert clock.slept == []
    assert recorder.of(InferenceRetryScheduled) == []
    error = state.steps[0].step.errors[0].message
    assert "gave up after 1 attempt: the next would have to wait 30.0 s" in error


async def test_a_wait_of_minutes_is_left_to_the_error_policy() -> None:
    agent, clock, _ = agent_of([busy(retry_after=3600.0), "Paris."], timeout=None)

    state = await agent.run("Capital of France?")

    assert state.status is AgentStatus.FAILED
    assert clock.slept == []
    assert "asks to wait longer than 60 s" in state.steps[0].step.errors[0].message


async def test_no_retries_can_be_chosen() -> None:
    built = AgentBuilder.base().with_model(ScriptedModel([busy(), "Paris."]))
    for agent in (
        agent_of([busy(), "Paris."], model_retries=0)[0],
        built.with_model_retries(0).build(),
        Agent(RetryingModel(ScriptedModel([busy(), "Paris."]), max_retries=0)),
    ):
        state = await agent.run("Capital of France?")
        assert state.steps[0].step.errors[0].message == "429 from acme"

    with pytest.raises(ConfigurationError, match="model_retries must be 0 or more"):
        Agent(ScriptedModel([]), model_retries=-1)


async def test_retries_of_a_model_are_not_multiplied() -> None:
    clock = FakeClock()
    scripted = ScriptedModel([busy(), busy(), "Paris."])
    agent = Agent(RetryingModel(scripted, max_retries=1, clock=clock), clock=clock)

    state = await agent.run("Capital of France?")

    assert state.status is AgentStatus.FAILED
    assert len(clock.slept) == 1


async def test_a_fallback_comes_before_a_retry() -> None:
    clock = FakeClock()
    first = ScriptedModel([busy(), "Paris, after all."], name="first")
    second = ScriptedModel([busy(retry_after=2.0)], name="second")
    agent = Agent(FallbackModel(first, second), clock=clock)

    state = await agent.run("Capital of France?")

    assert state.final_response == "Paris, after all."
    assert clock.slept == [2.0]


async def test_what_failed_attempts_cost_counts() -> None:
    paid = busy(usage=Usage(input_tokens=10), cost=0.5)
    agent, _, _ = agent_of([paid, "Paris."])

    state = await agent.run("Capital of France?")

    assert state.cost == 0.5
    assert state.usage.input_tokens >= 10


class Streaming:
    """A model whose first stream breaks behind these parts."""

    name = "acme"

    def __init__(self, *parts: StreamPart) -> None:
        self._parts = parts
        self.asked = 0

    async def respond(self, request: ModelRequest) -> ModelResponse:
        raise AssertionError("it is streamed")

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        self.asked += 1
        if self.asked == 1:
            for part in self._parts:
                yield part
            raise ModelError("broken", kind="disconnected")
        yield TextDelta("Paris.")
        yield ResponseEnd(ModelResponse(text="Paris."))


@pytest.mark.parametrize(("parts", "asked"), [((), 2), ((TextDelta("Pa"),), 1)])
async def test_nothing_is_retried_after_output(parts: tuple[StreamPart, ...], asked: int) -> None:
    model = Streaming(*parts)
    agent = Agent(model, clock=FakeClock())
    agent.on_event(StreamEventReceived, lambda event: None)

    state = await agent.run("Capital of France?")

    assert model.asked == asked
    assert state.status is (AgentStatus.COMPLETED if asked == 2 else AgentStatus.FAILED)


async def test_a_cancellation_ends_the_wait() -> None:
    cancellation = Cancellation()
    agent = Agent(ScriptedModel([busy(retry_after=50.0), "Paris."]))
    agent.on_event(InferenceRetryScheduled, lambda event: cancellation.request("enough"))

    state = await agent.run("Capital of France?", cancellation=cancellation)

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.USER_REQUESTED

"""Which model is told: who was asked, who answered, and every turn that is paid for."""

import asyncio
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from stepwell import (
    Agent,
    AgentStatus,
    ErrorPolicy,
    FallbackModel,
    ModelError,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    Usage,
)
from stepwell.capabilities.telemetry.model_names import provider_and_model
from stepwell.drivers import inference
from stepwell.errors import ModelErrorKind
from stepwell.models import RetryingModel
from stepwell.models.model import ModelTurn
from stepwell.state import ToolOutcome
from stepwell.testing import ScriptedModel, call
from stepwell.tools import LlmQueryTool
from tests.unit.capabilities.telemetry.recording import Recorded

PAID = Usage(input_tokens=5, output_tokens=3)
BUSY = ModelError("busy", kind=ModelErrorKind.OVERLOADED, usage=Usage(input_tokens=2))


def asking(recorded: Recorded, helper: Any, *, content: bool = False, **parts: Any) -> Agent:
    """Asks the helper a question with a tool, then answers."""
    own = ScriptedModel([call("llm_query", id="c1", prompt="Capital?"), "Done."], name="acme:own")
    tool = LlmQueryTool(helper, timeout=parts.pop("timeout", 120.0))
    return Agent(own, tools=[tool], capabilities=[recorded.capability(content=content)], **parts)


async def test_a_question_of_a_tool_is_a_turn_inside_the_call() -> None:
    recorded = Recorded()
    helper = ScriptedModel(["Paris."], name="openai:small", usage=PAID)
    state = await asking(recorded, helper).run("Go")
    assert ("chat small", "execute_tool llm_query") in recorded.parents()
    told = recorded.told("chat small")
    assert told["gen_ai.provider.name"] == "openai"
    assert told["stepwell.step.number"] == 1
    assert "gen_ai.output.messages" not in told
    chats = [span for span in recorded.spans if span.name.startswith("chat")]
    turned = sum((chat.attributes or {})["gen_ai.usage.input_tokens"] for chat in chats)
    run = recorded.told("invoke_agent helper")
    assert turned == run["gen_ai.usage.input_tokens"] == state.usage.input_tokens == 25
    assert run["gen_ai.request.model"] == "own"  # of the agent, not of its tool
    tokens = {
        about["gen_ai.request.model"]: count
        for about, count in recorded.points("gen_ai.client.token.usage")
        if about["gen_ai.token.type"] == "input"
    }
    assert tokens == {"own": 20, "small": 5}
    lasted = recorded.points("gen_ai.client.operation.duration")
    assert {about["gen_ai.request.model"] for about, _ in lasted} == {"own", "small"}


async def test_with_content_the_question_and_its_answer_are_told() -> None:
    recorded = Recorded()
    helper = ScriptedModel(["Paris."], name="openai:small")
    await asking(recorded, helper, content=True).run("Go")
    told = recorded.told("chat small")
    assert "Capital?" in told["gen_ai.input.messages"]
    assert "Paris." in told["gen_ai.output.messages"]


async def test_a_question_that_fails_is_an_error_of_its_turn_with_what_it_cost() -> None:
    recorded = Recorded()
    helper = ScriptedModel(
        [ModelError("no", kind=ModelErrorKind.REFUSAL, usage=PAID)], name="openai:small"
    )
    state = await asking(recorded, helper).run("Go")
    assert state.status is AgentStatus.COMPLETED
    told = recorded.told("chat small")
    assert (told["error.type"], told["gen_ai.usage.input_tokens"]) == ("refusal", 5)
    assert recorded.one("chat small").status.status_code is StatusCode.ERROR
    assert recorded.told("execute_tool llm_query")["stepwell.tool.outcome"] == "failed"


class Odd:
    """Answers with whatever is given, or ends as it likes."""

    def __init__(self, answer: Any) -> None:
        self.name = "acme:odd"
        self._answer = answer

    async def respond(self, request: ModelRequest) -> ModelResponse:
        if isinstance(self._answer, BaseException):
            raise self._answer
        if self._answer is None:
            await asyncio.Event().wait()
        return self._answer

    def stream(self, request: ModelRequest) -> Any:
        raise NotImplementedError


async def test_a_question_that_takes_too_long_ends_its_turn() -> None:
    recorded = Recorded()
    retrying = ErrorPolicy.retry_all(3)
    agent = asking(recorded, Odd(None), timeout=0.001, error_policy=retrying)
    state = await agent.run("Go")
    assert state.status is AgentStatus.COMPLETED
    assert recorded.told("execute_tool llm_query")["error.type"] == "timeout"
    assert recorded.one("chat odd").status.status_code is StatusCode.ERROR
    assert not recorded.opened.open


@pytest.mark.parametrize(
    ("answer", "said"),
    [("Paris.", "model acme:odd returned a str"), (asyncio.CancelledError(), "cancelled its own")],
)
async def test_a_helper_that_is_no_sound_model_is_named(answer: Any, said: str) -> None:
    state = await asking(Recorded(), Odd(answer)).run("Go")
    execution = state.steps[0].step.tool_executions[0]
    assert execution.outcome is ToolOutcome.RAISED
    assert said in execution.text


async def responding(recorded: Recorded, model: Any) -> dict[str, Any]:
    agent = Agent(model, capabilities=[recorded.capability()])
    assert (await agent.run("Go")).status is AgentStatus.COMPLETED
    (chat,) = [span for span in recorded.spans if span.name.startswith("chat")]
    return dict(chat.attributes or {})


def named(model: str, answered: str | None = None) -> ScriptedModel:
    return ScriptedModel([ModelResponse(text="Hi.", model=answered, usage=PAID)], name=model)


@pytest.mark.parametrize(
    ("name", "answered", "told"),
    [
        ("ollama:qwen3:8b", "qwen3:8b", "qwen3:8b"),
        ("openai:ft:gpt-4o-mini:acme::x", "ft:gpt-4o-mini:acme::x", "ft:gpt-4o-mini:acme::x"),
        ("openai:gpt-5", "gpt-5-2026-01-01", "gpt-5-2026-01-01"),
        ("openai:gpt-5", "openai:gpt-5", "gpt-5"),
        ("openai:gpt-5", None, "gpt-5"),
        ("my model", "a:b", "a:b"),
    ],
)
async def test_the_model_that_answered_keeps_its_whole_name(
    name: str, answered: str | None, told: str
) -> None:
    recorded = Recorded()
    assert (await responding(recorded, named(name, answered)))["gen_ai.response.model"] == told


async def test_a_model_behind_retries_is_told_without_its_provider() -> None:
    told = await responding(Recorded(), RetryingModel(named("ollama:qwen3:8b")))
    assert told["gen_ai.response.model"] == "qwen3:8b"
    assert told["gen_ai.provider.name"] == "ollama"


@pytest.mark.parametrize(
    ("first", "second", "provider", "model"),
    [
        (named("openai:a"), named("anthropic:b"), "openai", "a"),
        (BUSY, named("anthropic:b"), "anthropic", "b"),
        (BUSY, named("gemini:b", "b"), "gcp.gemini", "b"),
        (BUSY, named("anthropic:b", "b-20260101"), "anthropic", "b-20260101"),
        (BUSY, named("ollama:qwen3:8b", "qwen3:8b"), "ollama", "qwen3:8b"),
        (BUSY, named("ollama:qwen3", "qwen3:latest"), "ollama", "qwen3:latest"),
        (BUSY, named("openai:b", "by another name"), "openai", "by another name"),
        (BUSY, named("anthropic:b", "by another name"), "custom", "by another name"),
        (BUSY, FallbackModel(named("xai:c")), "x_ai", "c"),
        (BUSY, named("my own"), "custom", "my own"),
    ],
)
async def test_of_a_fallback_is_told_who_answered(
    first: Any, second: Any, provider: str, model: str
) -> None:
    recorded = Recorded()
    failing = ScriptedModel([first], name="openai:a") if first is BUSY else first
    fallback = FallbackModel(failing, second)
    told = await responding(recorded, fallback)
    assert told["gen_ai.request.model"] == fallback.name
    assert (told["gen_ai.provider.name"], told["gen_ai.response.model"]) == (provider, model)
    assert recorded.told("invoke_agent helper")["gen_ai.provider.name"] == provider
    for metric in ("gen_ai.client.token.usage", "gen_ai.client.operation.duration"):
        for about, _ in recorded.points(metric):
            said = about["gen_ai.provider.name"], about["gen_ai.response.model"]
            assert said == (provider, model)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openai:gpt-5", ("openai", "gpt-5")),
        ("xai:grok-4", ("x_ai", "grok-4")),
        ("ollama:qwen3:8b", ("ollama", "qwen3:8b")),
        ("my model", ("custom", "my model")),
        ("fallback(openai:a, xai:b)", ("custom", "fallback(openai:a, xai:b)")),
    ],
)
def test_provider_and_model_come_from_the_name(name: str, expected: tuple[str, str]) -> None:
    assert provider_and_model(name, ModelSettings()) == expected


async def test_a_run_that_nobody_watches_makes_nothing_for_a_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []

    class Counted(ModelTurn):
        def __post_init__(self) -> None:
            made.append(self.model)

    monkeypatch.setattr(inference, "ModelTurn", Counted)
    await Agent(named("openai:a")).run("Go")
    assert made == []
    await responding(Recorded(), named("openai:a"))
    assert made == ["openai:a"]

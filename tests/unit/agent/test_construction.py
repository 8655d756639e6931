"""Mistakes in putting an agent together are errors at once, and each says what to do."""

from collections.abc import Callable
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    ContinuationCriteria,
    ErrorPolicy,
    HookContext,
    Message,
    make_hook,
)
from stepwell.criteria import ErrorHandling, ToolCallPresenceCheck
from stepwell.errors import ConfigurationError
from stepwell.models import CachedContext
from stepwell.models.provider import Provider
from stepwell.testing import DeterministicAgentDriver, MockTool, ScriptedModel


def agent(**options: Any) -> Agent:
    return Agent(ScriptedModel([]), **options)


def base() -> AgentBuilder:
    return AgentBuilder.base().with_model(ScriptedModel([]))


def ping() -> str:
    """Answer."""
    return "pong"


def unhinted(x) -> str:
    return x


class Capability:
    def configure(self, plan: Any) -> Any:
        return plan


class ForgetfulCapability:
    def configure(self, plan: Any) -> None:
        plan.with_tools(ping)


MISTAKES: list[tuple[str, Callable[[], Any], str]] = [
    (
        "context messages as dicts",
        lambda: CachedContext(messages=[{"role": "system", "content": "Hi"}]),
        r"is not a Message; write Message.system\(text\)",
    ),
    (
        "one context message alone",
        lambda: CachedContext(messages=Message.system("Hi")),
        r"CachedContext needs a list of messages",
    ),
    (
        "a text as context messages",
        lambda: CachedContext(messages="Be brief."),
        r"CachedContext needs a list of messages",
    ),
    ("no model", lambda: Agent(), r"needs a model or a driver: Agent\(model, \.\.\.\)"),
    ("no model, builder", lambda: AgentBuilder.base().build(), r"with_llm_preset\(name\)"),
    ("unknown preset", lambda: Agent("fast"), r"Unknown model preset 'fast'.*Model object"),
    (
        "negative steps",
        lambda: agent(max_steps=-1),
        r"StepsLimit wants a whole number",
    ),
    ("negative tokens", lambda: agent(max_tokens=-1), r"TokenUsageLimit wants a whole number of 0"),
    ("negative cost", lambda: agent(max_cost=-0.5), r"CostLimit wants .* got -0.5"),
    ("no time", lambda: agent(timeout=0), r"ExecutionTimeLimit wants seconds above 0, got 0"),
    ("negative time", lambda: agent(cumulative_timeout=-1), r"Cumulative.* wants seconds above 0"),
    ("time in words", lambda: agent(timeout="60"), r"wants seconds above 0, got '60'"),
    (
        "steps as truth",
        lambda: agent(max_steps=True),
        r"wants a whole number .* got True",
    ),
    ("cost is nan", lambda: agent(max_cost=float("nan")), r"CostLimit wants .* got nan"),
    ("time is nan", lambda: agent(timeout=float("nan")), r"wants seconds above 0, got nan"),
    ("negative retries", lambda: agent(max_retries=-1), r"max_retries must be 0 or more, got -1"),
    ("no parallel call", lambda: agent(max_parallel_tools=0), r"max_parallel must be 1 or more"),
    ("two of a name", lambda: agent(tools=[ping, ping]), r"two tools are called 'ping': .*rename"),
    ("unhinted tool", lambda: agent(tools=[unhinted]), r"has no type hint; write for example"),
    ("tool class", lambda: agent(tools=[MockTool]), r"MockTool is a class; give an instance"),
    ("not a tool", lambda: agent(tools=["search"]), r"'search' is not callable"),
    ("wrong at_limit", lambda: agent(at_limit="explode"), r"'explode'; known: stop, wrap_up, pau"),
    ("wrong at_limit, builder", lambda: base().at_limit("x").build(), r"known: stop, wrap_up"),
    (
        "unknown trigger",
        lambda: make_hook("on_fire", lambda context: None),
        r"unknown hook trigger 'on_fire'; known: before_execution, .*on_error",
    ),
    (
        "unknown trigger, builder",
        lambda: base().add_hook(["before_step", "later"], lambda context: None),
        r"unknown hook trigger 'later'; known: ",
    ),
    ("hook is no function", lambda: make_hook("before_step", 7), r"hook must be callable, got 7"),
    (
        "hook without trigger",
        lambda: agent(hooks=[lambda context: None]),
        r"make_hook\(",
    ),
    (
        "wrong handling word",
        lambda: ErrorPolicy().with_tool_error_handling("explode"),
        r"'explode'.*stop, retry, ignore",
    ),
    (
        "wrong handling word in the constructor",
        lambda: ErrorPolicy(on_tool_error="explode"),
        r"'explode'.*stop, retry, ignore",
    ),
    (
        "wrong kind of error",
        lambda: ErrorPolicy().with_handling("weather", ErrorHandling.STOP),
        r"'weather'.*tool, model, validation",
    ),
    ("policy as a word", lambda: agent(error_policy="retry"), r"'retry'.*ErrorPolicy"),
    ("capability class", lambda: agent(capabilities=[Capability]), r"is a class; give an instance"),
    ("capability as a tool", lambda: agent(tools=[Capability()]), r"is a capability; give it in"),
    ("text as context", lambda: base().plan.with_context_messages("hi"), r"is no message"),
    ("not a capability", lambda: base().with_capability(7), r"7 is not a capability; give an obj"),
    (
        "capability that returns nothing",
        lambda: agent(capabilities=[ForgetfulCapability()]),
        r"ForgetfulCapability.configure returned None; return the changed plan",
    ),
    (
        "not a criterion",
        lambda: agent(criteria=[lambda state: None]),
        r"is not a criterion: .*ContinuationCriteria\.when\(function\)",
    ),
    (
        "criterion class",
        lambda: agent(criteria=[ToolCallPresenceCheck]),
        r"ToolCallPresenceCheck.*give an",
    ),
    ("not a driver", lambda: Agent(driver=7), r"7 is not a driver; it has no use_tools\(state\)"),
    (
        "model and driver",
        lambda: Agent(ScriptedModel([]), driver=DeterministicAgentDriver()),
        r"a model or a driver",
    ),
    ("a provider", lambda: Agent(Provider.compatible("http://localhost/v1")), r"its model\("),
    ("settings", lambda: agent(settings={"temperature": 1}), r"ModelSettings\(temperature"),
    ("response format", lambda: agent(response_format="json"), r"a response format must be a"),
    (
        "driver class",
        lambda: Agent(driver=DeterministicAgentDriver),
        r"DeterministicAgentDriver.*(instance|object)",
    ),
    ("model class", lambda: Agent(ScriptedModel), r"ScriptedModel.*(instance|object)"),
    ("not a model", lambda: Agent(7), r"7 is not a model.*respond"),
    (
        "unknown finish reason",
        lambda: base().with_stop_on_finish_reasons("bored").build(),
        r"bored.*known: stop, tool_calls, length",
    ),
    ("nothing to run", lambda: agent().new_state(""), r"nothing to run: the text is empty"),
]


@pytest.mark.parametrize(
    ("build", "advice"),
    [mistake[1:] for mistake in MISTAKES],
    ids=[mistake[0] for mistake in MISTAKES],
)
def test_a_mistake_is_an_error_at_construction_that_says_what_to_do(
    build: Callable[[], Any], advice: str
) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        build()


@pytest.mark.parametrize("task", [None, 7, ["Hi"], {"text": "Hi"}])
async def test_a_task_of_the_wrong_kind_is_refused_with_advice(task: Any) -> None:
    with pytest.raises(ConfigurationError, match="AgentState"):
        await agent().run(task)


def test_limits_can_be_switched_off_and_zero_steps_is_a_limit() -> None:
    free = agent(max_steps=None, max_tokens=None, timeout=None)
    none = agent(max_steps=0)

    assert (free.plan.max_steps, free.plan.max_tokens, free.plan.timeout) == (None, None, None)
    assert none.plan.max_steps == 0


def test_a_hook_may_be_named_and_is_named_after_its_function_otherwise() -> None:
    def audit(context: HookContext) -> None: ...

    assert make_hook("before_step", audit).name.endswith("audit")
    assert make_hook("before_step", audit, name="mine").name == "mine"


async def test_a_blank_builder_runs_nothing_and_says_why() -> None:
    state = await AgentBuilder.new().with_model(ScriptedModel([])).build().run("Go")

    assert state.step_count == 0
    assert "No criterion is registered" in state.explain()


async def test_a_blank_builder_with_a_criterion_runs() -> None:
    criteria = ContinuationCriteria(ToolCallPresenceCheck())
    builder = AgentBuilder.new().with_model(ScriptedModel(["Hi."]))
    state = await builder.add_continuation_criteria(criteria).build().run("Go")

    assert state.final_response == "Hi."

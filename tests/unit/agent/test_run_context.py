"""Whose run it is: what tools, hooks, criteria and subagents see of it, and when it is missing."""

from typing import Any

import pytest

from stepwell import Agent, ToolContext, tool
from stepwell.capabilities.approvals import UseApprovals
from stepwell.continuation import ContinuationDecision
from stepwell.criteria import ContinuationCriteria, ErrorPolicy
from stepwell.drivers import ReActDriver
from stepwell.errors import ConfigurationError
from stepwell.hooks import ALL_TRIGGERS, HookContext, make_hook
from stepwell.messages import ToolCall
from stepwell.run_context import Principal, RunContext
from stepwell.serialization import AgentStateSerializer
from stepwell.state import AgentState, ToolOutcome
from stepwell.testing import ScriptedModel, call

ADA = Principal(user_id="ada", tenant_id="shop", roles=("customer",))


class Shop:
    """What an application gives to its tools."""

    def __init__(self, name: str) -> None:
        self.name = name


@tool
def who(context: ToolContext[Shop]) -> str:
    """Say who asks."""
    return f"{context.principal.user_id} at {context.deps.name}"


@tool
def whom(principal: Principal) -> str:
    """Say who asks."""
    return principal.user_id


def agent_with(*tools: Any, **options: Any) -> Agent:
    turns = [*(call(tool.schema.name) for tool in tools), "Done."]
    return Agent(ScriptedModel(turns), tools=tools, **options)


def results_of(state: AgentState) -> list[str]:
    return [message.text for message in state.messages if message.is_tool()]


async def test_tools_know_who_asks_and_what_they_were_given() -> None:
    state = await agent_with(who, whom).run("Who?", principal=ADA, deps=Shop("bookshop"))

    assert results_of(state) == ["ada at bookshop", "ada"]


async def test_neither_parameter_is_shown_to_the_model() -> None:
    assert who.schema.parameters["properties"] == {}
    assert whom.schema.parameters["properties"] == {}


@pytest.mark.parametrize("door", ["run", "final_step", "next_step"])
async def test_every_door_takes_them(door: str) -> None:
    state = await getattr(agent_with(whom), door)("Who?", principal=ADA)

    assert results_of(state) == ["ada"]


async def test_iterator_and_stream_take_them() -> None:
    states = [state async for state in agent_with(whom).iterator("Who?", principal=ADA)]
    parts = [part async for part in agent_with(whom).stream("Who?", principal=ADA)]

    assert results_of(states[-1]) == ["ada"]
    assert results_of(parts[-1].state) == ["ada"]  # pyright: ignore[reportAttributeAccessIssue]


def test_callers_without_an_event_loop_give_them_too() -> None:
    agent = agent_with(whom)
    last = list(agent_with(whom).iterator_sync("Who?", principal=ADA))[-1]

    assert results_of(agent.run_sync("Who?", principal=ADA)) == ["ada"]
    assert results_of(last) == ["ada"]
    assert results_of(agent_with(whom).next_step_sync("Who?", principal=ADA)) == ["ada"]
    assert results_of(agent_with(whom).final_step_sync("Who?", principal=ADA)) == ["ada"]


async def test_next_step_keeps_them_for_the_steps_that_follow() -> None:
    whom_again = tool(name="whom_again")(whom.function)
    agent = agent_with(whom, whom_again)
    state = await agent.next_step("Who?", principal=ADA)
    state = await agent.next_step(state)

    assert whom_again.needs.principal
    assert results_of(state) == ["ada", "ada"]


async def test_hooks_and_criteria_see_them_at_every_moment() -> None:
    seen: list[tuple[str, str | None]] = []

    def look(context: HookContext) -> None:
        seen.append((context.trigger, context.principal and context.principal.user_id))

    def vote(state: AgentState) -> ContinuationDecision:
        principal = state.context.principal
        seen.append(("criterion", principal and principal.user_id))
        return ContinuationDecision.ALLOW

    agent = agent_with(
        whom, hooks=[make_hook(ALL_TRIGGERS, look)], criteria=[ContinuationCriteria.when(vote)]
    )
    await agent.run("Who?", principal=ADA)

    assert {name for name, _ in seen} >= {"criterion", "before_execution", "after_execution"}
    assert {user for _, user in seen} == {"ada"}


async def test_a_result_holds_nothing_of_it() -> None:
    state = await agent_with(whom).run("Who?", principal=ADA, deps=Shop("bookshop"))

    assert state.context.principal is None
    assert state.context.deps is None
    assert b"shop" not in AgentStateSerializer().to_json(state)


@pytest.mark.parametrize(
    ("asks", "given", "words"),
    [
        (whom, {}, "takes a Principal"),
        (who, {"principal": ADA}, "has no deps"),
        (who, {"principal": ADA, "deps": 7}, "the deps of this run are a int"),
    ],
)
async def test_what_a_tool_asks_for_and_the_run_lacks_fails_at_the_start(
    asks: Any, given: dict[str, Any], words: str
) -> None:
    model = ScriptedModel(["Never asked."])
    with pytest.raises(ConfigurationError, match=words):
        await Agent(model, tools=[asks]).run("Who?", **given)

    assert model.requests == []


async def test_two_runs_at_once_do_not_see_each_other() -> None:
    import asyncio

    agent = Agent(
        ScriptedModel(lambda request: call("whom") if len(request.messages) == 1 else "Done."),
        tools=[whom],
    )
    people = [Principal(user_id=f"user-{number}") for number in range(20)]
    states = await asyncio.gather(*(agent.run("Who?", principal=person) for person in people))

    assert [results_of(state) for state in states] == [[person.user_id] for person in people]


async def test_a_principal_must_be_one() -> None:
    with pytest.raises(ConfigurationError, match="principal"):
        await agent_with(whom).run("Who?", principal="ada")  # pyright: ignore[reportArgumentType]


# Prompts, visibility and approvals by the context


@tool(visible=lambda context: context.principal.has_role("staff"))
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


STAFF = Principal(user_id="eve", roles=("staff",))


async def test_a_hidden_tool_does_not_exist_for_the_model() -> None:
    model = ScriptedModel([call("refund", order=1), "Done."])
    state = await Agent(model, tools=[refund], error_policy=ErrorPolicy.ignore_tool_errors()).run(
        "Refund!", principal=ADA
    )

    assert model.requests[0].tools == ()
    [execution] = state.steps[0].step.tool_executions
    assert execution.outcome is ToolOutcome.NOT_FOUND
    assert "refund" not in execution.text.replace("'refund'", "")


async def test_who_may_sees_and_runs_it() -> None:
    model = ScriptedModel([call("refund", order=1), "Done."])
    state = await Agent(model, tools=[refund]).run("Refund!", principal=STAFF)

    assert [schema.name for schema in model.requests[0].tools] == ["refund"]
    assert results_of(state) == ["refunded 1"]


async def test_nobody_is_asked_to_approve_a_hidden_tool() -> None:
    agent = Agent(
        ScriptedModel([call("refund", order=1), "Done."]),
        tools=[refund],
        capabilities=[UseApprovals("refund")],
        error_policy=ErrorPolicy.ignore_tool_errors(),
    )

    assert (await agent.run("Refund!", principal=ADA)).pending == ()
    assert (await agent.run("Refund!", principal=STAFF)).pending == ()


async def test_react_explains_only_visible_tools() -> None:
    asked: list[str] = []

    def decide(request: Any) -> str:
        asked.append(request.context.messages[-1].text)
        return '{"thought": "t", "type": "final_answer", "answer": "No."}'

    agent = Agent(driver=ReActDriver(ScriptedModel(decide)), tools=[refund])
    await agent.run("Refund!", principal=ADA)
    await agent.run("Refund!", principal=STAFF)

    assert ["Refund an order" in text for text in asked] == [False, True]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_prompt_may_depend_on_who_asks(is_async: bool) -> None:
    def prompt(context: RunContext[Any]) -> str:
        assert context.principal is not None
        return f"You serve {context.principal.user_id}."

    async def slow_prompt(context: RunContext[Any]) -> str:
        return prompt(context)

    model = ScriptedModel(["Hello."])
    await Agent(model, system_prompt=slow_prompt if is_async else prompt).run("Hi", principal=ADA)

    assert [m.text for m in model.requests[0].context.messages] == ["You serve ada."]


async def test_a_prompt_function_that_returns_no_text_fails_the_run() -> None:
    agent = Agent(ScriptedModel(["Hello."]), system_prompt=lambda context: None)  # pyright: ignore[reportArgumentType]
    state = await agent.run("Hi", principal=ADA)

    assert state.status == "failed"
    assert "return a text" in state.explain()


async def test_an_approval_rule_may_look_at_who_asks() -> None:
    def rule(call: ToolCall, context: RunContext[Any]) -> bool:
        return context.principal is None or not context.principal.has_role("staff")

    def agent() -> Agent:
        model = ScriptedModel([call("whom"), "Done."])
        return Agent(model, tools=[whom], capabilities=[UseApprovals(when=rule)])

    assert len((await agent().run("Who?", principal=ADA)).pending) == 1
    assert (await agent().run("Who?", principal=STAFF)).pending == ()

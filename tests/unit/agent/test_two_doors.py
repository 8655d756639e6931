"""``Agent(...)`` and ``AgentBuilder`` lead to the same plan."""

from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentBuilder,
    AgentState,
    AgentStatus,
    AtLimit,
    ContinuationCriteria,
    ContinuationDecision,
    ErrorPolicy,
    HookContext,
    Message,
    make_hook,
)
from stepwell.agent import AgentPlan
from stepwell.events import EventBus
from stepwell.state import Budget
from stepwell.testing import FakeClock, MockTool, ScriptedModel, SequentialIds, call


class Shout:
    """A capability: one tool, one hook, one line in the prompt."""

    def configure(self, plan: AgentPlan) -> AgentPlan:
        def loud(context: HookContext) -> HookContext:
            return context.with_state(context.state.with_metadata({"loud": True}))

        return (
            plan.with_tools(MockTool.returning("shout", "HEY"))
            .with_hook(make_hook("before_step", loud))
            .with_context_messages(Message.system("You may shout."))
        )


def facts(plan: AgentPlan) -> dict[str, Any]:
    """The fields of a plan, with messages reduced to what they say."""
    fields = {name: getattr(plan, name) for name in plan.__struct_fields__}
    fields["context"] = ([m.text for m in plan.context.messages], plan.context.response_format)
    return fields


def test_the_defaults_of_both_doors_are_the_same() -> None:
    model, bus = ScriptedModel([]), EventBus()
    clock, ids = FakeClock(), SequentialIds()
    by_keyword = Agent(model, events=bus, clock=clock, new_id=ids)
    by_builder = (
        AgentBuilder.base()
        .with_model(model)
        .with_events(bus)
        .with_clock(clock)
        .with_ids(ids)
        .build()
    )

    assert facts(by_keyword.plan) == facts(by_builder.plan)
    assert by_keyword.plan.max_steps == 20
    assert by_keyword.plan.effective_error_policy == ErrorPolicy.stop_on_any_error()


def test_everything_said_at_both_doors_makes_the_same_plan() -> None:
    model, bus, clock, ids = ScriptedModel([]), EventBus(), FakeClock(), SequentialIds()
    tool, policy = MockTool.returning("add", 3), ErrorPolicy.retry_all(5)
    hook = make_hook("before_step", lambda context: None, priority=5, name="mine")
    criterion = ContinuationCriteria.when(lambda state: ContinuationDecision.ALLOW)
    by_keyword = Agent(
        model,
        tools=[tool],
        system_prompt="Be kind.",
        max_steps=7,
        max_tokens=900,
        max_cost=1.5,
        cumulative_timeout=60,
        error_policy=policy,
        max_retries=2,
        at_limit="pause",
        criteria=[criterion],
        hooks=[hook],
        events=bus,
        max_parallel_tools=3,
        clock=clock,
        new_id=ids,
    )
    by_builder = (
        AgentBuilder.base()
        .with_model(model)
        .with_tools(tool)
        .with_system_prompt("Be kind.")
        .with_max_steps(7)
        .with_max_tokens(900)
        .with_max_cost(1.5)
        .with_cumulative_timeout(60)
        .with_error_policy(policy)
        .with_max_retries(2)
        .at_limit(AtLimit.PAUSE)
        .add_continuation_criteria(criterion)
        .add_hook("before_step", hook.function, priority=5, name="mine")
        .with_events(bus)
        .with_max_parallel_tools(3)
        .with_clock(clock)
        .with_ids(ids)
        .build()
    )
    one, other = facts(by_keyword.plan), facts(by_builder.plan)
    [its_hook] = other.pop("hooks")
    one.pop("hooks")

    assert one == other
    assert (its_hook.function, its_hook.triggers) == (hook.function, hook.triggers)
    assert (its_hook.priority, its_hook.name) == (5, "mine")
    assert by_keyword.plan.budget == Budget(steps=7, tokens=900, seconds=60, cost=1.5)
    assert by_keyword.plan.timeout is None


@pytest.mark.parametrize("by_builder", [False, True])
async def test_a_capability_adds_tools_hooks_and_context(by_builder: bool) -> None:
    model = ScriptedModel([call("shout", id="c1"), "ok"])
    if by_builder:
        agent = AgentBuilder.base().with_model(model).with_capability(Shout()).build()
    else:
        agent = Agent(model, capabilities=[Shout()])
    state = await agent.run("Go")

    assert state.messages[2].text == "HEY"
    assert state.metadata["loud"] is True
    assert [m.text for m in model.requests[0].context.messages] == ["You may shout."]
    assert agent.plan.capabilities == ("Shout",)


def test_a_builder_never_changes_so_it_can_be_branched() -> None:
    base = AgentBuilder.base().with_model(ScriptedModel([]))
    short, long = base.with_max_steps(1), base.with_max_steps(99)

    assert base.plan.max_steps == 20
    assert (short.build().plan.max_steps, long.build().plan.max_steps) == (1, 99)


async def test_b057_building_twice_gives_independent_agents_of_the_same_behaviour() -> None:
    seen: list[str] = []

    def note(context: HookContext) -> None:
        seen.append(context.state.agent_id)

    model = ScriptedModel(lambda request: "Hi.")
    builder = AgentBuilder.base().with_model(model).add_hook("before_step", note)
    one, other = builder.build(), builder.build()
    heard: list[str] = []
    one.wiretap(lambda event: heard.append(event.agent_id))
    first, second = await one.run("Go"), await other.run("Go")

    assert seen == [first.agent_id, second.agent_id]
    assert set(heard) == {first.agent_id}
    assert one.events is not other.events


@pytest.mark.parametrize("form", ["list", "alone", "several", "generator"])
def test_tools_can_be_given_in_any_form(form: str) -> None:
    a, b = MockTool.returning("a", 1), MockTool.returning("b", 2)
    builder = AgentBuilder.base().with_model(ScriptedModel([]))
    built = {
        "list": lambda: builder.with_tools([a, b]),
        "alone": lambda: builder.with_tools(a).with_tools(b),
        "several": lambda: builder.with_tools(a, b),
        "generator": lambda: builder.with_tools(tool for tool in (a, b)),
    }[form]()

    assert [tool.schema.name for tool in built.build().plan.tools] == ["a", "b"]


async def test_a_processor_changes_the_state_after_each_step() -> None:
    def count(state: AgentState) -> AgentState:
        return state.with_metadata({"steps": state.metadata.get("steps", 0) + 1})

    async def later(state: AgentState) -> AgentState:
        return state.with_metadata({"later": state.metadata["steps"]})

    agent = (
        AgentBuilder.base()
        .with_model(ScriptedModel([call("add"), "ok"]))
        .with_tools(MockTool.returning("add", 3))
        .add_processor(later)
        .add_processor(count, priority=10)
        .build()
    )
    state = await agent.run("Go")

    assert (state.status, state.metadata) == (AgentStatus.COMPLETED, {"steps": 2, "later": 2})

"""Runs a skill in its own agent: the skill is the prompt, the answer is the result.

If that agent waits for a person, the call that started it waits as well, and both continue with
the answer.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from stepwell.agent.budget_pool import BudgetPool
from stepwell.agent.child import (
    budget_for,
    child_plan,
    child_state,
    question_of,
    resumed_child,
    run_reported_child,
)
from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.skills.active import ActiveSkill
from stepwell.capabilities.skills.allow_list import LOAD_SKILL
from stepwell.capabilities.skills.skill import Skill
from stepwell.capabilities.skills.texts import describe_skill
from stepwell.continuation import AgentStatus
from stepwell.errors import ConfigurationError
from stepwell.messages import Message
from stepwell.specs.front_matter import DefinitionError
from stepwell.state import AgentState, Budget
from stepwell.tools import (
    FunctionTool,
    InputRequired,
    ToolContext,
    ToolFailure,
    ToolLike,
    ToolOutput,
    Tools,
)

FORK_BUDGET = Budget(steps=10, tokens=16_384, seconds=120.0)
READ_RESOURCE = "read_skill_resource"
INSTRUCTIONS = (
    "You carry out one skill for another agent, which sees only your final answer. Do all of it "
    "yourself and end with the complete result."
)


class Fork(Struct, frozen=True):
    """A skill to run in its own agent: its text, restrictions and files."""

    skill: Skill
    text: str
    active: ActiveSkill
    read_resource: Callable[[str], str]


async def run_fork(plan: AgentPlan, fork: Fork, context: ToolContext) -> ToolOutput | ToolFailure:
    """Run the skill with the tools it allows, within its limits and those of its parent.

    If the context has an answer, the agent that asked continues instead of a new one.
    """
    try:
        start = resumed_child(context) or _child_start(plan, fork, context)
        if start.status is AgentStatus.PAUSED:  # It asked several questions, and one was answered.
            return ToolOutput(value=_format_end(fork.skill, start))
        child = _plan_of_child(plan, fork, start, context)
        depth = BudgetPool.of(context.state).depth + 1  # A fork can't load skills.
        end = await run_reported_child(child, start, context, name=fork.skill.name, max_depth=depth)
    except ConfigurationError as error:
        return ToolFailure(f"the skill {fork.skill.name!r} can't run in its own agent: {error}")
    return ToolOutput(
        value=_format_end(fork.skill, end),
        usage=end.usage - start.usage,
        cost=end.cost - start.cost,
    )


def _child_start(plan: AgentPlan, fork: Fork, context: ToolContext) -> AgentState:
    where = describe_skill(fork.skill, f"{READ_RESOURCE}(resource=...)")
    state = child_state(plan, f"{where}\n\n{fork.text}", context)
    active = replace(_with_reader(fork), loaded_by=state.agent_id)
    return state.with_metadata(active.as_metadata())


def _with_reader(fork: Fork) -> ActiveSkill:
    allowed = fork.active.allowed_tools
    if allowed is None or not fork.skill.resources:
        return fork.active
    return replace(fork.active, allowed_tools=(*allowed, READ_RESOURCE))


def _plan_of_child(
    plan: AgentPlan, fork: Fork, start: AgentState, context: ToolContext
) -> AgentPlan:
    offered = Tools(plan.tools)
    names = [name for name in offered.names if name != LOAD_SKILL]
    allowed = fork.active.allow_list
    if allowed is not None:
        names = [name for name in names if name in allowed.names]
    tools: list[ToolLike] = [offered.get(name) for name in names]
    if fork.skill.resources:
        tools.append(_resource_tool(fork))
    return child_plan(
        plan,
        instructions=[Message.system(INSTRUCTIONS)],
        tools=tools,
        budget=budget_for(context, FORK_BUDGET, start),
    )


def _resource_tool(fork: Fork) -> FunctionTool:
    def read_skill_resource(resource: str) -> str | ToolFailure:
        """Read one of the skill's resources.

        Args:
            resource: The path, as listed.
        """
        try:
            return fork.read_resource(resource)
        except DefinitionError as error:
            return ToolFailure(str(error))

    return FunctionTool(read_skill_resource, name=READ_RESOURCE)


def _format_end(skill: Skill, end: AgentState) -> str | ToolFailure | InputRequired:
    question = question_of(end, kind="skill", name=skill.name)
    if question is not None:
        return question
    answer = end.final_response or ""
    if end.status is AgentStatus.COMPLETED:
        return answer if answer.strip() else f"(The skill {skill.name!r} gave no final response.)"
    last_answer = f"\nIts last answer: {answer}" if answer else ""
    return ToolFailure(f"the skill {skill.name!r} did not finish. {end.explain()}{last_answer}")

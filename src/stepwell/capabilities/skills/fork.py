"""A skill that runs in an agent of its own: the skill is the prompt, the answer the result.

When that agent waits for a person, the call that started it waits as well, and both go on with the
answer.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from stepwell.agent.child import (
    budget_for,
    child_plan,
    child_state,
    question_of,
    resumed_child,
    run_told_child,
)
from stepwell.agent.front_matter import DefinitionError
from stepwell.agent.plan import AgentPlan
from stepwell.agent.purse import Purse
from stepwell.capabilities.skills.active import ActiveSkill
from stepwell.capabilities.skills.allow_list import LOAD_SKILL
from stepwell.capabilities.skills.skill import Skill
from stepwell.capabilities.skills.texts import described_skill
from stepwell.continuation import AgentStatus
from stepwell.errors import ConfigurationError
from stepwell.messages import Message
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
    "You carry out one skill for another agent, which sees your final answer and nothing else. "
    "Do all of it yourself and end with the whole result."
)


class Fork(Struct, frozen=True):
    """A skill that is about to run on its own: its text, its restrictions, and its files."""

    skill: Skill
    text: str
    active: ActiveSkill
    read_resource: Callable[[str], str]


async def forked(plan: AgentPlan, fork: Fork, context: ToolContext) -> ToolOutput | ToolFailure:
    """Run the skill with the tools it allows, within its limits and those of its parent.

    With an answer in the context, the agent that asked goes on instead of a new one.
    """
    try:
        begun = resumed_child(context) or _begun(plan, fork, context)
        if begun.status is AgentStatus.PAUSED:  # It asked several things, and one was answered.
            return ToolOutput(value=_told(fork.skill, begun))
        child = _childs_plan(plan, fork, begun, context)
        depth = Purse.of(context.state).depth + 1  # A fork loads no skills.
        ended = await run_told_child(child, begun, context, name=fork.skill.name, max_depth=depth)
    except ConfigurationError as error:
        return ToolFailure(f"the skill {fork.skill.name!r} can't run on its own: {error}")
    return ToolOutput(
        value=_told(fork.skill, ended),
        usage=ended.usage - begun.usage,
        cost=ended.cost - begun.cost,
    )


def _begun(plan: AgentPlan, fork: Fork, context: ToolContext) -> AgentState:
    where = described_skill(fork.skill, f"{READ_RESOURCE}(resource=...)")
    state = child_state(plan, f"{where}\n\n{fork.text}", context)
    active = replace(_with_reader(fork), loaded_by=state.agent_id)
    return state.with_metadata(active.as_metadata())


def _with_reader(fork: Fork) -> ActiveSkill:
    allowed = fork.active.allowed_tools
    if allowed is None or not fork.skill.resources:
        return fork.active
    return replace(fork.active, allowed_tools=(*allowed, READ_RESOURCE))


def _childs_plan(plan: AgentPlan, fork: Fork, begun: AgentState, context: ToolContext) -> AgentPlan:
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
        budget=budget_for(context, FORK_BUDGET, begun),
    )


def _resource_tool(fork: Fork) -> FunctionTool:
    def read_skill_resource(resource: str) -> str | ToolFailure:
        """Read one of the skill's resources.

        Args:
            resource: Its path, as listed.
        """
        try:
            return fork.read_resource(resource)
        except DefinitionError as error:
            return ToolFailure(str(error))

    return FunctionTool(read_skill_resource, name=READ_RESOURCE)


def _told(skill: Skill, ended: AgentState) -> str | ToolFailure | InputRequired:
    question = question_of(ended, kind="skill", name=skill.name)
    if question is not None:
        return question
    answer = ended.final_response or ""
    if ended.status is AgentStatus.COMPLETED:
        return answer if answer.strip() else f"(The skill {skill.name!r} gave no final response.)"
    said = f"\nIt said last: {answer}" if answer else ""
    return ToolFailure(f"the skill {skill.name!r} did not finish. {ended.explain()}{said}")

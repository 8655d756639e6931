"""``UseSubagents``: adds the tool that spawns subagents and checks the specs they come from."""

import logging
from collections.abc import Collection, Container, Iterable

from msgspec.structs import replace

from stepwell.agent import AgentPlan
from stepwell.agent.budget_pool import with_turns_noted
from stepwell.capabilities.subagents.policy import SubagentPolicy
from stepwell.capabilities.subagents.spawn import NAME, SkillSource, SpawnSubagentTool
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_kind
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec, matching_tools
from stepwell.tools import Tools

logger = logging.getLogger("stepwell.subagents")

AFTER_ALL_CHANGES = 1000
"""Subagents inherit the plan after the changes of all other capabilities."""


class UseSubagents:
    """Lets an agent spawn the agents of a registry, each with its own conversation.

    ``skills`` provides the skills that specs name, for example a ``SkillLibrary``.

    >>> from stepwell import Agent
    >>> from stepwell.specs.registry import AgentRegistry
    >>> from stepwell.specs.spec import AgentSpec
    >>> from stepwell.testing import ScriptedModel, call
    >>> spec = AgentSpec(name="critic", description="Judges.", system_prompt="You judge.")
    >>> turns = [
    ...     call("spawn_subagent", subagent="critic", prompt="Is it good?"),
    ...     "Yes.",
    ...     "It is.",
    ... ]
    >>> agent = Agent(ScriptedModel(turns), capabilities=[UseSubagents(AgentRegistry([spec]))])
    >>> agent.run_sync("Have it judged").final_response
    'It is.'
    """

    def __init__(
        self,
        registry: AgentRegistry,
        policy: SubagentPolicy | None = None,
        *,
        skills: SkillSource | None = None,
    ) -> None:
        check_kind(registry, "registry", AgentRegistry)
        if not isinstance(policy, SubagentPolicy | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{policy!r:.80} is not a SubagentPolicy. To set only a depth, write "
                "UseSubagents.with_depth(3, registry)"
            )
        if skills is not None and not callable(getattr(skills, "get", None)):
            raise ConfigurationError(
                f"{skills!r:.80} does not provide skills. Pass a SkillLibrary, or an object whose "
                "get(name) returns a skill with a body"
            )
        self._registry = registry
        self._policy = policy or SubagentPolicy()
        self._skills = skills
        self._logged: set[str] = set()

    @classmethod
    def with_depth(
        cls,
        max_depth: int,
        registry: AgentRegistry,
        *,
        summary_max_chars: int = SubagentPolicy().summary_max_chars,
        skills: SkillSource | None = None,
    ) -> "UseSubagents":
        """Make the capability with a limit on nesting."""
        policy = SubagentPolicy(max_depth=max_depth, summary_max_chars=summary_max_chars)
        return cls(registry, policy, skills=skills)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the tool, unless the registry is empty. When the plan is complete,
        the specs are checked and the tool is bound to the plan."""
        if not len(self._registry):
            logger.warning("no agent is registered, so the tool %s is not added", NAME)
            return plan
        spawn = SpawnSubagentTool(self._registry, self._policy, skills=self._skills)

        def bind(complete_plan: AgentPlan) -> AgentPlan:
            self._check(complete_plan)
            bound = spawn.bound_to(complete_plan)
            return replace(
                complete_plan, tools=tuple(bound if t is spawn else t for t in complete_plan.tools)
            )

        return with_turns_noted(plan).with_tools(spawn).when_complete(bind, order=AFTER_ALL_CHANGES)

    def _check(self, complete_plan: AgentPlan) -> None:
        """Check the specs and log each remark once, even if the agent is assembled several
        times."""
        remarks = check_specs(self._registry, Tools(complete_plan.tools).names, self._skills)
        for remark in remarks:
            if remark not in self._logged:
                logger.warning("%s", remark)
            self._logged.add(remark)


def check_specs(
    registry: AgentRegistry, tools: Collection[str], skills: SkillSource | None
) -> list[str]:
    """Return one remark for each spec that names unknown tools or skills.

    A mistake in a spec registered in code raises ``ConfigurationError``. One in a file is only a
    remark, so that no file keeps an agent from being built.
    """
    remarks: list[str] = []
    for spec in registry.specs:
        source = registry.source_of(spec.name)
        unknown_skills = _unknown_skills(spec, skills)
        missing = spec.missing_tools(tools)
        mistakes = [_unknown_tools(spec, filter(_is_plain, missing), tools), unknown_skills]
        if source is None and spec.trusted and any(mistakes):
            raise ConfigurationError("; ".join(filter(None, mistakes)))
        faults = [_unknown_tools(spec, missing, tools), unknown_skills]
        if any(faults):
            prefix = "" if source is None else f"{source}: "
            remarks.append(f"{prefix}{'; '.join(filter(None, faults))}")
    return remarks


def _is_plain(entry: str) -> bool:
    """Return whether an entry can only be the name of a tool here. Patterns, limits and names of
    other programs' tools may well match nothing."""
    return "*" not in entry and "(" not in entry and matching_tools(entry, None) == (entry,)


def _unknown_tools(spec: AgentSpec, missing: Iterable[str], tools: Collection[str]) -> str:
    listed = ", ".join(missing)
    if not listed:
        return ""
    return (
        f"the agent {spec.name!r} names tools that its parent does not have: {listed}; tools: "
        f"{', '.join(sorted(tools))}"
    )


def _unknown_skills(spec: AgentSpec, skills: SkillSource | None) -> str:
    if spec.skills and skills is None:
        return (
            f"the agent {spec.name!r} needs the skills {', '.join(spec.skills)}, but no library "
            "is set. Write UseSubagents(registry, skills=library)"
        )
    if not spec.skills or not isinstance(skills, Container):
        return ""  # Getting a skill may be slow, so a missing one is found when it is spawned.
    missing = ", ".join(name for name in spec.skills if name not in skills)
    known = ", ".join(getattr(skills, "names", ())) or "(none)"
    if not missing:
        return ""
    return f"the agent {spec.name!r} names unknown skills: {missing}; skills: {known}"

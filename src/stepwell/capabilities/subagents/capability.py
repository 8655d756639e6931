"""Adds the tool that spawns subagents to a plan."""

import logging

from msgspec.structs import replace

from stepwell.agent import AgentPlan
from stepwell.agent.purse import with_turns_noted
from stepwell.agent.registry import AgentRegistry
from stepwell.capabilities.subagents.checks import checked_specs
from stepwell.capabilities.subagents.policy import SubagentPolicy
from stepwell.capabilities.subagents.spawn import NAME, SkillSource, SpawnSubagentTool
from stepwell.errors import ConfigurationError
from stepwell.tools import Tools

logger = logging.getLogger("stepwell.subagents")

BEHIND_ALL = 1000
"""Subagents are given what all other capabilities made of the plan."""


class UseSubagents:
    """Lets an agent spawn the agents of a registry, each with a conversation of its own.

    ``skills`` is where the skills that specs name come from: a ``SkillLibrary``.

    >>> from stepwell import Agent
    >>> from stepwell.agent.registry import AgentRegistry
    >>> from stepwell.agent.spec import AgentSpec
    >>> from stepwell.testing import ScriptedModel, call
    >>> spec = AgentSpec(name="critic", description="Judges.", system_prompt="You judge.")
    >>> turns = [call("spawn_subagent", subagent="critic", prompt="Is it good?"), "Yes.", "It is."]
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
        if not isinstance(registry, AgentRegistry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{registry!r:.80} is not an AgentRegistry; write AgentRegistry([spec, ...])"
            )
        if not isinstance(policy, SubagentPolicy | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{policy!r:.80} is not a SubagentPolicy; for a depth alone write "
                "UseSubagents.with_depth(3, registry)"
            )
        if skills is not None and not callable(getattr(skills, "get", None)):
            raise ConfigurationError(
                f"{skills!r:.80} is no source of skills; give a SkillLibrary, or an object whose "
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
        """Subagents that may nest that deep."""
        policy = SubagentPolicy(max_depth=max_depth, summary_max_chars=summary_max_chars)
        return cls(registry, policy, skills=skills)

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan with the tool, which is bound to the whole plan when the agent is built; then
        the specs are checked as well. Without any spec there is no tool."""
        if not len(self._registry):
            logger.warning("no agent is registered, so %s is left out", NAME)
            return plan
        spawn = SpawnSubagentTool(self._registry, self._policy, skills=self._skills)

        def bind(whole: AgentPlan) -> AgentPlan:
            self._check(whole)
            bound = spawn.bound_to(whole)
            return replace(whole, tools=tuple(bound if t is spawn else t for t in whole.tools))

        return with_turns_noted(plan).with_tools(spawn).when_complete(bind, order=BEHIND_ALL)

    def _check(self, whole: AgentPlan) -> None:
        """An agent is assembled anew for another bus; what is odd is logged once all the same."""
        remarks = checked_specs(self._registry, Tools(whole.tools).names, self._skills)
        for remark in remarks:
            if remark not in self._logged:
                logger.warning("%s", remark)
            self._logged.add(remark)

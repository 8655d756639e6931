"""The tool that spawns a subagent: who it is, what it is given, and what its parent is told."""

import logging
from copy import copy
from typing import Any, Protocol

from msgspec.structs import replace

from stepwell.agent import AgentPlan
from stepwell.agent.child import (
    budget_for,
    child_plan,
    child_state,
    question_of,
    resumed_child,
    run_told_child,
)
from stepwell.agent.purse import Purse
from stepwell.agent.registry import AgentRegistry
from stepwell.agent.spec import AgentSpec
from stepwell.capabilities.subagents.policy import SubagentPolicy
from stepwell.continuation import AgentStatus
from stepwell.errors import AgentNotFoundError, ConfigurationError, StepwellError
from stepwell.messages import Message
from stepwell.models import Model
from stepwell.state import AgentState, Budget
from stepwell.tools import (
    BaseTool,
    InputRequired,
    ToolContext,
    ToolEffect,
    ToolFailure,
    ToolOutput,
    Tools,
)
from stepwell.tools.schema import with_choices
from stepwell.tools.threads import in_thread

logger = logging.getLogger("stepwell.subagents")

NAME = "spawn_subagent"
FOREIGN_MODELS = frozenset({"sonnet", "opus", "haiku"})
"""What files of one provider's program call its models; without a preset the parent's answers."""


MOST_CHOICES = 250
"""Providers limit how many values an argument lists; the description names the agents anyway."""


class SkillSource(Protocol):
    """Where the skills come from that a spec names; a ``SkillLibrary`` is one."""

    def get(self, name: str) -> Any:
        """The skill, with its text as ``body``; raises ``StepwellError`` for an unknown one."""
        ...


class SpawnSubagentTool(BaseTool):
    """Runs an agent of the registry on a task and gives back its answer."""

    name = NAME
    effect = ToolEffect.EXTERNAL

    def __init__(
        self,
        registry: AgentRegistry,
        policy: SubagentPolicy,
        *,
        skills: SkillSource | None = None,
    ) -> None:
        self._registry = registry
        self._policy = policy
        self._skills = skills
        self._plan: AgentPlan | None = None
        self._tools: Tools | None = None
        super().__init__(description=_described(registry))
        if 0 < len(registry) <= MOST_CHOICES:
            self.schema = with_choices(self.schema, "subagent", registry.names)

    def bound_to(self, plan: AgentPlan) -> "SpawnSubagentTool":
        """The same tool for the agent of that plan."""
        bound = copy(self)  # Its schema is the same, and slow to make.
        bound.function = bound.__call__
        bound._plan, bound._tools = plan, None
        return bound

    async def __call__(
        self, subagent: str, prompt: str, context: ToolContext
    ) -> ToolOutput | ToolFailure:
        """Spawn a subagent.

        Args:
            subagent: The name of the agent.
            prompt: The whole task: the agent sees nothing of this conversation.
        """
        try:
            spec = self._registry.get(subagent)
        except AgentNotFoundError:
            known = ", ".join(self._registry.names) or "(none)"
            return ToolFailure(f"there is no subagent {subagent!r}; available: {known}")
        if Purse.of(context.state).depth >= self._policy.max_depth:
            return ToolFailure(
                f"subagents may nest {self._policy.max_depth} deep, and this agent is at the "
                "bottom; do the work yourself"
            )
        if not prompt.strip():
            return ToolFailure("the prompt is empty; write the whole task into it")
        try:
            return await self._spawned(spec, prompt, context)
        except ConfigurationError as error:
            return ToolFailure(f"subagent {subagent!r} can't run: {error}")

    async def _spawned(self, spec: AgentSpec, prompt: str, context: ToolContext) -> ToolOutput:
        parent = self._parent()
        begun = resumed_child(context) or child_state(parent, prompt, context)
        if begun.status is AgentStatus.PAUSED:  # It asked several things, and not all are answered.
            return ToolOutput(value=self._told(spec, begun))
        skills: list[Message] = []
        if spec.skills:
            skills = await in_thread(self._skill_texts, {"spec": spec})
        budget = budget_for(context, self._policy.budget_of(spec), begun)
        plan = self._childs_plan(parent, spec, skills, budget)
        ended = await run_told_child(
            plan, begun, context, name=spec.name, max_depth=self._policy.max_depth
        )
        usage, cost = ended.usage - begun.usage, ended.cost - begun.cost
        return ToolOutput(value=self._told(spec, ended), usage=usage, cost=cost)

    # What the child is given

    def _parent(self) -> AgentPlan:
        if self._plan is None:
            raise ConfigurationError("the tool belongs to no agent; add it with UseSubagents")
        return self._plan

    def _childs_plan(
        self, parent: AgentPlan, spec: AgentSpec, skills: list[Message], budget: Budget
    ) -> AgentPlan:
        offered = self._offered(parent)
        names = spec.offered_tools(self._policy.offered(offered.names))
        return child_plan(
            self._answering(parent, spec),
            instructions=[*skills, Message.system(spec.system_prompt)],
            tools=[offered.get(name) for name in names],
            budget=budget,
        )

    def _offered(self, parent: AgentPlan) -> Tools:
        """The parent's tools, made once: a lazy one is not built again for every child."""
        if self._tools is None:
            self._tools = Tools(parent.tools)
        return self._tools

    def _answering(self, parent: AgentPlan, spec: AgentSpec) -> AgentPlan:
        """The parent with the model and the settings that the spec asks for."""
        settings = spec.model_settings
        model = self._model(parent, spec)
        if model is None:
            return replace(parent, settings=settings.over(parent.settings))
        # What only one provider knows, and headers that may be secret, are not for another one.
        own = replace(parent.settings, model=None, extra_body={}, extra_headers={})
        return replace(
            parent, model=model, llm_preset=None, driver=None, settings=settings.over(own)
        )

    def _model(self, parent: AgentPlan, spec: AgentSpec) -> Model | None:
        if spec.preset is None:
            return None
        preset = self._policy.models.get(spec.preset, spec.preset)
        is_foreign = preset.lower() in FOREIGN_MODELS and preset not in parent.model_presets.names
        if is_foreign:
            logger.info("%s asks for %r, which is no preset here", spec.name, preset)
            return None
        return parent.model_presets.model(preset)

    def _skill_texts(self, spec: AgentSpec) -> list[Message]:
        if self._skills is None:
            raise ConfigurationError(
                f"it needs the skills {', '.join(spec.skills)}, and no library was given; write "
                "UseSubagents(registry, skills=library)"
            )
        texts: list[Message] = []
        for name in spec.skills:
            try:
                texts.append(Message.system(self._skills.get(name).body))
            except (StepwellError, LookupError) as error:
                raise ConfigurationError(f"it needs the skill {name!r}: {error}") from None
        return texts

    # What the parent is told

    def _told(self, spec: AgentSpec, ended: AgentState) -> str | ToolFailure | InputRequired:
        question = question_of(ended, kind="subagent", name=spec.name)
        if question is not None:
            return question
        step = ended.current_step
        if step is not None and step.is_empty:
            return "(The subagent gave no final response.)"
        if ended.status is AgentStatus.FAILED:
            errors = "; ".join(error.text for error in step.errors) if step else ""
            details = {"subagent": spec.name, "steps": ended.step_count}
            text = f"subagent {spec.name!r} failed: {errors or ended.explain()}"
            return ToolFailure(self._cut(text), details)
        answer = ended.final_response or ""
        if ended.status is not AgentStatus.COMPLETED:
            reason = None if ended.stop is None else ended.stop.stop_reason
            answer = f"(It was stopped before it was done: {reason}.)\n{answer}".strip()
        elif not answer.strip():
            answer = "(The subagent gave no final response.)"
        return self._cut(answer)

    def _cut(self, text: str) -> str:
        longest = self._policy.summary_max_chars
        if len(text) <= longest:
            return text
        return f"{text[:longest]}\n(Cut at {longest} of {len(text)} characters.)"


def _described(registry: AgentRegistry) -> str:
    agents = "\n".join(f"- {spec.name}: {spec.description}" for spec in registry.specs)
    return (
        "Have another agent do a task of its own and get its answer. It sees nothing of this "
        f"conversation. Available agents:\n{agents or '(none)'}"
    )

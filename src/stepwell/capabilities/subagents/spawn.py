"""The ``spawn_subagent`` tool: builds the child's plan, runs it, and reports to the parent."""

import logging
from copy import copy
from typing import Any, Protocol

from msgspec.structs import replace

from stepwell.agent import AgentPlan
from stepwell.agent.budget_pool import BudgetPool
from stepwell.agent.child import (
    budget_for,
    child_plan,
    child_state,
    question_of,
    resumed_child,
    run_reported_child,
)
from stepwell.capabilities.subagents.policy import SubagentPolicy
from stepwell.continuation import AgentStatus
from stepwell.errors import AgentNotFoundError, ConfigurationError, StepwellError
from stepwell.messages import Message
from stepwell.models import Model
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import AgentState, Budget
from stepwell.text import truncate_with_note
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
CLAUDE_CODE_ALIASES = frozenset({"sonnet", "opus", "haiku"})
"""Aliases for models in Claude Code's agent files; without such a preset the parent's model is
used."""


MAX_CHOICES = 250
"""Providers limit the number of enum values; the description lists the agents anyway."""


class SkillSource(Protocol):
    """Provides the skills that a spec names; a ``SkillLibrary`` is one."""

    def get(self, name: str) -> Any:
        """Return the skill, with its text as ``body``. Raises ``StepwellError`` if it is
        unknown."""
        ...


class SpawnSubagentTool(BaseTool):
    """Runs an agent of the registry on a task and returns its answer."""

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
        super().__init__(description=_description(registry))
        if 0 < len(registry) <= MAX_CHOICES:
            self.schema = with_choices(self.schema, "subagent", registry.names)

    def bound_to(self, plan: AgentPlan) -> "SpawnSubagentTool":
        """Return a copy of the tool for the agent with that plan."""
        bound = copy(self)  # The schema is the same, and slow to make.
        bound.function = bound.__call__
        bound._plan, bound._tools = plan, None
        return bound

    async def __call__(
        self, subagent: str, prompt: str, context: ToolContext
    ) -> ToolOutput | ToolFailure:
        """Spawn a subagent.

        Args:
            subagent: The name of the agent.
            prompt: The complete task; the agent does not see this conversation.
        """
        try:
            spec = self._registry.get(subagent)
        except AgentNotFoundError:
            known = ", ".join(self._registry.names) or "(none)"
            return ToolFailure(f"there is no subagent {subagent!r}; available: {known}")
        if BudgetPool.of(context.state).depth >= self._policy.max_depth:
            return ToolFailure(
                f"the limit of {self._policy.max_depth} nested subagents is reached; do the work "
                "yourself"
            )
        if not prompt.strip():
            return ToolFailure("the prompt is empty; write the complete task")
        try:
            return await self._spawn(spec, prompt, context)
        except ConfigurationError as error:
            return ToolFailure(f"subagent {subagent!r} can't run: {error}")

    async def _spawn(self, spec: AgentSpec, prompt: str, context: ToolContext) -> ToolOutput:
        parent = self._parent()
        start = resumed_child(context) or child_state(parent, prompt, context)
        if (
            start.status is AgentStatus.PAUSED
        ):  # It asked several questions, and not all are answered.
            return ToolOutput(value=self._format_end(spec, start))
        skills: list[Message] = []
        if spec.skills:
            skills = await in_thread(self._skill_texts, {"spec": spec})
        budget = budget_for(context, self._policy.budget_of(spec), start)
        plan = self._plan_of_child(parent, spec, skills, budget)
        end = await run_reported_child(
            plan, start, context, name=spec.name, max_depth=self._policy.max_depth
        )
        usage, cost = end.usage - start.usage, end.cost - start.cost
        return ToolOutput(value=self._format_end(spec, end), usage=usage, cost=cost)

    def _parent(self) -> AgentPlan:
        if self._plan is None:
            raise ConfigurationError("the tool is not bound to an agent; add it with UseSubagents")
        return self._plan

    def _plan_of_child(
        self, parent: AgentPlan, spec: AgentSpec, skills: list[Message], budget: Budget
    ) -> AgentPlan:
        offered = self._parent_tools(parent)
        names = spec.offered_tools(self._policy.allowed_names(offered.names))
        return child_plan(
            self._with_model_of(parent, spec),
            instructions=[*skills, Message.system(spec.system_prompt)],
            tools=[offered.get(name) for name in names],
            budget=budget,
        )

    def _parent_tools(self, parent: AgentPlan) -> Tools:
        """Return the parent's tools, built once so that lazy tools are not rebuilt for every
        child."""
        if self._tools is None:
            self._tools = Tools(parent.tools)
        return self._tools

    def _with_model_of(self, parent: AgentPlan, spec: AgentSpec) -> AgentPlan:
        """Return the parent's plan with the model and the settings of the spec."""
        settings = spec.model_settings
        model = self._model(parent, spec)
        if model is None:
            return replace(parent, settings=settings.over(parent.settings))
        # Provider-specific settings, and headers that may be secret, are not for another provider.
        own = replace(parent.settings, model=None, extra_body={}, extra_headers={})
        return replace(
            parent, model=model, llm_preset=None, driver=None, settings=settings.over(own)
        )

    def _model(self, parent: AgentPlan, spec: AgentSpec) -> Model | None:
        if spec.preset is None:
            return None
        preset = self._policy.models.get(spec.preset, spec.preset)
        is_unknown_alias = (
            preset.lower() in CLAUDE_CODE_ALIASES and preset not in parent.model_presets.names
        )
        if is_unknown_alias:
            logger.info(
                "%s asks for %r, which is not a preset; using the parent's model", spec.name, preset
            )
            return None
        return parent.model_presets.model(preset)

    def _skill_texts(self, spec: AgentSpec) -> list[Message]:
        if self._skills is None:
            raise ConfigurationError(
                f"it needs the skills {', '.join(spec.skills)}, but no library is set. Write "
                "UseSubagents(registry, skills=library)"
            )
        texts: list[Message] = []
        for name in spec.skills:
            try:
                texts.append(Message.system(self._skills.get(name).body))
            except (StepwellError, LookupError) as error:
                raise ConfigurationError(f"it needs the skill {name!r}: {error}") from None
        return texts

    def _format_end(self, spec: AgentSpec, end: AgentState) -> str | ToolFailure | InputRequired:
        question = question_of(end, kind="subagent", name=spec.name)
        if question is not None:
            return question
        step = end.current_step
        if step is not None and step.is_empty:
            return "(The subagent gave no final response.)"
        if end.status is AgentStatus.FAILED:
            errors = "; ".join(error.text for error in step.errors) if step else ""
            details = {"subagent": spec.name, "steps": end.step_count}
            text = f"subagent {spec.name!r} failed: {errors or end.explain()}"
            return ToolFailure(self._truncate(text), details)
        answer = end.final_response or ""
        if end.status is not AgentStatus.COMPLETED:
            reason = None if end.stop is None else end.stop.stop_reason
            answer = f"(Stopped before it was done: {reason}.)\n{answer}".strip()
        elif not answer.strip():
            answer = "(The subagent gave no final response.)"
        return self._truncate(answer)

    def _truncate(self, text: str) -> str:
        return truncate_with_note(text, self._policy.summary_max_chars)


def _description(registry: AgentRegistry) -> str:
    agents = "\n".join(f"- {spec.name}: {spec.description}" for spec in registry.specs)
    return (
        "Run another agent on a task and return its answer. It does not see this conversation. "
        f"Available agents:\n{agents or '(none)'}"
    )

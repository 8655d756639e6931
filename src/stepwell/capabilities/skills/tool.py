"""The ``load_skill`` tool."""

import logging
import re
from collections.abc import Mapping
from functools import partial
from itertools import chain

from stepwell.agent.child import resumed_child
from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.skills.active import NO_ACTIVE_SKILL, ActiveSkill
from stepwell.capabilities.skills.allow_list import LOAD_SKILL, AllowList
from stepwell.capabilities.skills.arguments import SkillArguments, has_argument_placeholder
from stepwell.capabilities.skills.fork import Fork, run_fork
from stepwell.capabilities.skills.library import SkillLibrary, SkillNotFoundError
from stepwell.capabilities.skills.shell import (
    CommandRunner,
    ShellPreprocessing,
    marked_commands,
    texts_between,
)
from stepwell.capabilities.skills.skill import Skill, SkillSummary
from stepwell.capabilities.skills.texts import format_loaded_skill, format_skill_list
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_kind
from stepwell.specs.front_matter import DefinitionError
from stepwell.specs.spec import INHERIT
from stepwell.tools import BaseTool, ToolContext, ToolEffect, ToolFailure, ToolOutput, Tools
from stepwell.tools.threads import in_thread

logger = logging.getLogger("stepwell.capabilities.skills")

MAX_LIST_CHARS = 40_000

_ALIAS = re.compile(r"(?:sonnet|opus|haiku|opusplan|best|default)(?:\[\w+\])?", re.IGNORECASE)
"""Aliases of models that only Claude Code knows."""


class LoadSkillTool(BaseTool):
    """Loads a skill, reads one of its resources, lists the skills, or deactivates the active skill.

    ``models`` maps words such as ``sonnet`` to models. By itself the tool restricts nothing and
    runs no forks; ``UseSkills`` adds the hooks that enforce a loaded skill.

    >>> LoadSkillTool(SkillLibrary()).schema.name
    'load_skill'
    """

    name = LOAD_SKILL
    description = (
        "Load a skill: instructions for a special task, with their files. Without a name, or with "
        "list_skills, returns the list of skills. With done, deactivates the active skill."
    )
    # Later calls of the same response are bound by what it loads.
    parallel = False

    def __init__(
        self,
        library: SkillLibrary,
        *,
        shell: ShellPreprocessing | None = None,
        models: Mapping[str, str] | None = None,
        plan: AgentPlan | None = None,
    ) -> None:
        self._library = check_kind(library, "library", SkillLibrary)
        self._settings = shell
        if shell is not None:
            check_kind(shell, "shell", ShellPreprocessing)
        self._models = _check_models(models)
        self._commands = None if shell is None else CommandRunner(shell)
        self._plan = plan
        has_effects = shell is not None or any(known.is_fork for known in self.loadable_skills)
        super().__init__(effect=ToolEffect.EXTERNAL if has_effects else ToolEffect.IDEMPOTENT)

    @property
    def loadable_skills(self) -> tuple[SkillSummary, ...]:
        """The skills that the model may load."""
        known = self._library.summaries
        return tuple(summary for summary in known if not summary.disable_model_invocation)

    def bound_to(self, plan: AgentPlan) -> "LoadSkillTool":
        """Return a copy of the tool for the agent with this complete plan."""
        return LoadSkillTool(self._library, shell=self._settings, models=self._models, plan=plan)

    async def __call__(
        self,
        context: ToolContext,
        name: str | None = None,
        arguments: str | None = None,
        resource: str | None = None,
        list_skills: bool = False,
        done: bool = False,
    ) -> str | ToolOutput | ToolFailure:
        """Load a skill.

        Args:
            name: The skill's name.
            arguments: The arguments of the skill, if it takes any.
            resource: The path of one of the skill's resources, to read it instead.
            list_skills: Return the list of skills instead.
            done: Deactivate the active skill instead, and with it its limit on your tools.
        """
        if done:
            return _deactivate(context)
        if list_skills or not name or not name.strip():
            return self._list_skills()
        try:
            skill = await self._skill(name.strip())
            if resource:
                skill_arguments = {"skill": skill, "resource": resource}
                return await in_thread(self._library.read_resource, skill_arguments)
            return await self._load(skill, arguments, context)
        except SkillNotFoundError:
            return ToolFailure(
                f"there is no skill {name!r:.100}. Available skills:\n{self._list_skills()}"
            )
        except DefinitionError as error:
            return ToolFailure(str(error))

    def _list_skills(self) -> str:
        return format_skill_list(self.loadable_skills, MAX_LIST_CHARS)

    async def _skill(self, name: str) -> Skill:
        skill: Skill = await in_thread(self._library.get, {"name": name})
        if skill.disable_model_invocation:
            raise SkillNotFoundError(name, tuple(known.name for known in self.loadable_skills))
        return skill

    async def _load(
        self, skill: Skill, arguments: str | None, context: ToolContext
    ) -> ToolOutput | ToolFailure:
        # A resumed fork has its text already; its commands do not run again.
        is_resumed = resumed_child(context) is not None
        text = "" if is_resumed else await self._text(skill, arguments, context)
        plan = self._plan
        loadable_skills = None if plan is None else Tools(plan.tools).names
        allowed = (
            AllowList.of(skill.allowed_tools, loadable_skills) if skill.allowed_tools else None
        )
        active = ActiveSkill(
            name=skill.name,
            allowed_tools=None if allowed is None else allowed.entries,
            model=self._model(skill),
            loaded_by=context.state.agent_id,
        )
        if not (skill.is_fork or is_resumed):
            shown = format_loaded_skill(skill, text, allowed, loadable_skills or ())
            return ToolOutput(value=shown, metadata=active.as_metadata())
        if plan is None:
            return ToolFailure(
                f"the skill {skill.name!r} runs in its own agent, which only an agent with "
                "UseSkills can start"
            )
        read = partial(self._library.read_resource, skill)
        return await run_fork(plan, Fork(skill, text, active, read), context)

    async def _text(self, skill: Skill, arguments: str | None, context: ToolContext) -> str:
        directory = None if skill.directory is None else str(skill.directory)
        skill_arguments = SkillArguments.of(
            arguments,
            directory=directory,
            shown_directory=skill.shown_directory,
            body=skill.body,
        )
        body = skill.body
        if self._commands is not None:
            left = context.budget_left.seconds
            text = await self._commands.fill(body, skill_arguments, seconds_left=left)
            has_placeholder = has_argument_placeholder(body)
        else:
            text, has_placeholder = _fill_texts_only(body, skill_arguments)
        if skill_arguments.text is None or has_placeholder:
            return text
        return f"{text}\n\nARGUMENTS: {skill_arguments.text}"

    def _model(self, skill: Skill) -> str | None:
        model = skill.model
        if model is None or model.lower() == INHERIT:
            return None
        mapped = self._models.get(model)
        if mapped is None and _ALIAS.fullmatch(model):
            logger.info(
                "the skill %r asks for the model %r, which is not a known model name; map it with "
                "UseSkills(models=...)",
                skill.name,
                model,
            )
            return None
        return mapped or model


def _deactivate(context: ToolContext) -> str | ToolOutput:
    active = ActiveSkill.in_(context.state)
    if active is None:
        return "No skill is active."
    message = f"The skill {active.name!r} is no longer active; your tools are no longer restricted."
    return ToolOutput(value=message, metadata=NO_ACTIVE_SKILL)


def _fill_texts_only(body: str, skill_arguments: SkillArguments) -> tuple[str, bool]:
    """Fill the body's placeholders except those in commands. Return it, and whether the arguments
    had a placeholder."""
    commands = tuple(marked_commands(body))
    texts = texts_between(body, commands)
    first, *others = skill_arguments.fill_all(texts)
    kept = (body[marked.start : marked.end] for marked in commands)
    pieces = [first, *chain.from_iterable(zip(kept, others, strict=True))]
    return "".join(pieces), any(map(has_argument_placeholder, texts))


def _check_models(models: object) -> dict[str, str]:
    if models is None:
        return {}
    if isinstance(models, Mapping):
        pairs = dict(models)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if all(isinstance(word, str) and word for pair in pairs.items() for word in pair):  # pyright: ignore[reportUnknownVariableType]
            return pairs  # pyright: ignore[reportUnknownVariableType]
    raise ConfigurationError(
        f"models is {models!r:.80}; map the words in skills to model names, as in "
        'models={"sonnet": "claude-sonnet-4-5"}'
    )

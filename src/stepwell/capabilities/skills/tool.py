"""The tool with which a model loads skills."""

import logging
import re
from collections.abc import Mapping
from functools import partial
from itertools import chain

from stepwell.agent.child import resumed_child
from stepwell.agent.front_matter import DefinitionError
from stepwell.agent.plan import AgentPlan
from stepwell.agent.spec import INHERIT
from stepwell.capabilities.skills.active import PUT_DOWN, ActiveSkill
from stepwell.capabilities.skills.allow_list import LOAD_SKILL, AllowList
from stepwell.capabilities.skills.arguments import SkillArguments, has_argument_placeholder
from stepwell.capabilities.skills.fork import Fork, forked
from stepwell.capabilities.skills.library import SkillLibrary, SkillNotFoundError
from stepwell.capabilities.skills.shell import (
    CommandRunner,
    ShellPreprocessing,
    marked_commands,
    texts_between,
)
from stepwell.capabilities.skills.skill import Skill, SkillSummary
from stepwell.capabilities.skills.texts import loaded_skill, skill_list
from stepwell.errors import ConfigurationError
from stepwell.tools import BaseTool, ToolContext, ToolEffect, ToolFailure, ToolOutput, Tools
from stepwell.tools.threads import in_thread

logger = logging.getLogger("stepwell.capabilities.skills")

MAX_LIST_CHARS = 40_000

_ALIAS = re.compile(r"(?:sonnet|opus|haiku|opusplan|best|default)(?:\[\w+\])?", re.IGNORECASE)
"""Words for models that only one program knows."""


class LoadSkillTool(BaseTool):
    """Loads a skill of the library, reads one of its files, lists what there is, or puts the
    active skill down.

    ``models`` says which model a skill means by a word such as ``sonnet``. On its own the tool
    restricts nothing and runs no forks; ``UseSkills`` adds what enforces a loaded skill.

    >>> LoadSkillTool(SkillLibrary()).schema.name
    'load_skill'
    """

    name = LOAD_SKILL
    description = (
        "Load a skill: instructions for a special task, with the files that belong to it. Without "
        "a name, or with list_skills, get the list of skills. With done, put the active skill down."
    )
    # Calls behind it in one response are bound by what it loads.
    parallel = False

    def __init__(
        self,
        library: SkillLibrary,
        *,
        shell: ShellPreprocessing | None = None,
        models: Mapping[str, str] | None = None,
        plan: AgentPlan | None = None,
    ) -> None:
        self._library = _checked_library(library)
        self._settings = _checked_shell(shell)
        self._models = _checked_models(models)
        self._commands = None if shell is None else CommandRunner(shell)
        self._plan = plan
        has_effects = shell is not None or any(known.is_fork for known in self.offered)
        super().__init__(effect=ToolEffect.EXTERNAL if has_effects else ToolEffect.IDEMPOTENT)

    @property
    def offered(self) -> tuple[SkillSummary, ...]:
        """The skills that the model may load."""
        known = self._library.summaries
        return tuple(summary for summary in known if not summary.disable_model_invocation)

    def bound_to(self, plan: AgentPlan) -> "LoadSkillTool":
        """The same tool for the agent of this whole plan."""
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
            arguments: What the skill should work on, if it takes arguments.
            resource: The path of one of the skill's resources, to read it instead.
            list_skills: Get the list of skills instead.
            done: Put the active skill down instead, and with it its limit on your tools.
        """
        if done:
            return _put_down(context)
        if list_skills or not name or not name.strip():
            return self._listed()
        try:
            skill = await self._skill(name.strip())
            if resource:
                given = {"skill": skill, "resource": resource}
                return await in_thread(self._library.read_resource, given)
            return await self._loaded(skill, arguments, context)
        except SkillNotFoundError:
            return ToolFailure(
                f"there is no skill {name!r:.100}. Available skills:\n{self._listed()}"
            )
        except DefinitionError as error:
            return ToolFailure(str(error))

    def _listed(self) -> str:
        return skill_list(self.offered, MAX_LIST_CHARS)

    async def _skill(self, name: str) -> Skill:
        skill: Skill = await in_thread(self._library.get, {"name": name})
        if skill.disable_model_invocation:
            raise SkillNotFoundError(name, tuple(known.name for known in self.offered))
        return skill

    async def _loaded(
        self, skill: Skill, arguments: str | None, context: ToolContext
    ) -> ToolOutput | ToolFailure:
        # A fork that goes on has its text already; its commands are not run again.
        is_resumed = resumed_child(context) is not None
        text = "" if is_resumed else await self._text(skill, arguments, context)
        plan = self._plan
        offered = None if plan is None else Tools(plan.tools).names
        allowed = AllowList.of(skill.allowed_tools, offered) if skill.allowed_tools else None
        active = ActiveSkill(
            name=skill.name,
            allowed_tools=None if allowed is None else allowed.entries,
            model=self._model(skill),
            loaded_by=context.state.agent_id,
        )
        if not (skill.is_fork or is_resumed):
            shown = loaded_skill(skill, text, allowed, offered or ())
            return ToolOutput(value=shown, metadata=active.as_metadata())
        if plan is None:
            return ToolFailure(
                f"the skill {skill.name!r} runs in an agent of its own, which only an agent with "
                "UseSkills can start"
            )
        read = partial(self._library.read_resource, skill)
        return await forked(plan, Fork(skill, text, active, read), context)

    async def _text(self, skill: Skill, arguments: str | None, context: ToolContext) -> str:
        place = None if skill.directory is None else str(skill.directory)
        given = SkillArguments.of(arguments, directory=place, body=skill.body)
        body = skill.body
        if self._commands is not None:
            left = context.budget_left.seconds
            text = await self._commands.filled(body, given, seconds_left=left)
            has_place = has_argument_placeholder(body)
        else:
            text, has_place = _without_commands(body, given)
        if given.text is None or has_place:
            return text
        return f"{text}\n\nARGUMENTS: {given.text}"

    def _model(self, skill: Skill) -> str | None:
        wanted = skill.model
        if wanted is None or wanted.lower() == INHERIT:
            return None
        mapped = self._models.get(wanted)
        if mapped is None and _ALIAS.fullmatch(wanted):
            logger.info(
                "the skill %r asks for the model %r, which only one program knows; say which it is "
                "with UseSkills(models=...)",
                skill.name,
                wanted,
            )
            return None
        return mapped or wanted


def _put_down(context: ToolContext) -> str | ToolOutput:
    active = ActiveSkill.in_(context.state)
    if active is None:
        return "No skill is active."
    told = f"The skill {active.name!r} is put down; it no longer limits the tools."
    return ToolOutput(value=told, metadata=PUT_DOWN)


def _without_commands(body: str, given: SkillArguments) -> tuple[str, bool]:
    """The body with its placeholders filled but for those in commands, which stay as written, and
    whether the arguments had a place."""
    commands = tuple(marked_commands(body))
    texts = texts_between(body, commands)
    first, *others = given.filled_all(texts)
    kept = (body[found.start : found.end] for found in commands)
    pieces = [first, *chain.from_iterable(zip(kept, others, strict=True))]
    return "".join(pieces), any(map(has_argument_placeholder, texts))


def _checked_library(library: object) -> SkillLibrary:
    if isinstance(library, SkillLibrary):
        return library
    raise ConfigurationError(f"{library!r:.80} is no library; write SkillLibrary('./skills')")


def _checked_shell(shell: object) -> ShellPreprocessing | None:
    if shell is None or isinstance(shell, ShellPreprocessing):
        return shell
    raise ConfigurationError(
        f"shell is {shell!r:.80}; write shell=ShellPreprocessing(policy=ExecutionPolicy.in_(...))"
    )


def _checked_models(models: object) -> dict[str, str]:
    if models is None:
        return {}
    if isinstance(models, Mapping):
        pairs = dict(models)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        if all(isinstance(word, str) and word for pair in pairs.items() for word in pair):  # pyright: ignore[reportUnknownVariableType]
            return pairs  # pyright: ignore[reportUnknownVariableType]
    raise ConfigurationError(
        f"models is {models!r:.80}; write names of models by the words of skills, such as "
        'models={"sonnet": "claude-sonnet-4-5"}'
    )

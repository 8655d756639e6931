"""The skill that is active in a run: kept in the state's metadata, enforced by hooks.

It holds until it is put down, another skill is loaded or the execution ends; a run that was paused
goes on with it.
"""

import logging
from collections.abc import Iterator
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict, replace

from stepwell.agent.metadata_keys import ACTIVE_SKILL
from stepwell.capabilities.skills.allow_list import BASH, LOAD_SKILL, PLAIN_COMMANDS, AllowList
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.state import AgentState

logger = logging.getLogger("stepwell.capabilities.skills")

SOURCE = "UseSkills"

BEHIND_REWRITES = -9_000
"""Behind hooks that change calls and before the question for approval, so that what is checked is
what runs, and nobody is asked about what is refused anyway."""


class ActiveSkill(Struct, frozen=True, kw_only=True):
    """What the state knows of the loaded skill. ``allowed_tools`` None restricts nothing; an empty
    list leaves only what is always allowed. Its ``model`` answers for the agent that loaded it
    alone."""

    name: str
    allowed_tools: tuple[str, ...] | None = None
    model: str | None = None
    loaded_by: str | None = None

    @classmethod
    def in_(cls, state: AgentState) -> "ActiveSkill | None":
        """The active skill of a state, if there is one."""
        kept = state.metadata.get(ACTIVE_SKILL)
        if kept is None:
            return None
        try:
            return convert(kept, cls)
        except ValidationError:
            # Someone else wrote it; a restriction that can't be read must not be passed over.
            logger.warning("the active skill in the metadata can't be read, so no tool is allowed")
            return cls(name="(unreadable)", allowed_tools=())

    @property
    def allow_list(self) -> AllowList | None:
        """What it allows; None if it restricts nothing."""
        return None if self.allowed_tools is None else AllowList(self.allowed_tools)

    def as_metadata(self) -> dict[str, Any]:
        """The metadata that keeps it."""
        allowed = None if self.allowed_tools is None else list(self.allowed_tools)
        return {ACTIVE_SKILL: {**asdict(self), "allowed_tools": allowed}}


PUT_DOWN: dict[str, Any] = {ACTIVE_SKILL: None}
"""The metadata after which no skill is active."""


def active_skill_hooks() -> Iterator[Hook]:
    """The hooks that enforce the active skill. Subagents are bound as well, and begin with the
    restriction of their parent instead of losing it, but not with its model."""
    yield make_hook(HookTrigger.BEFORE_EXECUTION, _cleared, name=SOURCE)
    yield make_hook(HookTrigger.BEFORE_INFERENCE, _narrowed, name=SOURCE, inherited=True)
    yield make_hook(HookTrigger.BEFORE_INFERENCE, _with_model, name=SOURCE, inherited=True)
    yield make_hook(
        HookTrigger.BEFORE_TOOL, _checked, priority=BEHIND_REWRITES, name=SOURCE, inherited=True
    )


def _cleared(context: HookContext) -> HookContext | None:
    """A new execution begins without a skill; one that goes on has steps already."""
    state = context.state
    if state.steps or ACTIVE_SKILL not in state.metadata:
        return None
    kept = {key: value for key, value in state.metadata.items() if key != ACTIVE_SKILL}
    return context.with_state(replace(state, metadata=kept))


def _narrowed(context: HookContext) -> HookContext | None:
    request, active = context.request, ActiveSkill.in_(context.state)
    allowed = None if active is None else active.allow_list
    if request is None or allowed is None:
        return None
    names = allowed.names
    tools = tuple(tool for tool in request.tools if tool.name in names)
    return context.with_request(replace(request, tools=tools))


def _with_model(context: HookContext) -> HookContext | None:
    request, active = context.request, ActiveSkill.in_(context.state)
    if request is None or active is None or active.model is None:
        return None
    if active.loaded_by != context.state.agent_id:
        return None
    settings = replace(request.settings, model=active.model)
    return context.with_request(replace(request, settings=settings))


def _checked(context: HookContext) -> HookContext | None:
    call, active = context.call, ActiveSkill.in_(context.state)
    allowed = None if active is None else active.allow_list
    if call is None or active is None or allowed is None:
        return None
    # A call that waited for a person was let through before, when it was made; the skill may have
    # been loaded after it.
    if context.answered is not None or allowed.permits(call.name, call.arguments):
        return None
    # An agent below the one that loaded the skill is bound as well, and may lack the tool.
    plain = f"{PLAIN_COMMANDS} " if call.name == BASH and allowed.limits_bash else ""
    return context.block(
        f"the active skill {active.name!r} does not allow this call of {call.name}; it allows: "
        f"{allowed}. {plain}To go on without the skill, call {LOAD_SKILL}(done=True), if you have "
        "that tool"
    )

"""The active skill of a run: stored in the state's metadata, enforced by hooks.

It is active until it is deactivated, another skill is loaded or the execution ends. It survives a
pause.
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

AFTER_REWRITES = -9_000
"""After hooks that rewrite calls and before approvals: the check sees the call that will run, and
nobody is asked to approve a call that is refused anyway."""


class ActiveSkill(Struct, frozen=True, kw_only=True):
    """The loaded skill as stored in the state. ``allowed_tools`` None restricts nothing; an empty
    list leaves only the tools that are always allowed. ``model`` applies only to the agent that
    loaded the skill."""

    name: str
    allowed_tools: tuple[str, ...] | None = None
    model: str | None = None
    loaded_by: str | None = None

    @classmethod
    def in_(cls, state: AgentState) -> "ActiveSkill | None":
        """Return the active skill of a state, or None."""
        stored = state.metadata.get(ACTIVE_SKILL)
        if stored is None:
            return None
        try:
            return convert(stored, cls)
        except ValidationError:
            # Someone else wrote it; a restriction that can't be read must not be ignored.
            logger.warning("the active skill in the metadata is not valid, so no tool is allowed")
            return cls(name="(unreadable)", allowed_tools=())

    @property
    def allow_list(self) -> AllowList | None:
        """The allowed tools; None means no restriction."""
        return None if self.allowed_tools is None else AllowList(self.allowed_tools)

    def as_metadata(self) -> dict[str, Any]:
        """Return the metadata that stores it."""
        allowed = None if self.allowed_tools is None else list(self.allowed_tools)
        return {ACTIVE_SKILL: {**asdict(self), "allowed_tools": allowed}}


NO_ACTIVE_SKILL: dict[str, Any] = {ACTIVE_SKILL: None}
"""The metadata that deactivates the skill."""


def active_skill_hooks() -> Iterator[Hook]:
    """Yield the hooks that enforce the active skill. Subagents inherit the restriction, but not
    the model."""
    yield make_hook(HookTrigger.BEFORE_EXECUTION, _clear, name=SOURCE)
    yield make_hook(HookTrigger.BEFORE_INFERENCE, _filter_tools, name=SOURCE, inherited=True)
    yield make_hook(HookTrigger.BEFORE_INFERENCE, _set_model, name=SOURCE, inherited=True)
    yield make_hook(
        HookTrigger.BEFORE_TOOL, _check_call, priority=AFTER_REWRITES, name=SOURCE, inherited=True
    )


def _clear(context: HookContext) -> HookContext | None:
    """Start a new execution without a skill. A resumed execution has steps already."""
    state = context.state
    if state.steps or ACTIVE_SKILL not in state.metadata:
        return None
    stored = {key: value for key, value in state.metadata.items() if key != ACTIVE_SKILL}
    return context.with_state(replace(state, metadata=stored))


def _filter_tools(context: HookContext) -> HookContext | None:
    request, active = context.request, ActiveSkill.in_(context.state)
    allowed = None if active is None else active.allow_list
    if request is None or allowed is None:
        return None
    names = allowed.names
    tools = tuple(tool for tool in request.tools if tool.name in names)
    return context.with_request(replace(request, tools=tools))


def _set_model(context: HookContext) -> HookContext | None:
    request, active = context.request, ActiveSkill.in_(context.state)
    if request is None or active is None or active.model is None:
        return None
    if active.loaded_by != context.state.agent_id:
        return None
    settings = replace(request.settings, model=active.model)
    return context.with_request(replace(request, settings=settings))


def _check_call(context: HookContext) -> HookContext | None:
    call, active = context.call, ActiveSkill.in_(context.state)
    allowed = None if active is None else active.allow_list
    if call is None or active is None or allowed is None:
        return None
    # A call that waited for a person passed this check when it was made; the skill may have been
    # loaded later.
    if context.answered is not None or allowed.permits(call.name, call.arguments):
        return None
    # A subagent inherits the restriction but may not have load_skill.
    plain = f"{PLAIN_COMMANDS} " if call.name == BASH and allowed.limits_bash else ""
    return context.block(
        f"the active skill {active.name!r} does not allow this call of {call.name}; it allows: "
        f"{allowed}. {plain}To continue without the skill, call {LOAD_SKILL}(done=True), if you "
        "have that tool"
    )

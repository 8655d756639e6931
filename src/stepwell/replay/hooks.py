"""Runs the hooks of a replayed agent, except those that call models or export telemetry: a replay
calls no model and records nothing twice.
"""

from collections.abc import Iterable
from inspect import isawaitable
from typing import Any

from msgspec.structs import replace

from stepwell.agent.base_criteria import BASE_CRITERIA
from stepwell.agent.plan import AgentPlan
from stepwell.capabilities.telemetry.capability import NAME as TELEMETRY
from stepwell.criteria import ContinuationCriteria, criterion_name
from stepwell.hooks import Hook, HookContext, HookTrigger
from stepwell.replay.metadata import MetadataOfTools
from stepwell.replay.stored_execution import ReplaySource
from stepwell.replay.votes import OmittedHooks, with_votes_of
from stepwell.scope import ModelRefusedError, NoModels
from stepwell.tools import Tools

VOTERS_OF_EVERY_AGENT = {"AgentLoop", "AtLimit", *(base.name for base in BASE_CRITERIA)}
_DECIDE_THE_STEP = frozenset({HookTrigger.ON_ERROR, HookTrigger.ON_STOP})


class ReplayedHooks:
    """The hooks of a plan, as a replay runs them."""

    def __init__(self, plan: AgentPlan, stored: ReplaySource, metadata: MetadataOfTools) -> None:
        self._stored = stored
        self._metadata = metadata
        self._hooks = [hook for hook in plan.hooks if hook.name != TELEMETRY]
        self._has_telemetry = len(self._hooks) < len(plan.hooks)
        self._asked: dict[str, None] = {}
        stored.left_out = OmittedHooks(names=set(), claimed=_claimed_names(plan, self._hooks))
        for hook in self._hooks:
            if hook.asks_model:
                self._leave_out(hook)

    def hooks(self) -> tuple[Hook, ...]:
        """Return the hooks that run."""
        return tuple(self._without_models(hook) for hook in self._hooks if not hook.asks_model)

    def notes(self) -> Iterable[str]:
        """Yield notes on what was left out, what was refused, and whose code ran."""
        for name in sorted({hook.name for hook in self._hooks if hook.asks_model}):
            yield f"{name} asks a model, so it was left out; its votes are as stored"
        for name in self._asked:
            yield f"hook {name!r} asked a model, which a replay refuses; its votes are as stored"
        if self._has_telemetry:
            yield f"{TELEMETRY} was left out, so that nothing is recorded twice"
        left_out = self._stored.left_out.names
        own = {it.name: None for it in self._hooks if _is_own(it) and it.name not in left_out}
        if own:
            yield f"hooks of your own ran for real: {', '.join(own)}"
        yield from self._metadata.notes()

    def _without_models(self, hook: Hook) -> Hook:
        async def run(context: HookContext) -> HookContext | None:
            with NoModels() as block:
                try:
                    answer = await self._answer(hook, context)
                except (ModelRefusedError, BaseExceptionGroup):  # a group: it asked in tasks
                    if not block.refused:
                        raise
                    answer = None
            if not block.refused:
                return answer
            self._asked[hook.name] = None
            self._leave_out(hook)
            return self._stored_answer(context)

        return replace(hook, function=run)

    async def _answer(self, hook: Hook, context: HookContext) -> HookContext | None:
        answer = await _call(hook, context)
        if not isinstance(answer, HookContext):
            return answer  # nothing, or what the hook stack will refuse
        again = self._metadata.claim_for_hook(context, answer, hook.name)
        if again is None:
            return answer
        other = await _call(hook, again)
        return self._metadata.choose(answer, again if other is None else other)

    def _leave_out(self, hook: Hook) -> None:
        left_out = self._stored.left_out
        left_out.names.add(hook.name)
        left_out.signs_otherwise = left_out.signs_otherwise or _is_own(hook)

    def _stored_answer(self, context: HookContext) -> HookContext | None:
        """Where the step is decided on, the votes that the hook gave there; what it votes earlier
        is added at the end of the step."""
        step = self._stored.step(context.state.step_count)
        if context.trigger not in _DECIDE_THE_STEP or step is None:
            return None
        state = with_votes_of(self._stored.left_out, step.outcome, context.state)
        return context.with_state(state)


async def _call(hook: Hook, context: HookContext) -> Any:
    answer = hook.function(context)
    return await answer if isawaitable(answer) else answer


def _is_own(hook: Hook) -> bool:
    """Whether it is the user's, and not of this library."""
    module = getattr(hook.function, "__module__", None) or ""
    return module.partition(".")[0] != "stepwell"


def _claimed_names(plan: AgentPlan, hooks: Iterable[Hook]) -> set[str]:
    """The names under which others than hooks that ask models vote."""
    criteria = ContinuationCriteria(*plan.criteria).criteria if plan.criteria else ()
    return {
        *VOTERS_OF_EVERY_AGENT,
        *(criterion_name(criterion) for criterion in criteria),
        *Tools(plan.tools).names,
        *(hook.name for hook in hooks),
    }

"""Messages that a running loop sees before its next step. ``intake`` stores them; what a run ends
without having seen becomes an execution of its own."""

from collections.abc import Awaitable

from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.sessions.attempt.attempt import FIRST, Attempt, attempt_of
from stepwell.sessions.first_state import as_message


def steering_hooks() -> tuple[Hook, ...]:
    """Return what the plan of a session's agent is given."""
    return (make_hook(HookTrigger.BEFORE_STEP, _steer, priority=FIRST, name="steering"),)


def _steer(context: HookContext) -> Awaitable[HookContext | None] | HookContext | None:
    attempt, outcome = attempt_of(context.state), context.state.outcome
    if attempt is None:
        return None
    if outcome is not None and outcome.delay_seconds:
        return _fetch_and_steer(context, attempt)
    return _with_unseen(context, attempt)


async def _fetch_and_steer(context: HookContext, attempt: Attempt) -> HookContext | None:
    """After a wait between two steps: somebody may have written meanwhile."""
    async with attempt.writer as store:
        await store.read(attempt.inbox.fetch)
    return _with_unseen(context, attempt)


def _with_unseen(context: HookContext, attempt: Attempt) -> HookContext | None:
    unseen = attempt.inbox.take()
    if not unseen:
        return None
    return context.with_state(context.state.with_message(*map(as_message, unseen)))

"""Messages that a running loop sees before its next step. ``intake`` stores them; what a run ends
without having seen becomes an execution of its own."""

from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.sessions.attempt.attempt import FIRST, attempt_of
from stepwell.sessions.first_state import as_message


def steering_hooks() -> tuple[Hook, ...]:
    """Return what the plan of a session's agent is given."""
    return (make_hook(HookTrigger.BEFORE_STEP, _steer, priority=FIRST, name="steering"),)


async def _steer(context: HookContext) -> HookContext | None:
    state = context.state
    attempt = attempt_of(state)
    if attempt is None:
        return None
    if state.outcome is not None and state.outcome.delay_seconds:
        # After a wait between two steps: somebody may have written meanwhile.
        await attempt.writer.read(attempt.inbox.fetch)
    unseen = attempt.inbox.take()
    if not unseen:
        return None
    return context.with_state(state.with_message(*map(as_message, unseen)))

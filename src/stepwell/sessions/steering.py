"""Messages that a running loop sees before its next step. Who sends them is told by ``intake``;
what a run ends without having seen becomes an execution of its own, by ``finishing``."""

from typing import Any

from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.messages import Message
from stepwell.sessions.ledger import FIRST
from stepwell.sessions.records import SessionMessage
from stepwell.sessions.running import running_of


def steering_hooks() -> tuple[Hook, ...]:
    """What the plan of a session's agent is given."""
    return (make_hook(HookTrigger.BEFORE_STEP, _steered, priority=FIRST, name="steering"),)


def as_message(sent: SessionMessage) -> Message:
    """What a user sent, as the model sees it; where it was sent from is a note beside it."""
    noted: dict[str, Any] = {
        "related_type": sent.related_type,
        "related_id": sent.related_id,
        "context_url": sent.context_url,
    }
    metadata = {name: value for name, value in noted.items() if value is not None}
    return Message.user(sent.content, id=sent.id, metadata=metadata)


async def _steered(context: HookContext) -> HookContext | None:
    state = context.state
    running = running_of(state)
    if running is None:
        return None
    if state.outcome is not None and state.outcome.delay_seconds:
        await running.look_for_steering()
    unseen = [sent for sent in running.steering if sent.id not in running.seen]
    if not unseen:
        return None
    running.seen.update(sent.id for sent in unseen)
    running.steering = []
    return context.with_state(state.with_message(*map(as_message, unseen)))

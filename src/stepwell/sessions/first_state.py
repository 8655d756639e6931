"""The state that an execution begins with: its session's newest state and the messages it answers.
Used by the runner, and for executions that end before they have stored a state.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from stepwell.messages import Message
from stepwell.sessions.ids import derived_id
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, SessionMessage
from stepwell.sessions.snapshot_chain import SnapshotChain
from stepwell.state import AgentState


def agent_id_of(execution: Execution) -> str:
    """Return the id of the agent, which is the same in all executions of a session."""
    return derived_id(execution.session_id or execution.id, "agent")


def as_message(sent: SessionMessage) -> Message:
    """Return a user's message as the model sees it, with its context as metadata."""
    noted: dict[str, Any] = {
        "related_type": sent.related_type,
        "related_id": sent.related_id,
        "context_url": sent.context_url,
    }
    metadata = {name: value for name, value in noted.items() if value is not None}
    return Message.user(sent.content, id=sent.id, metadata=metadata)


def user_message_ids(state: AgentState) -> frozenset[str]:
    """Return the ids of the user messages in a state."""
    return frozenset(message.id for message in state.messages if message.is_user())


async def messages_to_answer(tx: Transaction, execution: Execution) -> list[SessionMessage]:
    """Load the messages that an execution answers."""
    ids: Sequence[str] = execution.input.get("message_ids", ())
    return [sent for id in ids if (sent := await tx.message(id)) is not None]


async def load_session_state(
    tx: Transaction, execution: Execution, chain: SnapshotChain
) -> AgentState | None:
    """Load what the session of an execution knows; None if it knows nothing yet. Raises
    ``SerializationError`` and ``NotThereError``."""
    if execution.session_id is None:
        return None
    session = await tx.session(execution.session_id)
    newest = None if session is None else session.last_snapshot_id
    return None if newest is None else await chain.load(tx, newest)


def with_messages(state: AgentState, sent: Sequence[SessionMessage]) -> AgentState:
    """Add those of the messages that a state does not have; return the same state if it has all."""
    known = user_message_ids(state)
    unseen = [as_message(it) for it in sent if it.id not in known]
    return state.with_message(*unseen) if unseen else state


def first_state(
    execution: Execution, known: AgentState | None, sent: Sequence[SessionMessage], at: datetime
) -> AgentState:
    """Return the state before the first step of an execution."""
    state = known or AgentState.empty(agent_id=agent_id_of(execution), at=at)
    return with_messages(state, sent).with_execution_started(execution.id, at)

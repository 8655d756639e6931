"""What was said before a session began: stored as messages that people read, and as the state that
its first execution starts from. Called by ``admission``.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stepwell.messages import Message
from stepwell.sessions.first_state import agent_id_of
from stepwell.sessions.ids import derived_id
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, MessageRole, Session, SessionMessage
from stepwell.sessions.snapshot_chain import SnapshotChain
from stepwell.state import AgentState


def history_snapshot_id(session: Session) -> str:
    """Return the id of the snapshot that holds the history of a session."""
    return derived_id(session.id, "history")


async def add_history(
    transaction: Transaction, session: Session, execution: Execution, history: Sequence[Message]
) -> None:
    """Add the history to a session that was just added; ``execution`` is its first."""
    state = AgentState.empty(agent_id=agent_id_of(execution), at=execution.created_at)
    snapshot = SnapshotChain(0.0).next(
        execution,
        state.with_messages(_with_ids(session, history)),
        id=history_snapshot_id(session),
        at=execution.created_at,
        is_final=False,
    )
    await transaction.add_snapshot(snapshot)
    await transaction.add_messages(
        session, [_session_message(session, message) for message in _with_ids(session, history)]
    )


def _with_ids(session: Session, history: Sequence[Message]) -> list[Message]:
    return [
        replace(message, id=derived_id(session.id, "history", number))
        for number, message in enumerate(history)
    ]


def _session_message(session: Session, message: Message) -> SessionMessage:
    return SessionMessage(
        id=message.id,
        tenant_id=session.tenant_id,
        session_id=session.id,
        role=MessageRole.USER if message.is_user() else MessageRole.ASSISTANT,
        content=message.text,
        created_at=session.created_at,
    )

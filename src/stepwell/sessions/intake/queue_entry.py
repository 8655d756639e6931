"""Makes the row of a queued execution and the session message that announces it. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from stepwell.errors import AgentNotFoundError
from stepwell.sessions.directory import AgentDirectory, RegisteredAgent
from stepwell.sessions.errors import ConflictError
from stepwell.sessions.ids import derived_id
from stepwell.sessions.principal import Principal, stored_principal
from stepwell.sessions.records import (
    EventType,
    Execution,
    MessageRole,
    Session,
    SessionMessage,
)
from stepwell.sessions.settled_seq import first_seq_in

QUEUED = "Execution queued"
QUEUED_BEHIND = "Execution queued behind one that waits for an answer"


def later_than(session: Session, now: datetime) -> datetime:
    """Return now, or just after the session's last message if a clock runs behind."""
    last = session.last_message_at
    return now if last is None or now > last else last + timedelta(microseconds=1)


def registered_agent(agents: AgentDirectory, session: Session) -> RegisteredAgent:
    """Return the agent of a session. Raises ``ConflictError`` if it is not registered any more."""
    try:
        return agents.get(session.agent_type)
    except AgentNotFoundError as error:
        raise ConflictError(
            f"session {session.id} belongs to the agent {session.agent_type!r}, which is not "
            "registered any more; register it again, or begin a new session",
            code="agent_gone",
        ) from error


def queued_execution(
    session: Session,
    agent: RegisteredAgent,
    *,
    id: str,
    who: Principal,
    claims: Sequence[str],
    at: datetime,
    message_ids: Sequence[str],
) -> Execution:
    """Return a pending execution that answers these messages as ``who``, of whom the named claims
    are kept. The session must be locked."""
    return Execution(
        id=id,
        tenant_id=session.tenant_id,
        session_id=session.id,
        user_id=who.user_id,
        principal=stored_principal(who, claims),
        agent_type=session.agent_type,
        definition_hash=agent.definition_hash,
        agent_config=agent.config,
        input={"message_ids": list(message_ids)},
        metadata=first_seq_in(session),
        created_at=at,
        updated_at=at,
    )


def queued_message(
    execution: Execution, session: Session, at: datetime, text: str = QUEUED, *parts: object
) -> SessionMessage:
    """Return the info message for a queued execution; ``parts`` make its id unique."""
    return SessionMessage(
        id=derived_id(execution.id, "queued", *parts),
        tenant_id=session.tenant_id,
        session_id=session.id,
        role=MessageRole.INFO,
        content=text,
        created_at=at,
        agent_execution_id=execution.id,
        metadata={"event_type": EventType.EXECUTION_QUEUED.value},
    )

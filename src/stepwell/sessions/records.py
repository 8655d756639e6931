"""What the app server keeps: sessions, messages, executions, snapshots, events, intents, keys.

Rows as values; field names are column names. Every one belongs to a tenant. What can be asked of a
database about them is in ``ports``.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.ids import nearby_id
from stepwell.state import Pending, PendingKind, Question


class SessionStatus(StrEnum):
    """Whether a session takes messages: only an active one does."""

    ACTIVE = "active"
    ARCHIVED = "archived"
    CLOSED = "closed"


class MessageRole(StrEnum):
    """Who speaks in a session; info and notification can be folded away."""

    USER = "user"
    ASSISTANT = "assistant"
    INFO = "info"
    NOTIFICATION = "notification"


class WhenBusy(StrEnum):
    """What happens to a message that is sent while an execution of its session is not over."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    STEER = "steer"


class EventType(StrEnum):
    """What the app server itself tells, beside the envelopes of ``broadcasting``: each of these
    comes with a session message, except ``session.updated``, and ``event.damaged``, which takes the
    place of an event that can't be read and is never stored."""

    MESSAGE_SENT = "message.sent"
    EXECUTION_QUEUED = "execution.queued"
    EXECUTION_STARTED = "execution.started"
    STEP_STARTED = "step.started"
    TOOL_CALLED = "tool.called"
    TOOL_COMPLETED = "tool.completed"
    STEP_COMPLETED = "step.completed"
    EXECUTION_PAUSED = "execution.paused"
    EXECUTION_COMPLETED = "execution.completed"
    EXECUTION_FAILED = "execution.failed"
    EXECUTION_CANCELLED = "execution.cancelled"
    SESSION_UPDATED = "session.updated"
    EVENT_DAMAGED = "event.damaged"


class Session(Struct, frozen=True, kw_only=True):
    """A thread that people see.

    ``last_seq`` and ``last_message_at`` are the counters from which the store numbers events and
    times messages; they change under the session's lock only.
    """

    id: str
    tenant_id: str
    user_id: str
    agent_type: str
    """The name under which the agent is registered."""
    created_at: datetime
    updated_at: datetime
    title: str | None = None
    status: SessionStatus = SessionStatus.ACTIVE
    when_busy: WhenBusy = WhenBusy.ENQUEUE
    related_type: str | None = None
    related_id: str | None = None
    initial_context_url: str | None = None
    metadata: Mapping[str, Any] = {}
    last_execution_id: str | None = None
    last_snapshot_id: str | None = None
    last_seq: int = 0
    last_message_at: datetime | None = None


class JournalHead(Struct, frozen=True, kw_only=True):
    """What a transaction that only adds to a session's journal and messages knows of it."""

    id: str
    tenant_id: str
    last_seq: int


class SessionMessage(Struct, frozen=True, kw_only=True):
    """One entry of a session; ``created_at`` is strictly increasing within it."""

    id: str
    tenant_id: str
    session_id: str
    role: MessageRole
    content: str
    created_at: datetime
    agent_execution_id: str | None = None
    related_type: str | None = None
    related_id: str | None = None
    context_url: str | None = None
    metadata: Mapping[str, Any] = {}
    """``event_type`` says what an info or notification tells of."""
    idempotency_key: str | None = None
    """Unique within a tenant; made of the user's id and the key that the client gave."""


PUBLISHED_STATUS = "told_status"
"""The key in an execution's metadata under which the next attempt finds the status that clients
know last."""
PASSED_ON = "passed_on"
"""The key in an execution's metadata for messages to it that another execution answers."""


class Execution(Struct, frozen=True, kw_only=True):
    """One technical run of an agent, and who works on it.

    ``attempt`` counts the claims and fences: who was given an older number can't write any more.
    ``crashes`` counts the claims since the last step that ended without a word.
    """

    id: str
    tenant_id: str
    agent_type: str
    definition_hash: str
    created_at: datetime
    updated_at: datetime
    session_id: str | None = None
    user_id: str | None = None
    parent_execution_id: str | None = None
    status: ExecutionStatus = ExecutionStatus.PENDING
    agent_config: Mapping[str, Any] = {}
    input: Mapping[str, Any] = {}
    """``message_ids``: the user messages that it answers."""
    output: Any = None
    step_count: int = 0
    token_usage: int = 0
    token_details: Mapping[str, int] = {}
    cost: float = 0.0
    stop_reason: str | None = None
    decision: Mapping[str, Any] | None = None
    """The whole outcome that ended or paused it, with every evaluation."""
    pending: tuple[Mapping[str, Any], ...] = ()
    """What a paused execution waits for: question_id, kind, prompt, call_id, tool_name, details.
    Rows written by versions before question ids lack the first: read ``questions``."""
    error_message: str | None = None
    last_snapshot_id: str | None = None
    metadata: Mapping[str, Any] = {}
    attempt: int = 0
    crashes: int = 0
    worker_id: str | None = None
    cancel_requested: str | None = None
    """Why a person wants it to end; None if nobody does."""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    principal: Mapping[str, Any] = {}
    """Who it runs as, beside ``user_id`` and ``tenant_id``: roles, is_admin, chosen claims."""

    @property
    def questions(self) -> tuple[Mapping[str, Any], ...]:
        """What it waits for, each with the ``question_id`` that an answer names."""
        return tuple([{"question_id": self._question_id(asked), **asked} for asked in self.pending])

    def _question_id(self, asked: Mapping[str, Any]) -> str:
        pending = Pending(
            kind=PendingKind(asked["kind"]),
            prompt=asked.get("prompt", ""),
            call_id=asked.get("call_id"),
            tool_name=asked.get("tool_name"),
            details=asked.get("details", {}),
        )
        return Question.of(pending, execution_id=self.id, step=self.step_count).id


class WorkerRecord(Struct, frozen=True, kw_only=True):
    """A worker process and its lease. Its executions may be taken over once the lease has run out
    or the record is gone."""

    id: str
    lease_until: datetime
    started_at: datetime
    version: str = ""
    agents: tuple[str, ...] = ()
    """The agent types that it runs."""
    host: str = ""
    pid: int = 0


class Snapshot(Struct, frozen=True, kw_only=True):
    """A state at one moment: a whole document, or an increment on the one before it in its chain.

    A chain begins with a whole snapshot, whose id is the ``chain_id`` of all; ``position`` counts
    from 0. The chain of a session goes on over its executions.
    """

    id: str
    tenant_id: str
    agent_execution_id: str
    chain_id: str
    position: int
    step_number: int
    state_json: str
    created_at: datetime
    is_final: bool = False
    agent_id: str | None = None
    agent_name: str | None = None
    parent_snapshot_id: str | None = None
    """Of a subagent's: the newest snapshot of its parent when it was made."""

    @property
    def is_whole(self) -> bool:
        """Whether it can be read without others."""
        return self.position == 0


class StoredEntry(Struct, frozen=True, kw_only=True):
    """One occurrence in the journal of a session; ``seq`` counts from 1 without gaps."""

    session_id: str
    seq: int
    type: str
    payload: Mapping[str, Any]
    execution_id: str | None = None
    message_id: str | None = None
    """The session message that people read of it: ``message_id`` of the payload."""
    created_at: datetime
    tenant_id: str

    @property
    def id(self) -> str:
        """The envelope's id; follows from the session and the number."""
        return nearby_id(self.session_id, self.seq)

    @property
    def event_type(self) -> str:
        """What people read of it, as the messages of the session call it; else its own type."""
        return self.payload.get("event_type", self.type)


class StepIntent(Struct, frozen=True, kw_only=True):
    """The open step of an execution: the model's turn and its calls, stored before the first call
    that is not pure begins. It counts while ``step_number`` is the step that comes next."""

    execution_id: str
    tenant_id: str
    step_number: int
    calls: str
    """A JSON list: id, tool, effect, attempt, time and, once known, result of each call."""
    created_at: datetime
    response: str | None = None
    """The model's response as JSON; None for a driver of its own, and for answered calls."""


class ApiKeyRecord(Struct, frozen=True, kw_only=True):
    """A key that a program signs in with. Only the hash of its secret is kept."""

    id: str
    tenant_id: str
    user_id: str
    name: str
    prefix: str
    secret_hash: str
    created_at: datetime
    is_admin: bool = False
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    roles: tuple[str, ...] = ()
    """The roles of whoever signs in with it."""

"""The transaction that stores one message. It may run more than once: all ids are made before the
first try, so a retry finds what an earlier try, or a send with the same idempotency key, stored.

Created by ``intake`` only.
"""

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from msgspec import Struct, json
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.journal.status import ExecutionStatus
from stepwell.messages import Message
from stepwell.sessions.directory import AgentDirectory, RegisteredAgent
from stepwell.sessions.endings.end import EndDeps
from stepwell.sessions.endings.end_request import EndRequest, request_ends
from stepwell.sessions.errors import ConflictError, NotThereError, TooManyError
from stepwell.sessions.ids import derived_id
from stepwell.sessions.intake.checks import title_of
from stepwell.sessions.intake.history import add_history, history_snapshot_id
from stepwell.sessions.intake.queue_entry import (
    QUEUED_BEHIND,
    later_than,
    queued_execution,
    queued_message,
    registered_agent,
)
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Jobs, Transaction, execution_topic
from stepwell.sessions.principal import Principal, stored_principal
from stepwell.sessions.records import (
    EventType,
    Execution,
    Session,
    SessionMessage,
    SessionStatus,
    WhenBusy,
)
from stepwell.sessions.settings import SessionSettings


class Sent(Struct, frozen=True, kw_only=True):
    """A stored message, and the execution that will answer it."""

    session: Session
    message: SessionMessage
    execution: Execution | None
    """None if the message steers a running execution."""
    repeated: bool = False
    """Whether it was sent before with the same idempotency key; then nothing changed."""


class IntakeDeps(Struct, frozen=True, kw_only=True, eq=False):
    """The dependencies of intake and requests."""

    jobs: Jobs
    agents: AgentDirectory
    settings: SessionSettings
    clock: Clock

    def end_request(self, reason: str) -> EndRequest:
        """Return the request to end executions for that reason."""
        deps = EndDeps(jobs=self.jobs, clock=self.clock, settings=self.settings)
        return EndRequest(reason=reason, deps=deps)


class ConcurrentSendError(Exception):
    """Raised when another transaction stored a message with the same key; nothing was written."""


def stored_key(user_id: str, key: str) -> str:
    """Return the idempotency key as it is stored: unique per user, whatever both contain.

    >>> stored_key("ada", "k1"), stored_key("a:b", "c") == stored_key("a", "b:c")
    ('ada:k1', False)
    """
    return f"{user_id.replace('%', '%25').replace(':', '%3A')}:{key}"


def fingerprint(*said: object) -> str:
    """Return a hash that differs if another body is sent with the same key."""
    return sha256(json.encode(said)).hexdigest()


class MessageAdmission:
    """A validated message and the ids of the rows that it becomes."""

    def __init__(
        self,
        deps: IntakeDeps,
        who: Principal,
        message: SessionMessage,
        *,
        execution_id: str,
        new_session: Session | None,
        history: Sequence[Message] = (),
    ) -> None:
        self._deps = deps
        self._who = who
        self._message = message
        self._execution_id = execution_id
        self._new_session = new_session
        self._history = history
        self._tries = 0

    async def work(self, transaction: Transaction) -> Sent:
        """Store the message and queue its execution, or return what an earlier try stored."""
        self._tries += 1
        before = await self._find_sent(transaction)
        if before is not None:
            return before
        if (new := self._new_session) is not None and not await self._is_there(transaction, new):
            return await self._begin(transaction, new)
        session = await self._lock_session(transaction)
        agent = registered_agent(self._deps.agents, session)
        unfinished = await transaction.unfinished(session.id)
        if unfinished:
            steered = await self._when_busy(transaction, session, unfinished)
            if steered is not None:
                return steered
            if session.when_busy is WhenBusy.INTERRUPT:
                session = await self._lock_session(transaction)
                unfinished = await transaction.unfinished(session.id)
        await self._check_queue(transaction)
        return await self._enqueue(transaction, session, agent, head=next(iter(unfinished), None))

    async def _begin(self, transaction: Transaction, session: Session) -> Sent:
        await self._check_queue(transaction)
        agent = registered_agent(self._deps.agents, session)
        # Set here, so that the row need not be saved again at the end.
        session = replace(
            session,
            last_execution_id=self._execution_id,
            last_snapshot_id=history_snapshot_id(session) if self._history else None,
        )
        await transaction.add_session(session)
        return await self._enqueue(transaction, session, agent, head=None, is_new=True)

    async def _is_there(self, transaction: Transaction, new: Session) -> bool:
        """Whether a session that a client named was added by somebody else: then an earlier try
        clashed with it."""
        return self._tries > 1 and await transaction.session(new.id) is not None

    async def _find_sent(self, transaction: Transaction) -> Sent | None:
        key = self._message.idempotency_key
        if key is not None:
            there = await transaction.message_by_key(self._who.tenant_id, key)
        elif self._tries > 1:
            there = await transaction.message(self._message.id)
        else:
            return None
        if there is None:
            return None
        if there.metadata.get("fingerprint") != self._message.metadata.get("fingerprint"):
            raise ConflictError(
                "another message was sent with this idempotency key; use a new key for a new "
                "message",
                code="idempotency_conflict",
            )
        session = await transaction.session(there.session_id)
        if session is None:
            raise NotThereError("session", there.session_id)
        execution_id = None if there.metadata.get("steers") else there.agent_execution_id
        execution = None if execution_id is None else await transaction.execution(execution_id)
        repeated = key is not None and execution_id != self._execution_id
        return Sent(session=session, message=there, execution=execution, repeated=repeated)

    async def _lock_session(self, transaction: Transaction) -> Session:
        session_id = self._message.session_id
        session = await transaction.session(session_id, lock=True)
        if session is None or session.tenant_id != self._who.tenant_id:
            raise NotThereError("session", session_id)
        if session.status is SessionStatus.ARCHIVED:
            raise ConflictError(
                f"session {session_id} is archived; reactivate it, or start a new one",
                code="session_archived",
            )
        if session.status is SessionStatus.CLOSED:
            raise ConflictError(
                f"session {session_id} is closed; start a new one", code="session_closed"
            )
        return session

    async def _check_queue(self, transaction: Transaction) -> None:
        limit = self._deps.settings.max_unfinished_per_user
        who = self._who
        count = await transaction.count_unfinished(who.tenant_id, who.user_id)
        if count >= limit:
            raise TooManyError(
                f"{count} of your executions are not over, and {limit} are allowed; wait for "
                "some, answer their questions, or cancel them",
                code="queue_full",
            )

    # Messages to a busy session

    async def _when_busy(
        self, transaction: Transaction, session: Session, unfinished: Sequence[Execution]
    ) -> Sent | None:
        head = unfinished[0]
        match session.when_busy:
            case WhenBusy.REJECT:
                raise ConflictError(
                    f"session {session.id} is busy: execution {head.id} is {head.status}; wait for "
                    "its end, cancel it, or set when_busy to enqueue",
                    code="busy",
                )
            case WhenBusy.INTERRUPT:
                request = self._deps.end_request("interrupted by a new message")
                await request_ends(transaction, unfinished, request)
            case WhenBusy.STEER:
                is_seen = head.status is ExecutionStatus.RUNNING and head.cancel_requested is None
                if is_seen and self._runs_as_sender(head):
                    return await self._steer(transaction, session, head)
            case WhenBusy.ENQUEUE:
                pass
        return None

    def _runs_as_sender(self, head: Execution) -> bool:
        """Whether the message may steer: a run keeps its principal, so a message of somebody else,
        or of the same user with other roles, gets an execution of its own."""
        kept = stored_principal(self._who, self._deps.settings.stored_claims)
        return (head.user_id, head.principal) == (self._who.user_id, kept)

    async def _steer(self, transaction: Transaction, session: Session, head: Execution) -> Sent:
        message = replace(
            self._message,
            agent_execution_id=head.id,
            metadata={**self._message.metadata, "steers": True},
        )
        session = replace(session, updated_at=later_than(session, message.created_at))
        message, session = await self._append(transaction, session, (message, None))
        await transaction.save_session(session)
        transaction.tell(execution_topic(head.id))
        return Sent(session=session, message=message, execution=None)

    async def _enqueue(
        self,
        transaction: Transaction,
        session: Session,
        agent: RegisteredAgent,
        *,
        head: Execution | None,
        is_new: bool = False,
    ) -> Sent:
        """Queue an execution; ``head`` is the session's current one."""
        at = later_than(session, self._message.created_at)
        execution = queued_execution(
            session,
            agent,
            id=self._execution_id,
            who=self._who,
            claims=self._deps.settings.stored_claims,
            at=at,
            message_ids=[self._message.id],
        )
        await transaction.add_execution(execution)
        if is_new and self._history:
            await add_history(transaction, session, execution, self._history)
        message = replace(self._message, created_at=at, agent_execution_id=execution.id)
        queued = _queued_note(execution, session, at, head)
        is_first = session.last_message_at is None
        message, session = await self._append(transaction, session, (message, queued))
        if not is_new:
            title = title_of(message.content) if is_first else None
            session = replace(
                session,
                title=session.title or title,
                last_execution_id=execution.id,
                updated_at=at,
            )
            await transaction.save_session(session)
        if head is None:
            await self._deps.jobs.enqueue(transaction, execution.id)
        return Sent(session=session, message=message, execution=execution)

    async def _append(
        self,
        transaction: Transaction,
        session: Session,
        messages: tuple[SessionMessage, SessionMessage | None],
    ) -> tuple[SessionMessage, Session]:
        """Add the messages to the session and its journal. Return the first as stored, and the
        session with its counters."""
        sent, queued = messages
        happened = [Occurrence.of_note(sent, EventType.MESSAGE_SENT)]
        if queued is not None:
            happened.append(Occurrence.of_note(queued, EventType.EXECUTION_QUEUED))
        stored = await transaction.append(session, happened)
        if len(stored) < len(happened):
            raise ConcurrentSendError
        last = stored[-1]
        return replace(sent, session_id=session.id, created_at=stored[0].created_at), replace(
            session, last_seq=last.seq, last_message_at=last.created_at
        )


def _queued_note(
    execution: Execution, session: Session, at: datetime, head: Execution | None
) -> SessionMessage:
    if head is None or head.status is not ExecutionStatus.PAUSED:
        return queued_message(execution, session, at)
    message = queued_message(execution, session, at, QUEUED_BEHIND)
    return replace(message, metadata={**message.metadata, "waits_behind": head.id})


def keyed_message_id(tenant_id: str, key: str) -> str:
    """Return the id of a message with a key, so that two senders can't both store it."""
    return derived_id(tenant_id, "message", key)

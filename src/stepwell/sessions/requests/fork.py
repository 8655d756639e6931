"""Forks a session: a new one starts from the state of an execution after some step.

Messages are copied and the state is stored whole under new ids; the old session does not change.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepwell.continuation import AgentStatus
from stepwell.ids import IdFactory
from stepwell.messages import Message
from stepwell.sessions.endings.end import cancelled_end
from stepwell.sessions.endings.final_state import end_state
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.ids import derived_id
from stepwell.sessions.intake.admission import IntakeDeps, Sent
from stepwell.sessions.intake.checks import MAX_TITLE_CHARACTERS, check_content
from stepwell.sessions.intake.queue_entry import (
    later_than,
    queued_execution,
    queued_message,
    registered_agent,
)
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import (
    EventType,
    Execution,
    MessageRole,
    Session,
    SessionMessage,
    Snapshot,
)
from stepwell.sessions.snapshot_chain import SnapshotChain
from stepwell.sessions.views.reader import messages_that
from stepwell.state import AgentState

MOST_EXECUTIONS = 1_000_000
NOT_APPROVED_HERE = (
    "Not run in this fork: the answer was for the execution that it was forked from, and holds once"
)


class ForkSource(Struct, frozen=True, kw_only=True):
    """The session and messages that a fork starts from."""

    session: Session | None
    messages: tuple[SessionMessage, ...]


class ForkRequest:
    """One request to fork, with the ids of the rows that it becomes."""

    def __init__(
        self,
        deps: IntakeDeps,
        who: Principal,
        execution: Execution,
        state: AgentState,
        new_id: IdFactory,
        text: str | None,
    ) -> None:
        self._deps = deps
        self._who = who
        self._from = execution
        self._state = state
        self._session_id = new_id()
        self._execution_id = new_id()
        self._goes_on = state.execution is not None and state.status is AgentStatus.IN_PROGRESS
        self._text = text
        if text is not None:
            self._text = check_content(text, deps.settings.max_message_characters)
        elif not self._goes_on:
            raise RefusedError(
                f"after step {state.step_count} execution {execution.id} is {state.status}, so a "
                "fork does not go on by itself; say in a message what it is to do",
                code="message_needed",
            )

    async def source(self, transaction: Transaction) -> ForkSource:
        """Load the session that is forked, and its messages up to the step."""
        session_id = self._from.session_id
        session = None if session_id is None else await transaction.session(session_id)
        if session is None:
            return ForkSource(session=None, messages=())
        executions = await transaction.executions(session_id=session.id, limit=MOST_EXECUTIONS)
        by_id = {execution.id: execution for execution in executions}
        copied = await messages_that(
            transaction, session.id, lambda message: self._is_copied(message, by_id)
        )
        return ForkSource(session=session, messages=tuple(copied))

    def _is_copied(self, message: SessionMessage, executions: dict[str, Execution]) -> bool:
        if message.role not in (MessageRole.USER, MessageRole.ASSISTANT):
            return False
        of = executions.get(message.agent_execution_id or "")
        if of is None or of.id != self._from.id:
            # Of an earlier execution, or of a time before the first one.
            at = message.created_at if of is None else of.created_at
            return at < self._from.created_at
        if message.role is MessageRole.USER and not message.metadata.get("steers"):
            return True
        return self._state.is_finished or message.created_at <= self._state.updated_at

    def work(self, source: ForkSource) -> Callable[[Transaction], Awaitable[Sent]]:
        """Return the work of the transaction."""
        session = self._session(source)
        agent = registered_agent(self._deps.agents, session)
        at = later_than(session, session.created_at)
        message = self._message(session, at)
        execution = queued_execution(
            session,
            agent,
            id=self._execution_id,
            who=self._who,
            claims=self._deps.settings.stored_claims,
            at=at,
            message_ids=[] if message is None else [message.id],
        )
        state = self._forked_state(message)
        snapshot = self._snapshot(execution, state, at)
        if self._goes_on:
            execution = replace(execution, last_snapshot_id=snapshot.id)
        session = replace(session, last_execution_id=execution.id, last_snapshot_id=snapshot.id)
        copies = [self._copy(said, session) for said in source.messages]
        notes = [(self._note(session, at), EventType.MESSAGE_SENT)]
        if message is not None:
            notes.append((message, EventType.MESSAGE_SENT))
        notes.append((queued_message(execution, session, at), EventType.EXECUTION_QUEUED))

        async def fork(transaction: Transaction) -> Sent:
            before = await transaction.session(session.id)
            if before is None:
                await transaction.add_session(session)
                await transaction.add_execution(execution)
                await transaction.add_snapshot(snapshot)
                await transaction.add_messages(session, copies)
                await transaction.append(session, [Occurrence.of_note(*it) for it in notes])
                await self._deps.jobs.enqueue(transaction, execution.id)
            now = before or await transaction.session(session.id) or session
            shown = notes[0][0] if message is None else message
            there = await transaction.message(shown.id) or shown
            return Sent(session=now, message=there, execution=execution)

        return fork

    def _session(self, source: ForkSource) -> Session:
        now, old = self._deps.clock.now(), source.session
        title = f"Fork of {(old and old.title) or self._from.agent_type}"
        metadata: dict[str, Any] = {} if old is None else dict(old.metadata)
        metadata["forked_from"] = {
            "execution_id": self._from.id,
            "step_number": self._state.step_count,
        }
        base = Session(
            id=self._session_id,
            tenant_id=self._from.tenant_id,
            user_id=self._who.user_id,
            agent_type=self._from.agent_type,
            created_at=now,
            updated_at=now,
            title=title[:MAX_TITLE_CHARACTERS],
            metadata=metadata,
        )
        if old is None:
            return base
        return replace(
            base,
            when_busy=old.when_busy,
            related_type=old.related_type,
            related_id=old.related_id,
            initial_context_url=old.initial_context_url,
        )

    def _message(self, session: Session, at: datetime) -> SessionMessage | None:
        if self._text is None:
            return None
        return SessionMessage(
            id=derived_id(self._session_id, "message"),
            tenant_id=session.tenant_id,
            session_id=session.id,
            role=MessageRole.USER,
            content=self._text,
            created_at=at,
            agent_execution_id=self._execution_id,
        )

    def _note(self, session: Session, at: datetime) -> SessionMessage:
        return SessionMessage(
            id=derived_id(self._session_id, "forked"),
            tenant_id=session.tenant_id,
            session_id=session.id,
            role=MessageRole.INFO,
            content=f"Forked from execution {self._from.id} after step {self._state.step_count}",
            created_at=at,
            agent_execution_id=self._execution_id,
            metadata={"event_type": EventType.MESSAGE_SENT.value},
        )

    def _copy(self, message: SessionMessage, session: Session) -> SessionMessage:
        metadata = {name: it for name, it in message.metadata.items() if name not in _NOT_COPIED}
        return replace(
            message,
            id=derived_id(self._session_id, "copy", message.id),
            session_id=session.id,
            tenant_id=session.tenant_id,
            agent_execution_id=None,
            idempotency_key=None,
            metadata={**metadata, "copied_from": message.id},
        )

    def _forked_state(self, message: SessionMessage | None) -> AgentState:
        # Two sessions never share an agent id.
        state = replace(self._state, agent_id=derived_id(self._session_id, "agent"))
        if not self._goes_on:
            if state.status is AgentStatus.PAUSED:
                end = cancelled_end("the fork went on without an answer")
                state = end_state(state, end.outcome, self._deps.clock)
            return state
        if state.execution is not None:
            state = replace(state, execution=replace(state.execution, id=self._execution_id))
            state = state.with_answers_dropped(NOT_APPROVED_HERE)
        if message is not None:
            state = state.with_message(Message.user(message.content, id=message.id))
        return state

    def _snapshot(self, execution: Execution, state: AgentState, at: datetime) -> Snapshot:
        """Return a whole snapshot; it has step number 0 if the execution does not continue."""
        chain = SnapshotChain(self._deps.settings.snapshot_growth)
        id = derived_id(self._session_id, "snapshot")
        snapshot = chain.next(execution, state, id=id, at=at, is_final=False)
        return snapshot if self._goes_on else replace(snapshot, step_number=0)


_NOT_COPIED = ("steers", "fingerprint")

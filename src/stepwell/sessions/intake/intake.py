"""Admission: stores what a user sends in one transaction, and returns at once.

Called by the routes and by the app. The caller has checked that the user may write to a session;
sessions of other tenants do not exist here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from stepwell.clock import Clock, SystemClock
from stepwell.ids import IdFactory, new_id
from stepwell.messages import Message
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.intake.admission import (
    ConcurrentSendError,
    IntakeDeps,
    MessageAdmission,
    Sent,
    fingerprint,
    keyed_message_id,
    stored_key,
)
from stepwell.sessions.intake.checks import (
    RESERVED_IN_MESSAGES,
    check_content,
    check_key,
    check_metadata,
    check_text,
    check_title,
    title_of,
)
from stepwell.sessions.intake.contexts import NO_CONTEXT, Context, ContextResolver, resolve_context
from stepwell.sessions.ports import Jobs, Store, Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import MessageRole, Session, SessionMessage, WhenBusy
from stepwell.sessions.settings import SessionSettings

__all__ = ["Intake", "NewMessage", "NewSession", "Sent"]

DEFAULT_SETTINGS = SessionSettings()


class NewSession(Struct, frozen=True, kw_only=True):
    """A session to create; without an agent it gets the application's first."""

    agent_type: str | None = None
    title: str | None = None
    when_busy: WhenBusy = WhenBusy.ENQUEUE
    context: Context = NO_CONTEXT
    metadata: Mapping[str, Any] = {}
    id: str | None = None
    """Derived from the name that a client gave the session; the session may exist already."""
    history: Sequence[Message] = ()
    """What was said before the session began."""


NEW_SESSION = NewSession()


class NewMessage(Struct, frozen=True, kw_only=True):
    """A message to send. Without a ``session_id`` a new session is created for it."""

    content: str
    session_id: str | None = None
    new_session: NewSession = NEW_SESSION
    context: Context = NO_CONTEXT
    metadata: Mapping[str, Any] = {}
    idempotency_key: str | None = None


class Intake:
    """Creates sessions and stores messages."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        agents: AgentDirectory,
        *,
        settings: SessionSettings = DEFAULT_SETTINGS,
        contexts: ContextResolver | None = None,
        clock: Clock | None = None,
        new_id: IdFactory = new_id,
    ) -> None:
        self._store = store
        self._deps = IntakeDeps(
            jobs=jobs, agents=agents, settings=settings, clock=clock or SystemClock()
        )
        self._contexts = contexts
        self._new_id = new_id

    async def create_session(self, who: Principal, new: NewSession) -> Session:
        """Create a session without messages."""
        context = await resolve_context(who, new.context, self._contexts)
        session = self._session(who, new, context, check_title(new.title))

        async def work(transaction: Transaction) -> Session:
            there = await transaction.session(session.id)
            if there is None:
                await transaction.add_session(session)
            return there or session

        return await self._store.write(work, name="create_session")

    async def send_message(self, who: Principal, message: NewMessage) -> Sent:
        """Store a message and queue its execution in one transaction."""
        admission = await self._admission(who, message)
        try:
            return await self._store.write(admission.work, name="send")
        except ConcurrentSendError:
            # Another send with the same key was faster, so this time it is found.
            return await self._store.write(admission.work, name="send")

    async def _admission(self, who: Principal, message: NewMessage) -> MessageAdmission:
        content = check_content(message.content, self._deps.settings.max_message_characters)
        key = check_key(message.idempotency_key)
        metadata = check_metadata(message.metadata, RESERVED_IN_MESSAGES)
        context = await resolve_context(who, message.context, self._contexts)
        session = None
        if message.session_id is None:
            session = await self._session_for(who, message, context)
        if key is not None:
            key = stored_key(who.user_id, key)
            requested = message.new_session
            metadata["fingerprint"] = fingerprint(
                content,
                message.session_id or requested.id,
                requested.agent_type,
                message.context,
                requested.context,
            )
        stored = SessionMessage(
            id=self._new_id() if key is None else keyed_message_id(who.tenant_id, key),
            tenant_id=who.tenant_id,
            session_id=session.id if session is not None else message.session_id or "",
            role=MessageRole.USER,
            content=content,
            created_at=self._deps.clock.now(),
            related_type=context.related_type,
            related_id=context.related_id,
            context_url=context.context_url,
            metadata=metadata,
            idempotency_key=key,
        )
        return MessageAdmission(
            self._deps,
            who,
            stored,
            execution_id=self._new_id(),
            new_session=session,
            history=message.new_session.history,
        )

    async def _session_for(self, who: Principal, message: NewMessage, context: Context) -> Session:
        """Return a session for a first message, with the message's context unless it has its
        own."""
        new = message.new_session
        for earlier in new.history:
            check_text(earlier.text, "the history")
        if not new.context.is_empty:
            context = await resolve_context(who, new.context, self._contexts)
        title = title_of(message.content) if new.title is None else check_title(new.title)
        return self._session(who, new, context, title)

    def _session(
        self, who: Principal, new: NewSession, context: Context, title: str | None
    ) -> Session:
        agents, now = self._deps.agents, self._deps.clock.now()
        return Session(
            id=new.id or self._new_id(),
            tenant_id=who.tenant_id,
            user_id=who.user_id,
            agent_type=agents.get(new.agent_type or agents.default).name,
            created_at=now,
            updated_at=now,
            title=title,
            when_busy=new.when_busy,
            related_type=context.related_type,
            related_id=context.related_id,
            initial_context_url=context.context_url,
            metadata=check_metadata(new.metadata),
        )

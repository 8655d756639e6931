"""Changes a session's own fields: title, status, ``when_busy`` and metadata."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from stepwell.journal.envelope import timestamp
from stepwell.sessions.endings.end_request import EndRequest, request_ends
from stepwell.sessions.errors import ConflictError, NotThereError
from stepwell.sessions.intake.checks import RESERVED, check_metadata, check_title
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import EventType, Session, SessionStatus, WhenBusy


class SessionChange(Struct, frozen=True, kw_only=True):
    """The fields to change; unset ones stay. Metadata are replaced as a whole, except for the
    server's own keys."""

    title: str | UnsetType | None = UNSET
    status: SessionStatus | UnsetType = UNSET
    when_busy: WhenBusy | UnsetType = UNSET
    metadata: Mapping[str, Any] | UnsetType = UNSET

    def validate(self) -> "SessionChange":
        """Return the change in storable form. Raises ``RefusedError``."""
        title = self.title if self.title is UNSET else check_title(self.title)
        metadata = self.metadata if self.metadata is UNSET else check_metadata(self.metadata)
        return replace(self, title=title, metadata=metadata)

    def work(
        self, session_id: str, request: EndRequest
    ) -> Callable[[Transaction], Awaitable[Session]]:
        """Return the work of the transaction."""

        async def change(transaction: Transaction) -> Session:
            session = await _lock_session(transaction, session_id)
            changed = self._apply(session)
            if changed == session:
                return session
            if changed.status is SessionStatus.CLOSED is not session.status:
                # Closed first, so that what ends now queues nothing.
                await transaction.save_session(changed)
                await request_ends(transaction, await transaction.unfinished(session_id), request)
                session = await _lock_session(transaction, session_id)
                changed = self._apply(session)
            changed = replace(changed, updated_at=max(request.deps.clock.now(), session.updated_at))
            await transaction.save_session(changed)
            logged = await transaction.append(changed, [_entry(changed)])
            return replace(changed, last_seq=logged[-1].seq) if logged else changed

        return change

    def _apply(self, session: Session) -> Session:
        reopens = self.status is not UNSET and self.status is not SessionStatus.CLOSED
        if session.status is SessionStatus.CLOSED and reopens:
            raise ConflictError(
                f"session {session.id} is closed and can't be reopened; start a new one",
                code="session_closed",
            )
        changes: dict[str, Any] = {
            name: value
            for name in ("title", "status", "when_busy")
            if (value := getattr(self, name)) is not UNSET
        }
        if self.metadata is not UNSET:
            own = {name: it for name, it in session.metadata.items() if name in RESERVED}
            changes["metadata"] = {**self.metadata, **own}
        return replace(session, **changes)


async def _lock_session(transaction: Transaction, session_id: str) -> Session:
    session = await transaction.session(session_id, lock=True)
    if session is None:
        raise NotThereError("session", session_id)
    return session


def _entry(session: Session) -> Occurrence:
    return Occurrence(
        type=EventType.SESSION_UPDATED.value,
        at=session.updated_at,
        payload={
            "event_type": EventType.SESSION_UPDATED.value,
            "session_id": session.id,
            "title": session.title,
            "status": session.status.value,
            "when_busy": session.when_busy.value,
            "metadata": dict(session.metadata),
            "updated_at": timestamp(session.updated_at),
        },
    )

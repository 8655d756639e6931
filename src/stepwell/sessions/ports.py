"""What sessions need of a database, a queue and a bus. ``stores`` and ``worker`` implement it.

A transaction is the unit: everything that happens at one step boundary happens in one. Every store
passes the conformance suite of ``stepwell.testing.stores``.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.bus import Bus, OpenText
from stepwell.sessions.claim_ports import ClaimRows, Fenced
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.records import (
    ApiKeyRecord,
    Execution,
    JournalHead,
    Session,
    SessionMessage,
    SessionStatus,
    Snapshot,
    StepIntent,
    StoredEntry,
)

Result = TypeVar("Result")
Item = TypeVar("Item")


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which sessions to list. None for a field means all; ``search`` looks for words in titles and
    in what users and assistants said."""

    tenant_id: str
    user_id: str | None = None
    status: SessionStatus | None = None
    agent_type: str | None = None
    related_type: str | None = None
    related_id: str | None = None
    search: str | None = None


class ExecutionFilter(Struct, frozen=True, kw_only=True):
    """Which executions to list; subagents' are never. None for a field means all. Those of a user
    are all in their own sessions, whoever started them, and their own without a session."""

    tenant_id: str
    user_id: str | None = None
    status: ExecutionStatus | None = None
    agent_type: str | None = None


class SessionRows(Protocol):
    """Sessions, their messages and their event log.

    A row that does not fit its record is an error. Only lists that people look at, those of
    sessions, of messages and of executions, leave it out and log it: what is sound can be read.
    """

    async def add_session(self, session: Session, /) -> None:
        """A new session."""
        ...

    async def session(self, session_id: str, /, *, lock: bool = False) -> Session | None:
        """The session; locked, nobody else writes to it until the transaction ends."""
        ...

    async def lock_journal(self, session_id: str, /) -> JournalHead | None:
        """Lock the session as ``session`` does and read only what ``append`` needs of it."""
        ...

    async def save_session(self, session: Session, /) -> None:
        """Its fields as they are now, but for the two counters."""
        ...

    async def sessions(
        self, which: SessionFilter, *, before: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Session]:
        """Newest first by ``(updated_at, id)``, those before that pair."""
        ...

    async def add_messages(
        self, session: Session, messages: Sequence[SessionMessage]
    ) -> Sequence[SessionMessage]:
        """New messages of a locked session, each with a time later than that of the one before.
        Those whose id is there already are left out; the others are returned as stored."""
        ...

    async def message(self, message_id: str, /) -> SessionMessage | None:
        """One message."""
        ...

    async def message_by_key(self, tenant_id: str, key: str, /) -> SessionMessage | None:
        """The message that was sent with that idempotency key."""
        ...

    async def messages(
        self,
        session_id: str,
        *,
        after: tuple[datetime, str] | None = None,
        before: tuple[datetime, str] | None = None,
        limit: int,
    ) -> Sequence[SessionMessage]:
        """In order of time: the first after a pair, or the last before a pair; without either the
        last ones."""
        ...

    async def steering_messages(self, execution_id: str, /) -> Sequence[SessionMessage]:
        """User messages sent to be seen by that running execution (``metadata.steers`` is true),
        in order."""
        ...

    async def append(
        self, session: Session | JournalHead, occurrences: Sequence[Occurrence]
    ) -> Sequence[StoredEntry]:
        """Add the messages of these occurrences to a locked session, and their entries to its
        journal under the next numbers. Whoever waits for news of the session is woken after the
        commit.

        A message that is there already, because a step runs again, is left out together with what
        is for people only. So this may be repeated with occurrences of that kind."""
        ...

    async def entries_after(
        self, session_id: str, seq: int, *, limit: int
    ) -> Sequence[StoredEntry]:
        """The log from behind that number on. In place of one that can't be read stands an
        ``event.damaged`` with its number, without a payload."""
        ...

    async def entry_range(self, session_id: str, /) -> tuple[int, int]:
        """The oldest number that is still there and the newest; (1, 0) if nothing was logged.
        After pruning the oldest may be larger than 1."""
        ...


class ExecutionRows(Protocol):
    """Executions, and who may write to them."""

    async def add_execution(self, execution: Execution, /) -> None:
        """A new execution. It is no job yet."""
        ...

    async def execution(self, execution_id: str, /, *, lock: bool = False) -> Execution | None:
        """The execution; locked as a session is."""
        ...

    async def save_execution(self, execution: Execution, /) -> None:
        """Its fields as they are now. Raises ``LostLeaseError`` if its attempt is not the newest:
        another worker has it."""
        ...

    async def save_progress(self, execution: Execution, /) -> Fenced:
        """Save what a step changes: counts, newest snapshot, crashes, metadata. Raises
        ``LostLeaseError`` unless this attempt runs the execution."""
        ...

    async def unfinished(self, session_id: str, /) -> Sequence[Execution]:
        """The executions of a session that are not over, subagents' left out, oldest first; the
        first is the head."""
        ...

    async def executions(
        self,
        *,
        session_id: str | None = None,
        parent_execution_id: str | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 100,
    ) -> Sequence[Execution]:
        """Those of a session, or the subagents of an execution, oldest first by ``(created_at,
        id)``; those after that pair."""
        ...

    async def newest_executions(
        self, which: ExecutionFilter, *, before: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Execution]:
        """Newest first by ``(created_at, id)``, those before that pair."""
        ...

    async def session_statuses(
        self, session_ids: Sequence[str], /
    ) -> Mapping[str, ExecutionStatus]:
        """Where these sessions stand: the status of the head, or else of the last execution. A
        session without executions is left out."""
        ...

    async def count_unfinished(self, tenant_id: str, user_id: str, /) -> int:
        """How many executions of a user wait, run or are paused; subagents' left out."""
        ...

    async def count_by_status(self) -> Mapping[ExecutionStatus, int]:
        """For metrics: all that are not over."""
        ...


class SnapshotRows(Protocol):
    """Snapshots and the intents of open steps."""

    async def add_snapshot(self, snapshot: Snapshot, /) -> None:
        """A new snapshot."""
        ...

    async def snapshot(self, snapshot_id: str, /) -> Snapshot | None:
        """One snapshot, with an empty ``state_json``; ``chain`` gives the documents."""
        ...

    async def newest_snapshot(self, execution_id: str, /) -> Snapshot | None:
        """The last of ``snapshots``; None if there are none."""
        ...

    async def snapshots(
        self, execution_id: str, /, *, after: Snapshot | None = None, limit: int | None = None
    ) -> Sequence[Snapshot]:
        """Those of an execution in order, with an empty ``state_json``: all, or the first ``limit``
        behind ``after``."""
        ...

    async def chain(self, snapshot: Snapshot, /) -> Sequence[str]:
        """The documents from the whole one that begins its chain up to the snapshot."""
        ...

    async def is_end_of_chain(self, snapshot: Snapshot, /) -> bool:
        """Whether no other snapshot of its chain follows it."""
        ...

    async def intent(self, execution_id: str, /) -> StepIntent | None:
        """The open step of an execution, or one that was stored since: compare its number."""
        ...

    async def save_intent(self, intent: StepIntent, attempt: int, /) -> None:
        """Add or replace it. Raises ``LostLeaseError`` if that attempt does not run the execution
        any more."""
        ...

    async def delete_intent(self, execution_id: str, /) -> None:
        """The execution is over."""
        ...


class SizeReport(Struct, frozen=True, kw_only=True):
    """How much a tenant, or all of them, keeps."""

    sessions: int
    messages: int
    executions: int
    snapshots: int
    events: int
    message_characters: int
    snapshot_characters: int
    event_characters: int
    database_bytes: int


class UpkeepRows(Protocol):
    """Keys, retention and reports."""

    async def add_api_key(self, key: ApiKeyRecord, /) -> None:
        """A new key."""
        ...

    async def save_api_key(self, key: ApiKeyRecord, /) -> None:
        """Its fields as they are now, but a key that was revoked stays so, since that time."""
        ...

    async def api_key_by_prefix(self, prefix: str, /) -> ApiKeyRecord | None:
        """The key that begins so."""
        ...

    async def api_keys(
        self, tenant_id: str, /, *, user_id: str | None = None
    ) -> Sequence[ApiKeyRecord]:
        """All of a tenant, or of one user of it, revoked ones as well."""
        ...

    async def finished_before(self, at: datetime, /, *, limit: int) -> Sequence[str]:
        """Sessions whose executions all ended before that time, oldest first."""
        ...

    async def finished_executions(self, session_id: str, /) -> Sequence[Execution]:
        """Those of a session that are over, oldest first, subagents' as well."""
        ...

    async def last_event_before(self, session_id: str, at: datetime, /) -> int:
        """The number of a session's newest event that was logged before that time; 0 if none was.
        Only numbers and times are read, so a damaged event does no harm."""
        ...

    async def rewrite_snapshot(self, snapshot: Snapshot, /) -> None:
        """Make it the whole head of a chain; the later ones of its old chain follow it."""
        ...

    async def delete_snapshots(self, execution_id: str, /, *, keep: Iterable[str]) -> int:
        """Delete those of an execution but for these ids and what they need; how many."""
        ...

    async def delete_entries(self, session_id: str, /, *, up_to: int) -> int:
        """Delete entries with ``seq`` up to that number and return the count. Readers with an older
        cursor get a reset."""
        ...

    async def delete_session(self, session_id: str, /) -> None:
        """Delete a session with all that belongs to it."""
        ...

    async def size(self, tenant_id: str | None = None) -> SizeReport:
        """How much is kept."""
        ...


class FollowerRows(Protocol):
    """What the followers of a process ask together: one query, however many they are."""

    async def sessions_with_news(self, known: Mapping[str, int], /) -> Sequence[str]:
        """Return those of these sessions whose newest event has a higher number than the given
        one."""
        ...

    async def sessions_by_id(self, session_ids: Sequence[str], /) -> Mapping[str, Session]:
        """Return those of these sessions that exist."""
        ...

    async def api_keys_by_id(self, key_ids: Sequence[str], /) -> Mapping[str, ApiKeyRecord]:
        """Return those of these keys that exist, revoked ones as well."""
        ...

    async def open_texts(self, session_id: str, /) -> Sequence[OpenText]:
        """Return the stored text so far of responses that are being generated."""
        ...

    async def save_open_texts(
        self, texts: Sequence[OpenText], /, *, closed: Sequence[str] = ()
    ) -> None:
        """Store the text so far of these responses, unless a later attempt has, and forget that of
        the executions ``closed``."""
        ...


class Transaction(
    SessionRows, ExecutionRows, ClaimRows, SnapshotRows, UpkeepRows, FollowerRows, Protocol
):
    """All of it, in one transaction."""

    @property
    def connection(self) -> Any:
        """The database's own connection, for tables of others in the same database. What is done
        there may reach the database before what the transaction wrote earlier."""
        ...

    async def run(self, statement: Any, values: Mapping[str, Any], /) -> None:
        """A statement of the database's own that gives no rows, in its turn, for a queue that keeps
        its jobs in the same database. Give it as a constant: how it is written is kept."""
        ...

    def tell(self, topic: str, /) -> None:
        """Publish that topic on the bus after the commit."""
        ...


class Store(Protocol):
    """A database.

    ``work`` may be called again after a fault of the connection, also one at the commit, so it must
    be repeatable: ids are made outside of it. ``name`` says in logs, metrics and crash tests which
    write it is.
    """

    @property
    def bus(self) -> Bus:
        """Notifies readers of changes."""
        ...

    async def write(
        self, work: Callable[[Transaction], Awaitable[Result]], /, *, name: str
    ) -> Result:
        """Run it in a transaction. It has committed when this returns; if it raises, nothing has
        changed."""
        ...

    async def read(self, work: Callable[[Transaction], Awaitable[Result]], /) -> Result:
        """Run it on a consistent view; it writes nothing."""
        ...

    async def check_writable(self) -> None:
        """Commit a tiny write, without a second try, for ``/ready``. Raises
        ``StoreUnavailableError``."""
        ...

    async def change_marker(self) -> int | None:
        """Return a number that differs once somebody else has committed, read without a
        transaction; None if only a query can tell."""
        ...

    async def reopen(self) -> "Store":
        """The same database over connections of its own, for the event loop that calls this. What
        waits here does not delay it; its bus is its own. Close it in the same loop."""
        ...

    async def close(self) -> None:
        """Let go of the connections."""
        ...


def session_topic(session_id: str) -> str:
    """The log of a session has grown."""
    return f"session:{session_id}"


def execution_topic(execution_id: str) -> str:
    """Somebody wants something of a running execution: that it ends, or that it sees a message."""
    return f"execution:{execution_id}"


WORK_TOPIC = "work"
"""There is an execution to claim."""

ACCESS_TOPIC = "access"
"""A key was revoked, or a session changed hands: open channels are checked again."""


class Jobs(Protocol):
    """The queue: which execution to look at next. The truth is in the executions; a job that is
    lost or doubled does no harm."""

    async def enqueue(self, transaction: Transaction, execution_id: str, /) -> None:
        """A job, as part of the transaction."""
        ...

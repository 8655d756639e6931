"""Executions, who may claim them, and who may write to them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import combinations
from typing import Any

from sqlalchemy import and_, case, exists, func, or_, select, tuple_, update

from stepwell.sessions.errors import LostLeaseError
from stepwell.sessions.ports import ExecutionFilter, Lease
from stepwell.sessions.records import Execution, ExecutionStatus
from stepwell.stores import tables as t
from stepwell.stores.codec import stored_id
from stepwell.stores.listing import executions_query, statuses_query
from stepwell.stores.rows import (
    KEY,
    adding,
    after,
    bound,
    by_id,
    given,
    literally,
    logger,
    records_of,
    saving,
)
from stepwell.stores.session_rows import SessionRowsMixin

_STATUSES = frozenset(ExecutionStatus)
_C = t.executions.c
_OLDER = t.executions.alias("older")

# Literal words, so that the partial indexes serve these conditions.
_UNFINISHED = literally(f"agent_executions.{t.UNFINISHED}")
_OLDER_UNFINISHED = literally(f"older.{t.UNFINISHED}")
_TOP = _C.parent_execution_id.is_(None)
_PENDING = _C.status == literally("'pending'")
_RUNNING = _C.status == literally("'running'")
_IN_ORDER = (_C.created_at, _C.id)

_EXECUTION = records_of(t.executions).where(by_id(t.executions))
_LOCKED = _EXECUTION.with_for_update(key_share=True)
_ADD = adding(t.executions)

_OWN = and_(by_id(t.executions), _C.attempt == given("own_attempt"))
_GIVEN_LEASE = bound(t.executions, "lease_until")
_GIVEN_WISH = bound(t.executions, "cancel_requested")
_SAVE = (
    saving(t.executions, ("created_at", "attempt", "lease_until", "cancel_requested"))
    .where(_OWN)
    .values(
        # A heartbeat may have made the lease longer since the record was read.
        lease_until=case(
            (
                and_(
                    bound(t.executions, "status") == literally("'running'"),
                    _C.lease_until > _GIVEN_LEASE,
                ),
                _C.lease_until,
            ),
            else_=_GIVEN_LEASE,
        ),
        # Somebody may have wished for its end since; only what is over and begins again forgets.
        cancel_requested=case(
            (_UNFINISHED, func.coalesce(_GIVEN_WISH, _C.cancel_requested)), else_=_GIVEN_WISH
        ),
    )
    .returning(_C.id)
)

_IS_HEAD = or_(
    _C.session_id.is_(None),
    ~exists(literally("1"))
    .select_from(_OLDER)
    .where(
        _OLDER.c.session_id == _C.session_id,
        _OLDER.c.parent_execution_id.is_(None),
        _OLDER_UNFINISHED,
        tuple_(_OLDER.c.created_at, _OLDER.c.id) < tuple_(_C.created_at, _C.id),
    ),
)
_LEASE_IS_OVER = and_(_RUNNING, _C.lease_until < bound(t.executions, "lease_until", "now"))
_FREE = or_(and_(_PENDING, _IS_HEAD), _LEASE_IS_OVER)
# So that no partial index fits: a server without statistics would go through all that are
# unfinished for the one that has this id.
_TOP_BY_ID = func.coalesce(_C.parent_execution_id, literally("''")) == literally("''")
_CLAIM = (
    update(t.executions)
    .where(by_id(t.executions), _TOP_BY_ID, _FREE)
    .values(
        status=literally("'running'"),
        crashes=case((_RUNNING, _C.crashes + 1), else_=_C.crashes),
        attempt=_C.attempt + 1,
        worker_id=bound(t.executions, "worker_id"),
        lease_until=_GIVEN_LEASE,
        started_at=func.coalesce(_C.started_at, bound(t.executions, "started_at")),
        updated_at=bound(t.executions, "updated_at"),
    )
    .returning(*t.executions.c)
)
_CLAIMABLE = (
    records_of(t.executions)
    .with_only_columns(_C.id)
    .where(literally("agent_executions.status IN ('pending', 'running')"), _TOP, _FREE)
    .order_by(*_IN_ORDER)
    .limit(given("most"))
)
_SPOKEN_TO = (
    select(func.count())
    .where(t.messages.c.agent_execution_id == given("execution"))
    .where(t.messages.c.role == literally("'user'"))
)
_RENEW = (
    update(t.executions)
    .where(_OWN)
    .values(
        # Never shorter: the heartbeat and the run renew it, each in its own time.
        lease_until=case(
            (and_(_RUNNING, _C.lease_until < _GIVEN_LEASE), _GIVEN_LEASE), else_=_C.lease_until
        )
    )
    .returning(*t.executions.c, _SPOKEN_TO.scalar_subquery())
)
_OPEN = (
    records_of(t.executions)
    .where(_C.session_id == given("session"), _TOP, _UNFINISHED)
    .order_by(*_IN_ORDER)
)
_FILTERS = {
    "session": _C.session_id == given("session"),
    "parent": _C.parent_execution_id == given("parent"),
    "cursor_id": after(t.executions, "created_at"),
}


def _listing(filters: tuple[str, ...]) -> Any:
    query = records_of(t.executions).order_by(*_IN_ORDER).limit(given("most"))
    return query.where(*(_FILTERS[name] for name in filters))


_LISTINGS = {
    names: _listing(names) for count in range(4) for names in combinations(_FILTERS, count)
}
_COUNT_OF_USER = (
    records_of(t.executions)
    .with_only_columns(func.count())
    .where(_C.tenant_id == given("tenant"), _C.user_id == given("user"))
    .where(_TOP, _UNFINISHED)
)
_COUNTS = (
    records_of(t.executions)
    .with_only_columns(_C.status, func.count())
    .where(_UNFINISHED, literally(f"agent_executions.{t.COUNTED}"))
    .group_by(_C.status)
)


class ExecutionRowsMixin(SessionRowsMixin):
    """See ``sessions.ports.ExecutionRows``."""

    async def add_execution(self, execution: Execution, /) -> None:
        """A new execution. It is no job yet."""
        await self._lane.rows(_ADD, self._codecs.execution.values(execution))

    async def execution(self, execution_id: str, /, *, lock: bool = False) -> Execution | None:
        """The execution; locked as a session is."""
        query = _LOCKED if lock else _EXECUTION
        return await self._one(self._codecs.execution, query, **{KEY: execution_id})

    async def save_execution(self, execution: Execution, /) -> None:
        """Its fields as they are now. Raises ``LostLeaseError`` if its attempt is not the newest.

        Two are not taken back by somebody who read the row earlier: a lease that was made longer
        meanwhile, and a wish that it ends.
        """
        values = self._codecs.execution.values(execution)
        own = {**values, KEY: execution.id, "own_attempt": execution.attempt}
        if not await self._lane.rows(_SAVE, own):
            raise LostLeaseError(execution.id, execution.attempt)

    async def claim(
        self, execution_id: str, *, worker_id: str, now: datetime, lease_until: datetime
    ) -> Execution | None:
        """Take it: one more attempt, status running, or None."""
        # One statement decides and takes. On PostgreSQL the second of two waits for the first and
        # looks again; it must not skip, or the job that led here would be lost for a while.
        return await self._one(
            self._codecs.execution,
            _CLAIM,
            worker_id=worker_id,
            now=now,
            lease_until=lease_until,
            started_at=now,
            updated_at=now,
            **{KEY: execution_id},
        )

    async def claimable(self, now: datetime, /, *, limit: int) -> Sequence[str]:
        """Executions that ``claim`` would give, oldest first."""
        return [row[0] for row in await self._run(_CLAIMABLE, now=now, most=limit)]

    async def renew(self, execution: Execution, lease_until: datetime, /) -> Lease:
        """A longer lease, and what came meanwhile. Raises ``LostLeaseError``."""
        rows = await self._run(
            _RENEW,
            lease_until=lease_until,
            own_attempt=execution.attempt,
            execution=stored_id(execution.id),
            **{KEY: execution.id},
        )
        if not rows:
            raise LostLeaseError(execution.id, execution.attempt)
        *row, user_messages = rows[0]
        (now,) = self._codecs.execution.records([row])
        return Lease(execution=now, user_messages=user_messages)

    async def unfinished(self, session_id: str, /) -> Sequence[Execution]:
        """The executions of a session that are not over, subagents' left out, oldest first."""
        return await self._all(self._codecs.execution, _OPEN, session=session_id)

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
        time, id = (None, None) if after is None else after
        wanted = {"session": session_id, "parent": parent_execution_id, "cursor_id": id}
        names = tuple(name for name, value in wanted.items() if value is not None)
        values = {**wanted, "cursor_time": time, "most": limit}
        codec, query = self._codecs.execution, _LISTINGS[names]
        return await self._listed(codec, self._run, query, **values)

    async def newest_executions(
        self, which: ExecutionFilter, *, before: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Execution]:
        """Newest first by ``(created_at, id)``, those before that pair."""
        query, values = executions_query(which, before, limit)
        return await self._listed(self._codecs.execution, self._scan, query, **values)

    async def session_statuses(
        self, session_ids: Sequence[str], /
    ) -> Mapping[str, ExecutionStatus]:
        """The status of the head of each session, or else of its last execution."""
        if not session_ids:
            return {}
        query, values = statuses_query(session_ids)
        told: dict[str, ExecutionStatus] = {}
        for id, status in await self._scan(query, **values):
            if status in _STATUSES:
                told[id] = ExecutionStatus(status)
            elif status is not None:
                logger.error("an execution of session %r has the damaged status %r", id, status)
        return told

    async def count_unfinished(self, tenant_id: str, user_id: str, /) -> int:
        """How many executions of a user wait, run or are paused; subagents' left out."""
        return (await self._run(_COUNT_OF_USER, tenant=tenant_id, user=user_id))[0][0]

    async def count_by_status(self) -> Mapping[ExecutionStatus, int]:
        """For metrics: all that are not over."""
        return {ExecutionStatus(status): count for status, count in await self._run(_COUNTS)}

"""Executions, who may claim them, and who may write to them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from itertools import combinations
from typing import Any

from sqlalchemy import and_, case, func, select, update

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.claim_ports import Claim, Fenced, HeldExecution
from stepwell.sessions.errors import LostLeaseError
from stepwell.sessions.ports import ExecutionFilter
from stepwell.sessions.records import Execution
from stepwell.stores import claim_queries
from stepwell.stores import tables as t
from stepwell.stores.codec import json_of
from stepwell.stores.execution_queries import executions_query, statuses_query
from stepwell.stores.rows import (
    KEY,
    after,
    by_id,
    column_parameter,
    insert_into,
    literally,
    logger,
    parameter,
    records_of,
    update_all,
)
from stepwell.stores.session_rows import SessionRowsMixin

_STATUSES = frozenset(ExecutionStatus)
_C = t.executions.c

# Literal words, so that the partial indexes serve these conditions.
_UNFINISHED = literally(f"agent_executions.{t.UNFINISHED}")
_TOP = _C.parent_execution_id.is_(None)
_RUNNING = _C.status == literally("'running'")
_IN_ORDER = (_C.created_at, _C.id)

_EXECUTION = records_of(t.executions).where(by_id(t.executions))
_LOCKED = _EXECUTION.with_for_update(key_share=True)
_OWNER = select(t.sessions.c.user_id).where(
    t.sessions.c.id == column_parameter(t.executions, "session_id")
)
_ADD = insert_into(t.executions).values(
    {
        **{it.name: column_parameter(t.executions, it.name) for it in t.fields_of(t.executions)},
        "owner_id": func.coalesce(
            _OWNER.scalar_subquery(), column_parameter(t.executions, "user_id")
        ),
    }
)

_OWN = and_(by_id(t.executions), _C.attempt == parameter("own_attempt"))
# To set the session would make SQLite look at every row of it that refers to the execution.
_NEVER_CHANGE = ("created_at", "session_id", "parent_execution_id", "owner_id")
_GIVEN_REQUEST = column_parameter(t.executions, "cancel_requested")
_SAVE = (
    update_all(t.executions, (*_NEVER_CHANGE, "attempt", "cancel_requested"))
    .where(_OWN)
    .values(
        # A stale write never clears a request to cancel; only what is over and begins again does.
        cancel_requested=case(
            (_UNFINISHED, func.coalesce(_GIVEN_REQUEST, _C.cancel_requested)), else_=_GIVEN_REQUEST
        ),
    )
    .returning(_C.id)
)

_CLAIM = (
    update(t.executions)
    .where(by_id(t.executions))
    .values(
        status=literally("'running'"),
        crashes=case((_RUNNING, _C.crashes + 1), else_=_C.crashes),
        attempt=_C.attempt + 1,
        worker_id=column_parameter(t.executions, "worker_id"),
        started_at=func.coalesce(_C.started_at, column_parameter(t.executions, "started_at")),
        updated_at=column_parameter(t.executions, "updated_at"),
    )
    .returning(*t.fields_of(t.executions))
)
_USER_MESSAGES = (
    select(func.count())
    .where(t.messages.c.agent_execution_id == parameter("execution"))
    .where(t.messages.c.role == literally("'user'"))
)
_DISOWN = update(t.executions).where(_OWN, _RUNNING).values(worker_id=literally("NULL"))
_HELD = select(_C.id, _C.attempt, _C.cancel_requested).where(
    _C.worker_id == parameter("worker"), _RUNNING, _TOP
)
# So that no partial index fits: a server without statistics would go through all that run for the
# one that has this id.
_IS_RUN_HERE = and_(_OWN, func.coalesce(_C.status, literally("''")) == literally("'running'"))
_WITH_COUNT = (*t.fields_of(t.executions), _USER_MESSAGES.scalar_subquery())
_FENCE = select(*_WITH_COUNT).where(_IS_RUN_HERE).with_for_update(key_share=True, of=t.executions)
_MOVED_BY_STEPS = (
    "updated_at",
    "step_count",
    "token_usage",
    "token_details",
    "cost",
    "last_snapshot_id",
    "metadata",
    "crashes",
)
_SAVE_PROGRESS = (
    update(t.executions)
    .where(_IS_RUN_HERE)
    .values({name: column_parameter(t.executions, name) for name in _MOVED_BY_STEPS})
    .returning(*_WITH_COUNT)
)
_OPEN = (
    records_of(t.executions)
    .where(_C.session_id == parameter("session"), _TOP, _UNFINISHED)
    .order_by(*_IN_ORDER)
)
_FILTERS = {
    "session": _C.session_id == parameter("session"),
    "parent": _C.parent_execution_id == parameter("parent"),
    "cursor_id": after(t.executions, "created_at"),
}


def _list_query(filters: tuple[str, ...]) -> Any:
    query = records_of(t.executions).order_by(*_IN_ORDER).limit(parameter("most"))
    return query.where(*(_FILTERS[name] for name in filters))


_LISTINGS = {
    names: _list_query(names) for count in range(4) for names in combinations(_FILTERS, count)
}
_COUNT_OF_USER = (
    records_of(t.executions)
    .with_only_columns(func.count())
    .where(_C.tenant_id == parameter("tenant"), _C.user_id == parameter("user"))
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

        A stale write never clears ``cancel_requested``.
        """
        values = self._codecs.execution.values(execution)
        own = {**values, KEY: execution.id, "own_attempt": execution.attempt}
        if not await self._lane.rows(_SAVE, own):
            raise LostLeaseError(execution.id, execution.attempt)

    async def claim(
        self, execution_ids: Sequence[str], *, worker_id: str, now: datetime
    ) -> Sequence[Claim]:
        """Claim those of them that are free, in the given order."""
        query = claim_queries.FREE_OF[self._lane.dialect]
        ids = json_of([id for id in execution_ids if self._may_exist(id)])
        rows = await self._run(query, ids=ids, now=now)
        free = {id: (status, holder) for id, status, holder in rows}
        claims: list[Claim] = []
        for id in execution_ids:
            if id not in free:
                continue
            values = {"worker_id": worker_id, "started_at": now, "updated_at": now, KEY: id}
            execution = await self._one(self._codecs.execution, _CLAIM, **values)
            if execution is not None:
                status, holder = free[id]
                is_takeover = status == ExecutionStatus.RUNNING
                claims.append(
                    Claim(execution=execution, is_takeover=is_takeover, taken_from=holder)
                )
        return claims

    async def claimable(
        self, now: datetime, /, *, limit: int, agents: Collection[str] | None = None
    ) -> Sequence[str]:
        """Ids of free executions of these agents, or of all, in the order to claim them."""
        dialect = self._lane.dialect
        if agents is None:
            query, values = claim_queries.CLAIMABLE_OF_ALL[dialect], {}
        else:
            query, values = claim_queries.CLAIMABLE[dialect], {"agents": json_of(sorted(agents))}
        return [row[0] for row in await self._run(query, now=now, most=limit, **values)]

    async def is_work_waiting(self, now: datetime, /, *, agents: Collection[str]) -> bool:
        """Whether ``claimable`` would return anything for these agents."""
        query = claim_queries.IS_WORK_WAITING[self._lane.dialect]
        return bool((await self._run(query, now=now, agents=json_of(sorted(agents))))[0][0])

    async def waiting_agents(self) -> Sequence[str]:
        """The agent types that pending executions need."""
        return [row[0] for row in await self._run(claim_queries.WAITING_AGENTS)]

    async def fence(self, execution: Execution, /) -> Fenced:
        """Lock the row and return it as it is now. Raises ``LostLeaseError``."""
        return await self._run_fenced(_FENCE, execution, {})

    async def save_progress(self, execution: Execution, /) -> Fenced:
        """Save what a step changes. Raises ``LostLeaseError`` unless this attempt runs it."""
        values = self._codecs.execution.values_of(execution, _MOVED_BY_STEPS)
        return await self._run_fenced(_SAVE_PROGRESS, execution, values)

    async def _run_fenced(
        self, statement: Any, execution: Execution, values: Mapping[str, Any]
    ) -> Fenced:
        if execution.attempt > 1:
            # The attempt before may have stored messages that this one makes again.
            self._lane.careful = True
        own = {
            **values,
            KEY: execution.id,
            "own_attempt": execution.attempt,
            "execution": execution.id,
        }
        rows = await self._lane.rows(statement, own)
        if not rows:
            raise LostLeaseError(execution.id, execution.attempt)
        *row, user_messages = rows[0]
        # Read whole: nothing is saved over a row that was damaged meanwhile.
        now = self._codecs.execution.record(row)
        return Fenced(execution=now, user_messages=user_messages)

    async def disown(self, execution: Execution, /) -> None:
        """Leave a running execution of that attempt without a worker."""
        await self._run(_DISOWN, own_attempt=execution.attempt, **{KEY: execution.id})

    async def held_by(self, worker_id: str, /) -> Sequence[HeldExecution]:
        """The running executions of a worker."""
        rows = await self._run(_HELD, worker=worker_id)
        return [HeldExecution(id=id, attempt=n, cancel_requested=why) for id, n, why in rows]

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
        return await self._list(codec, self._run, query, **values)

    async def newest_executions(
        self, which: ExecutionFilter, *, before: tuple[datetime, str] | None = None, limit: int
    ) -> Sequence[Execution]:
        """Newest first by ``(created_at, id)``, those before that pair."""
        query, values = executions_query(which, before, limit)
        return await self._list(self._codecs.execution, self._scan, query, **values)

    async def session_statuses(
        self, session_ids: Sequence[str], /
    ) -> Mapping[str, ExecutionStatus]:
        """The status of the head of each session, or else of its last execution."""
        if not session_ids:
            return {}
        query, values = statuses_query(session_ids)
        statuses: dict[str, ExecutionStatus] = {}
        for id, status in await self._scan(query, **values):
            if status in _STATUSES:
                statuses[id] = ExecutionStatus(status)
            elif status is not None:
                logger.error("an execution of session %r has the damaged status %r", id, status)
        return statuses

    async def count_unfinished(self, tenant_id: str, user_id: str, /) -> int:
        """How many executions of a user wait, run or are paused; subagents' left out."""
        return (await self._run(_COUNT_OF_USER, tenant=tenant_id, user=user_id))[0][0]

    async def count_by_status(self) -> Mapping[ExecutionStatus, int]:
        """For metrics: all that are not over."""
        return {ExecutionStatus(status): count for status, count in await self._run(_COUNTS)}

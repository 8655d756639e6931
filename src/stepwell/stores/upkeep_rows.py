"""Keys, retention and reports."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Text,
    and_,
    cast,
    delete,
    exists,
    false,
    func,
    or_,
    select,
    update,
)

from stepwell.sessions.errors import NotThereError
from stepwell.sessions.ports import SizeReport
from stepwell.sessions.records import ApiKeyRecord, Execution, Snapshot
from stepwell.stores import tables as t
from stepwell.stores.rows import (
    KEY,
    by_id,
    column_parameter,
    insert_into,
    literally,
    parameter,
    records_of,
    update_all,
)
from stepwell.stores.session_counters import CountedRows
from stepwell.stores.snapshot_rows import snapshot_values

_ADD_KEY = insert_into(t.api_keys)
_SAVE_KEY = (
    update_all(t.api_keys, ("created_at", "revoked_at"))
    .where(by_id(t.api_keys))
    # Whoever read it before it was revoked must not bring it back.
    .values(
        revoked_at=func.coalesce(
            t.api_keys.c.revoked_at, column_parameter(t.api_keys, "revoked_at")
        )
    )
    .returning(t.api_keys.c.id)
)
_BY_PREFIX = records_of(t.api_keys).where(t.api_keys.c.prefix == parameter("start"))
_KEYS = (
    records_of(t.api_keys)
    .where(t.api_keys.c.tenant_id == parameter("tenant"))
    .order_by(t.api_keys.c.created_at, t.api_keys.c.id)
)
_KEYS_OF_USER = _KEYS.where(t.api_keys.c.user_id == parameter("user"))

_X = t.executions.c
_OVER = ~literally(f"(agent_executions.{t.UNFINISHED})")
_AT = column_parameter(t.sessions, "updated_at", "at")
_ENDED_LATER = func.coalesce(_X.completed_at, _X.updated_at) >= _AT
_OF_SESSION = _X.session_id == t.sessions.c.id
_FINISHED_BEFORE = (
    select(t.sessions.c.id)
    .where(
        t.sessions.c.updated_at < _AT,
        ~exists(literally("1"))
        .select_from(t.executions)
        .where(_OF_SESSION, or_(~_OVER, _ENDED_LATER)),
    )
    .order_by(t.sessions.c.updated_at, t.sessions.c.id)
    .limit(parameter("most"))
)
_FINISHED = (
    records_of(t.executions)
    .where(_X.session_id == parameter("session"), _OVER)
    .order_by(_X.created_at, _X.id)
)

_S = t.snapshots.c
_PLACE = select(_S.chain_id, _S.position).where(by_id(t.snapshots))
_LATER = (
    update(t.snapshots)
    .where(_S.chain_id == parameter("old_chain"), _S.position > parameter("old_place"))
    .values(
        chain_id=column_parameter(t.snapshots, "chain_id"),
        position=_S.position - parameter("old_place"),
    )
)
_REWRITE = update_all(t.snapshots, ()).where(by_id(t.snapshots))
_NEWER = t.snapshots.alias("newer")
_DELETE_EVENTS = (
    delete(t.journal)
    .where(t.journal.c.session_id == parameter("session"), t.journal.c.seq <= parameter("last"))
    .returning(t.journal.c.seq)
)
_LAST_EVENT_BEFORE = select(func.coalesce(func.max(t.journal.c.seq), literally("0"))).where(
    t.journal.c.session_id == parameter("session"),
    t.journal.c.created_at < column_parameter(t.journal, "created_at", "at"),
)
_DELETE_SESSION = delete(t.sessions).where(by_id(t.sessions))


def _deletion(kept: int) -> Any:
    """Deletes the snapshots of an execution that nothing which stays is built on."""
    names = [parameter(f"kept_{place}") for place in range(kept)]
    newer = _NEWER.c
    stays = or_(
        newer.agent_execution_id != parameter("execution"),
        newer.id.in_(names) if names else false(),
    )
    needed = (
        exists(literally("1"))
        .select_from(_NEWER)
        .where(newer.chain_id == _S.chain_id, newer.position > _S.position, stays)
    )
    mine = _S.agent_execution_id == parameter("execution")
    deletable = and_(mine, ~needed, ~_S.id.in_(names)) if names else and_(mine, ~needed)
    return delete(t.snapshots).where(deletable).returning(_S.id)


def _measure(tenant: bool) -> Any:
    def one(table: Any, size: Any) -> Any:
        counted = select(func.count(), func.coalesce(func.sum(size), 0))
        counted = counted.select_from(table)
        return counted.where(table.c.tenant_id == parameter("tenant")) if tenant else counted

    return [
        one(t.sessions, literally("0")),
        one(t.messages, func.length(t.messages.c.content)),
        one(t.executions, literally("0")),
        one(t.snapshots, _S.state_json_length),
        one(t.journal, func.length(cast(t.journal.c.payload, Text))),
    ]


_MEASURES = {tenant: _measure(tenant) for tenant in (True, False)}


class UpkeepRowsMixin(CountedRows):
    """See ``sessions.ports.UpkeepRows``."""

    async def add_api_key(self, key: ApiKeyRecord, /) -> None:
        """A new key."""
        await self._lane.rows(_ADD_KEY, self._codecs.key.values(key))

    async def save_api_key(self, key: ApiKeyRecord, /) -> None:
        """Its fields as they are now, but a key that was revoked stays so, since that time."""
        values = self._codecs.key.values(key)
        if not await self._lane.rows(_SAVE_KEY, {**values, KEY: key.id}):
            raise NotThereError("api_key", key.id)

    async def api_key_by_prefix(self, prefix: str, /) -> ApiKeyRecord | None:
        """The key that begins so."""
        return await self._one(self._codecs.key, _BY_PREFIX, start=prefix)

    async def api_keys(
        self, tenant_id: str, /, *, user_id: str | None = None
    ) -> Sequence[ApiKeyRecord]:
        """All of a tenant, or of one user of it, revoked ones as well."""
        if user_id is None:
            return await self._all(self._codecs.key, _KEYS, tenant=tenant_id)
        return await self._all(self._codecs.key, _KEYS_OF_USER, tenant=tenant_id, user=user_id)

    async def finished_before(self, at: datetime, /, *, limit: int) -> Sequence[str]:
        """Sessions whose executions all ended before that time, oldest first; nothing else
        happened in them since either."""
        return [row[0] for row in await self._scan(_FINISHED_BEFORE, at=at, most=limit)]

    async def finished_executions(self, session_id: str, /) -> Sequence[Execution]:
        """Those of a session that are over, oldest first, subagents' as well."""
        return await self._all(self._codecs.execution, _FINISHED, session=session_id)

    async def last_event_before(self, session_id: str, at: datetime, /) -> int:
        """The number of a session's newest event that was logged before that time, or 0."""
        return (await self._scan(_LAST_EVENT_BEFORE, session=session_id, at=at))[0][0]

    async def rewrite_snapshot(self, snapshot: Snapshot, /) -> None:
        """Make it the whole head of a chain; the later ones of its old chain follow it."""
        place = await self._run(_PLACE, **{KEY: snapshot.id})
        if not place:
            raise NotThereError("snapshot", snapshot.id)
        chain, position = place[0]
        values = snapshot_values(self._codecs.snapshot, snapshot)
        head = {**values, "chain_id": snapshot.id, "position": 0, KEY: snapshot.id}
        await self._lane.rows(_REWRITE, head)
        if position:
            await self._scan(_LATER, old_chain=chain, old_place=position, chain_id=snapshot.id)

    async def delete_snapshots(self, execution_id: str, /, *, keep: Iterable[str]) -> int:
        """Delete those of an execution but for these ids and what they, or snapshots of other
        executions, are built on; how many."""
        kept = {f"kept_{place}": id for place, id in enumerate(keep)}
        deletion = _deletion(len(kept))
        return len(await self._scan(deletion, execution=execution_id, **kept))

    async def delete_entries(self, session_id: str, /, *, up_to: int) -> int:
        """Delete the log up to that number; how many."""
        return len(await self._scan(_DELETE_EVENTS, session=session_id, last=up_to))

    async def delete_session(self, session_id: str, /) -> None:
        """Delete a session with all that belongs to it."""
        await self._scan(_DELETE_SESSION, **{KEY: session_id})
        self._counters.pop(session_id, None)

    async def size(self, tenant_id: str | None = None) -> SizeReport:
        """How much is kept; the bytes are those of the whole database."""
        values = {} if tenant_id is None else {"tenant": tenant_id}
        found = [(await self._scan(part, **values))[0] for part in _MEASURES[bool(values)]]
        sessions, messages, executions, snapshots, events = found
        return SizeReport(
            sessions=sessions[0],
            messages=messages[0],
            executions=executions[0],
            snapshots=snapshots[0],
            events=events[0],
            message_characters=int(messages[1]),
            snapshot_characters=int(snapshots[1]),
            event_characters=int(events[1]),
            database_bytes=await self._lane.database_bytes(),
        )

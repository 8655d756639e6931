"""What a store does with keys, retention and reports."""

import pytest
from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import ConflictError, NotThereError
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import ApiKeyRecord
from stepwell.testing.stores_rows import (
    TENANT,
    a_message,
    a_session,
    a_snapshot,
    an_entry,
    an_execution,
    at,
    make,
    name_of,
    named_id,
    write,
)

_KEY = ApiKeyRecord(
    id="k1",
    tenant_id=TENANT,
    user_id="ada",
    name="ci",
    prefix="sw_abc",
    secret_hash="0f",
    created_at=at(0),
    is_admin=True,
    expires_at=at(100),
)
_OVER = ExecutionStatus.COMPLETED


class UpkeepConformance:
    """Keys, retention, reports."""

    async def test_a_key_is_found_by_its_prefix(self, store: Store) -> None:
        await write(store, lambda tx: tx.add_api_key(_KEY))
        assert await store.read(lambda tx: tx.api_key_by_prefix("sw_abc")) == _KEY
        assert await store.read(lambda tx: tx.api_key_by_prefix("sw_ab")) is None
        revoked = replace(_KEY, revoked_at=at(7), last_used_at=at(6), name="old")
        await write(store, lambda tx: tx.save_api_key(revoked))
        assert await store.read(lambda tx: tx.api_key_by_prefix("sw_abc")) == revoked

    async def test_a_revoked_key_stays_revoked(self, store: Store) -> None:
        await write(store, lambda tx: tx.add_api_key(_KEY))
        await write(store, lambda tx: tx.save_api_key(replace(_KEY, revoked_at=at(7))))
        # Somebody read it before, and notes only now that it was used.
        late = replace(_KEY, last_used_at=at(6))
        await write(store, lambda tx: tx.save_api_key(late))
        expected = replace(late, revoked_at=at(7))
        assert await store.read(lambda tx: tx.api_key_by_prefix("sw_abc")) == expected
        again = replace(_KEY, revoked_at=at(9), last_used_at=at(6))
        await write(store, lambda tx: tx.save_api_key(again))
        assert await store.read(lambda tx: tx.api_key_by_prefix("sw_abc")) == expected

    async def test_keys_are_listed_by_tenant_and_user(self, store: Store) -> None:
        bobs = replace(_KEY, id="k2", user_id="bob", prefix="b", created_at=at(1))
        foreign = replace(_KEY, id="k3", tenant_id="else", prefix="c")
        for key in (bobs, _KEY, foreign):
            await write(store, lambda tx, key=key: tx.add_api_key(key))
        assert await store.read(lambda tx: tx.api_keys(TENANT)) == [_KEY, bobs]
        assert await store.read(lambda tx: tx.api_keys(TENANT, user_id="bob")) == [bobs]

    async def test_a_prefix_belongs_to_one_key(self, store: Store) -> None:
        await write(store, lambda tx: tx.add_api_key(_KEY))
        with pytest.raises(ConflictError):
            await write(store, lambda tx: tx.add_api_key(replace(_KEY, id="k2")))
        with pytest.raises(NotThereError):
            await write(store, lambda tx: tx.save_api_key(replace(_KEY, id="k9")))

    async def test_finished_sessions_are_found_by_age(self, store: Store) -> None:
        old = an_execution("x1", "old", status=_OVER, completed_at=at(10))
        young = an_execution("x2", "young", status=_OVER, completed_at=at(90))
        waiting = an_execution("x3", "waiting", status=ExecutionStatus.PAUSED)
        both = an_execution("x4", "both", status=_OVER, completed_at=at(5))
        child = an_execution("x5", "both", parent_execution_id="x4")
        for execution in (old, young, waiting, both):
            await make(store, a_session(str(execution.session_id)), execution)
        await make(store, None, child)
        await make(store, a_session("fresh", updated_at=at(60)))
        assert await store.read(lambda tx: tx.finished_before(at(50), limit=9)) == [named_id("old")]
        assert await store.read(lambda tx: tx.finished_before(at(5), limit=9)) == []

    async def test_it_says_that_it_can_be_written(self, store: Store) -> None:
        await store.check_writable()
        await store.check_writable()

    async def test_the_last_event_before_a_time_is_found(self, store: Store) -> None:
        session = a_session()
        await make(store, session)
        logged = [an_entry(at=at(n)) for n in range(4)]
        await write(store, lambda tx: tx.append(session, logged))
        found = [
            await store.read(lambda tx, n=n: tx.last_event_before(named_id("s"), at(n)))
            for n in (0, 2, 9)
        ]
        assert found == [0, 2, 4]

    async def test_finished_executions_of_a_session_include_subagents(self, store: Store) -> None:
        await make(
            store,
            a_session(),
            an_execution("a", status=_OVER),
            an_execution("b", created_at=at(1)),
            an_execution("c", created_at=at(2), parent_execution_id="a", status=_OVER),
        )
        rows = await store.read(lambda tx: tx.finished_executions(named_id("s")))
        assert [name_of(row.id) for row in rows] == ["a", "c"]

    async def test_a_deleted_session_leaves_nothing(self, store: Store) -> None:
        for id in ("s", "t"):
            await self._full_session(store, id)
        one = await store.read(lambda tx: tx.size())
        await write(store, lambda tx: tx.delete_session(named_id("s")))
        left = await store.read(lambda tx: tx.size())
        for name in ("sessions", "messages", "executions", "snapshots", "events"):
            assert getattr(left, name) * 2 == getattr(one, name) > 0
        assert await store.read(lambda tx: tx.execution(named_id("s-x"))) is None
        assert await store.read(lambda tx: tx.session(named_id("t"))) is not None

    async def test_the_size_report_counts_what_is_kept(self, store: Store) -> None:
        await self._full_session(store, "s")
        await make(store, a_session("foreign", tenant_id="else"))
        size = await store.read(lambda tx: tx.size(TENANT))
        assert (size.sessions, size.messages, size.executions) == (1, 2, 1)
        assert (size.snapshots, size.events) == (1, 1)
        assert (size.message_characters, size.snapshot_characters) == (10, 8)
        assert size.event_characters in (7, 8)  # a database may put a space behind a colon
        assert size.database_bytes > 1000
        assert (await store.read(lambda tx: tx.size())).sessions == 2
        assert (await store.read(lambda tx: tx.size("nobody"))).sessions == 0

    async def _full_session(self, store: Store, id: str) -> None:
        session = a_session(id)

        async def work(tx: Transaction) -> None:
            await tx.add_session(session)
            await tx.add_execution(an_execution(f"{id}-x", id))
            await tx.add_messages(session, [a_message(f"{id}-m{n}", id) for n in range(2)])
            await tx.append(session, [an_entry()])
            snapshot = a_snapshot(f"{id}-c", 0, agent_execution_id=f"{id}-x", chain_id=f"{id}-c")
            await tx.add_snapshot(snapshot)

        await write(store, work)

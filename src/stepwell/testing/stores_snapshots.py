"""What a store does with snapshots and the intents of open steps."""

import pytest
from msgspec.structs import replace

from stepwell.errors import StepwellError
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import LostLeaseError
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import Execution, StepIntent
from stepwell.testing.stores_rows import (
    TENANT,
    a_session,
    a_snapshot,
    an_execution,
    at,
    make,
    name_of,
    named_id,
    write,
)

_INTENT = StepIntent(
    execution_id=named_id("x"),
    tenant_id=TENANT,
    step_number=2,
    calls='[{"call_id": "k1"}]',
    created_at=at(1),
    response='{"text": "I send."}',
)


class SnapshotConformance:
    """Snapshots and the ledger."""

    async def test_a_snapshot_keeps_its_text_to_the_letter(self, store: Store) -> None:
        text = '{ "b":1,\n  "a" : 1e3, "u": "\\u0000 \U0001f600" }'
        snapshot = a_snapshot("c0", 0, state_json=text, is_final=True, agent_name="n", agent_id="i")
        await make(store, a_session(), an_execution())
        await write(store, lambda tx: tx.add_snapshot(snapshot))
        found = await store.read(lambda tx: tx.snapshot(named_id("c0")))
        assert found == replace(snapshot, state_json="")
        assert await store.read(lambda tx: tx.chain(snapshot)) == [text]

    async def test_a_chain_is_read_up_to_its_snapshot(self, store: Store) -> None:
        await self._chain(store, 4)
        third = a_snapshot("c2", 2)
        assert await store.read(lambda tx: tx.chain(third)) == [f'{{"n": {n}}}' for n in range(3)]
        assert not await store.read(lambda tx: tx.is_end_of_chain(third))
        last = a_snapshot("c3", 3)
        assert await store.read(lambda tx: tx.is_end_of_chain(last))

    async def test_the_list_of_an_execution_comes_without_the_documents(self, store: Store) -> None:
        await self._chain(store, 3)
        rows = await store.read(lambda tx: tx.snapshots(named_id("x")))
        assert list(rows) == [a_snapshot(f"c{n}", n, state_json="") for n in range(3)]
        assert await store.read(lambda tx: tx.newest_snapshot(named_id("x"))) == rows[-1]
        assert await store.read(lambda tx: tx.newest_snapshot(named_id("none"))) is None

    async def test_the_list_of_an_execution_comes_in_parts(self, store: Store) -> None:
        await self._chain(store, 5)
        pages: list[list[str]] = []
        after = None
        while page := await store.read(
            lambda tx, after=after: tx.snapshots(named_id("x"), after=after, limit=2)
        ):
            pages.append([name_of(row.id) for row in page])
            after = page[-1]
        assert pages == [["c0", "c1"], ["c2", "c3"], ["c4"]]
        third = a_snapshot("c2", 2)
        rest = await store.read(lambda tx: tx.snapshots(named_id("x"), after=third))
        assert [name_of(row.id) for row in rest] == ["c3", "c4"]

    async def test_two_cannot_stand_at_the_same_place_of_a_chain(self, store: Store) -> None:
        await self._chain(store, 2)
        with pytest.raises(StepwellError):
            await write(store, lambda tx: tx.add_snapshot(a_snapshot("other", 1)))

    async def test_a_chain_with_a_hole_is_not_read(self, store: Store) -> None:
        await self._chain(store, 2)
        await write(store, lambda tx: tx.add_snapshot(a_snapshot("c3", 3)))
        with pytest.raises(StepwellError, match=named_id("c3")):
            await store.read(lambda tx: tx.chain(a_snapshot("c3", 3)))

    async def test_a_rewritten_snapshot_heads_a_chain_of_its_own(self, store: Store) -> None:
        await self._chain(store, 5)
        whole = replace(a_snapshot("c2", 0), chain_id=named_id("c2"), state_json='{"whole": 2}')
        await write(store, lambda tx: tx.rewrite_snapshot(whole))
        moved = await store.read(lambda tx: tx.snapshot(named_id("c4")))
        assert moved is not None
        assert (moved.chain_id, moved.position) == (named_id("c2"), 2)
        assert await store.read(lambda tx: tx.chain(moved)) == [
            '{"whole": 2}',
            '{"n": 3}',
            '{"n": 4}',
        ]
        assert await store.read(lambda tx: tx.chain(a_snapshot("c1", 1))) == [
            '{"n": 0}',
            '{"n": 1}',
        ]

    async def test_what_others_are_built_on_is_not_deleted(self, store: Store) -> None:
        await self._chain(store, 5)
        assert (
            await write(store, lambda tx: tx.delete_snapshots(named_id("x"), keep=[named_id("c2")]))
            == 2
        )
        rows = await store.read(lambda tx: tx.snapshots(named_id("x")))
        assert [name_of(row.id) for row in rows] == ["c0", "c1", "c2"]
        await write(store, lambda tx: tx.add_execution(an_execution("y", created_at=at(1))))
        later = a_snapshot("c3", 3, agent_execution_id="y")
        await write(store, lambda tx: tx.add_snapshot(later))
        assert await write(store, lambda tx: tx.delete_snapshots(named_id("x"), keep=())) == 0
        assert len(await store.read(lambda tx: tx.chain(later))) == 4

    async def test_an_intent_is_added_replaced_and_deleted(self, store: Store) -> None:
        await self._claim(store)
        assert await store.read(lambda tx: tx.intent(named_id("x"))) is None
        await write(store, lambda tx: tx.save_intent(_INTENT, 1))
        assert await store.read(lambda tx: tx.intent(named_id("x"))) == _INTENT
        later = replace(_INTENT, step_number=3, calls="[]", response=None, created_at=at(2))
        await write(store, lambda tx: tx.save_intent(later, 1))
        assert await store.read(lambda tx: tx.intent(named_id("x"))) == later
        await write(store, lambda tx: tx.delete_intent(named_id("x")))
        assert await store.read(lambda tx: tx.intent(named_id("x"))) is None

    async def test_only_the_attempt_that_runs_it_writes_to_an_execution(self, store: Store) -> None:
        claimed = await self._claim(store)
        await self._assert_fenced(store, replace(claimed, attempt=claimed.attempt - 1))
        released = replace(claimed, status=ExecutionStatus.PENDING, worker_id=None)
        await write(store, lambda tx: tx.save_execution(released))
        await self._assert_fenced(store, claimed)
        assert await store.read(lambda tx: tx.intent(named_id("x"))) is None
        row = await store.read(lambda tx: tx.execution(named_id("x")))
        assert row is not None
        assert row.step_count == 0

    async def test_a_step_changes_its_own_columns_and_learns_of_the_others(
        self, store: Store
    ) -> None:
        claimed = await self._claim(store)
        wanted = replace(claimed, cancel_requested="enough")
        await write(store, lambda tx: tx.save_execution(wanted))
        stepped = replace(
            claimed,
            step_count=3,
            token_usage=7,
            token_details={"input": 7},
            cost=0.5,
            metadata={"told_status": "processing"},
            crashes=0,
            updated_at=at(5),
        )
        fenced = await write(store, lambda tx: tx.save_progress(stepped))
        assert fenced.execution == replace(stepped, cancel_requested="enough")
        assert fenced.user_messages == 0
        assert await write(store, lambda tx: tx.fence(stepped)) == fenced
        assert await store.read(lambda tx: tx.execution(named_id("x"))) == fenced.execution

    async def _assert_fenced(self, store: Store, execution: Execution) -> None:
        with pytest.raises(LostLeaseError):
            await write(store, lambda tx: tx.save_intent(_INTENT, execution.attempt))
        with pytest.raises(LostLeaseError):
            await write(store, lambda tx: tx.fence(execution))
        with pytest.raises(LostLeaseError):
            await write(store, lambda tx: tx.save_progress(replace(execution, step_count=9)))

    async def _claim(self, store: Store) -> Execution:
        await make(store, a_session(), an_execution())
        [claim] = await write(store, lambda tx: tx.claim([named_id("x")], worker_id="w", now=at(1)))
        return claim.execution

    async def _chain(self, store: Store, length: int) -> None:
        await make(store, a_session(), an_execution())

        async def work(tx: Transaction) -> None:
            for n in range(length):
                await tx.add_snapshot(a_snapshot(f"c{n}", n))

        await write(store, work)

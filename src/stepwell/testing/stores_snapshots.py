"""What a store does with snapshots and the tool ledger."""

import pytest
from msgspec.structs import replace

from stepwell.errors import StepwellError
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import CallStatus, LedgerCall, LedgerTurn
from stepwell.testing.stores_rows import (
    TENANT,
    a_session,
    a_snapshot,
    an_execution,
    at,
    make,
    write,
)
from stepwell.tools import ToolEffect

_CALL = LedgerCall(
    tenant_id=TENANT,
    execution_id="x",
    step_number=2,
    call_id="k1",
    tool_name="send",
    effect=ToolEffect.EXTERNAL,
    attempt=1,
    status=CallStatus.STARTED,
    started_at=at(1),
)
_TURN = LedgerTurn(
    tenant_id=TENANT, execution_id="x", step_number=2, response='{"a": 1}', created_at=at(0)
)


class SnapshotConformance:
    """Snapshots and the ledger."""

    async def test_a_snapshot_keeps_its_text_to_the_letter(self, store: Store) -> None:
        text = '{ "b":1,\n  "a" : 1e3, "u": "\\u0000 \U0001f600" }'
        snapshot = a_snapshot(
            "c0", 0, state_json=text, is_final=True, debug_mode=True, agent_name="n", agent_id="i"
        )
        await make(store, a_session(), an_execution())
        await write(store, lambda tx: tx.add_snapshot(snapshot))
        found = await store.read(lambda tx: tx.snapshot("c0"))
        assert found == replace(snapshot, state_json="")
        assert await store.read(lambda tx: tx.chain(snapshot)) == [text]

    async def test_a_chain_is_read_up_to_its_snapshot(self, store: Store) -> None:
        await self._chain(store, 4)
        third = a_snapshot("c2", 2)
        assert await store.read(lambda tx: tx.chain(third)) == [f'{{"n": {n}}}' for n in range(3)]
        assert await store.read(lambda tx: tx.chain_size("c0")) == (8, 24)
        assert await store.read(lambda tx: tx.chain_size("none")) == (0, 0)

    async def test_the_list_of_an_execution_comes_without_the_documents(self, store: Store) -> None:
        await self._chain(store, 3)
        rows = await store.read(lambda tx: tx.snapshots("x"))
        assert list(rows) == [a_snapshot(f"c{n}", n, state_json="") for n in range(3)]
        assert await store.read(lambda tx: tx.newest_snapshot("x")) == rows[-1]
        assert await store.read(lambda tx: tx.newest_snapshot("none")) is None

    async def test_the_list_of_an_execution_comes_in_parts(self, store: Store) -> None:
        await self._chain(store, 5)
        pages: list[list[str]] = []
        after = None
        while page := await store.read(
            lambda tx, after=after: tx.snapshots("x", after=after, limit=2)
        ):
            pages.append([row.id for row in page])
            after = page[-1]
        assert pages == [["c0", "c1"], ["c2", "c3"], ["c4"]]
        rest = await store.read(lambda tx: tx.snapshots("x", after=a_snapshot("c2", 2)))
        assert [row.id for row in rest] == ["c3", "c4"]

    async def test_two_cannot_stand_at_the_same_place_of_a_chain(self, store: Store) -> None:
        await self._chain(store, 2)
        with pytest.raises(StepwellError):
            await write(store, lambda tx: tx.add_snapshot(a_snapshot("other", 1)))

    async def test_a_chain_with_a_hole_is_not_read(self, store: Store) -> None:
        await self._chain(store, 2)
        await write(store, lambda tx: tx.add_snapshot(a_snapshot("c3", 3)))
        with pytest.raises(StepwellError, match="c3"):
            await store.read(lambda tx: tx.chain(a_snapshot("c3", 3)))

    async def test_a_rewritten_snapshot_heads_a_chain_of_its_own(self, store: Store) -> None:
        await self._chain(store, 5)
        whole = replace(a_snapshot("c2", 0), chain_id="c2", state_json='{"whole": 2}')
        await write(store, lambda tx: tx.rewrite_snapshot(whole))
        moved = await store.read(lambda tx: tx.snapshot("c4"))
        assert moved is not None
        assert (moved.chain_id, moved.position) == ("c2", 2)
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
        assert await write(store, lambda tx: tx.delete_snapshots("x", keep=["c2"])) == 2
        rows = await store.read(lambda tx: tx.snapshots("x"))
        assert [row.id for row in rows] == ["c0", "c1", "c2"]
        await write(store, lambda tx: tx.add_execution(an_execution("y", created_at=at(1))))
        later = a_snapshot("c3", 3, agent_execution_id="y")
        await write(store, lambda tx: tx.add_snapshot(later))
        assert await write(store, lambda tx: tx.delete_snapshots("x", keep=())) == 0
        assert len(await store.read(lambda tx: tx.chain(later))) == 4

    async def test_the_ledger_knows_what_began_and_what_ended(self, store: Store) -> None:
        await make(store, a_session(), an_execution())
        second = replace(_CALL, call_id="k2", started_at=at(2))

        async def begin(tx: Transaction) -> None:
            await tx.add_turn(_TURN)
            await tx.add_turn(replace(_TURN, response="another"))
            await tx.save_call(second)
            await tx.save_call(_CALL)

        await write(store, begin)
        assert await store.read(lambda tx: tx.ledger("x", 2)) == (_TURN, [_CALL, second])
        done = replace(
            _CALL, status=CallStatus.FINISHED, attempt=2, finished_at=at(3), result='{"r": 1}'
        )
        await write(store, lambda tx: tx.save_call(done))
        assert await store.read(lambda tx: tx.ledger("x", 2)) == (_TURN, [done, second])

    async def test_a_stored_step_is_forgotten_by_the_ledger(self, store: Store) -> None:
        await make(store, a_session(), an_execution())
        later = replace(_CALL, step_number=3)

        async def work(tx: Transaction) -> None:
            await tx.add_turn(_TURN)
            await tx.save_call(_CALL)
            await tx.save_call(later)
            await tx.settle("x", 2)

        await write(store, work)
        assert await store.read(lambda tx: tx.ledger("x", 2)) == (None, [])
        assert await store.read(lambda tx: tx.ledger("x", 3)) == (None, [later])

    async def _chain(self, store: Store, length: int) -> None:
        await make(store, a_session(), an_execution())

        async def work(tx: Transaction) -> None:
            for n in range(length):
                await tx.add_snapshot(a_snapshot(f"c{n}", n))

        await write(store, work)

"""What a store does with workers and claims: leases, takeovers, and a fair order."""

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.ports import Store
from stepwell.testing.stores_rows import (
    a_session,
    a_worker,
    an_execution,
    at,
    claim_one,
    make,
    named_id,
    write,
)

_OURS = ("helper",)


def _ids(*names: str) -> list[str]:
    return [named_id(name) for name in names]


class ClaimConformance:
    """Workers and claims."""

    async def test_a_worker_comes_back_as_it_was_stored(self, store: Store) -> None:
        worker = a_worker(version="1.2", agents=("a", "b"), lease_until=at(3))
        await write(store, lambda tx: tx.add_worker(worker))
        assert await store.read(lambda tx: tx.worker("w")) == worker
        again = a_worker(lease_until=at(4))
        await write(store, lambda tx: tx.add_worker(again))
        assert await store.read(lambda tx: tx.worker("w")) == again
        await write(store, lambda tx: tx.remove_worker("w"))
        assert await store.read(lambda tx: tx.worker("w")) is None

    async def test_a_heartbeat_of_a_removed_worker_renews_nothing(self, store: Store) -> None:
        await write(store, lambda tx: tx.add_worker(a_worker(lease_until=at(10))))
        await write(store, lambda tx: tx.add_worker(a_worker("v", lease_until=at(20))))
        assert await write(store, lambda tx: tx.renew_worker("w", at(15)))
        assert await write(store, lambda tx: tx.remove_expired_workers(at(16))) == {"w": at(15)}
        assert not await write(store, lambda tx: tx.renew_worker("w", at(30)))
        assert await store.read(lambda tx: tx.worker("w")) is None
        assert await store.read(lambda tx: tx.worker("v")) is not None

    async def test_an_execution_is_free_when_the_record_of_its_worker_is_gone(
        self, store: Store
    ) -> None:
        await make(store, a_session(), an_execution())
        await claim_one(store, lease=100)
        assert await store.read(lambda tx: tx.claimable(at(1), limit=9)) == []
        await write(store, lambda tx: tx.remove_worker("w"))
        assert await store.read(lambda tx: tx.claimable(at(1), limit=9)) == _ids("x")
        [claim] = await write(store, lambda tx: tx.claim(_ids("x"), worker_id="v", now=at(1)))
        assert (claim.is_takeover, claim.taken_from) == (True, "w")
        assert (claim.execution.attempt, claim.execution.crashes) == (2, 1)

    async def test_what_a_worker_disowns_is_taken_over_although_it_lives(
        self, store: Store
    ) -> None:
        await make(store, a_session(), an_execution())
        running = await claim_one(store, lease=100)
        assert running is not None
        await write(store, lambda tx: tx.disown(running))
        [claim] = await write(store, lambda tx: tx.claim(_ids("x"), worker_id="w", now=at(1)))
        assert (claim.is_takeover, claim.taken_from) == (True, None)
        assert claim.execution.crashes == 1
        await write(store, lambda tx: tx.disown(running))  # not its own any more
        assert await write(store, lambda tx: tx.claim(_ids("x"), worker_id="v", now=at(1))) == []

    async def test_a_heartbeat_reads_all_that_a_worker_holds(self, store: Store) -> None:
        await make(store, a_session("s"), an_execution("a", "s"))
        wanted = an_execution("b", "t", cancel_requested="enough")
        await make(store, a_session("t"), wanted, an_execution("later", "t", created_at=at(1)))
        for id in ("a", "b"):
            assert await claim_one(store, id) is not None
        held = await store.read(lambda tx: tx.held_by("w"))
        found = {(each.id, each.attempt, each.cancel_requested) for each in held}
        assert found == {(named_id("a"), 1, None), (named_id("b"), 1, "enough")}
        assert await store.read(lambda tx: tx.held_by("v")) == []

    async def test_several_are_claimed_in_the_given_order(self, store: Store) -> None:
        rows = [an_execution(f"x{n}", None, created_at=at(n)) for n in range(4)]
        await make(store, None, *rows)
        ids = [*_ids("x2", "missing", "x0", "x3"), "no UUID"]
        claims = await write(store, lambda tx: tx.claim(ids, worker_id="w", now=at(9)))
        assert [each.execution.id for each in claims] == _ids("x2", "x0", "x3")
        assert {each.execution.attempt for each in claims} == {1}
        assert await write(store, lambda tx: tx.claim([], worker_id="w", now=at(9))) == []

    async def test_only_executions_of_the_agents_are_given(self, store: Store) -> None:
        foreign = [an_execution(f"f{n}", None, agent_type="other") for n in range(5)]
        to_end = an_execution("e", None, agent_type="other", cancel_requested="enough")
        own = an_execution("own", None, created_at=at(5))
        assert await store.read(lambda tx: tx.waiting_agents()) == []
        await make(store, None, *foreign)
        assert not await store.read(lambda tx: tx.is_work_waiting(at(9), agents=_OURS))
        assert await store.read(lambda tx: tx.claimable(at(9), limit=9, agents=_OURS)) == []
        await make(store, None, own, to_end)
        found = await store.read(lambda tx: tx.claimable(at(9), limit=9, agents=_OURS))
        # One that is to end needs no agent, and comes first: it takes no time.
        assert found == _ids("e", "own")
        assert await store.read(lambda tx: tx.is_work_waiting(at(9), agents=_OURS))
        assert await store.read(lambda tx: tx.waiting_agents()) == ["helper", "other"]
        assert await store.read(lambda tx: tx.claimable(at(9), limit=9, agents=())) == _ids("e")

    async def test_a_tenant_with_a_thousand_waiting_does_not_hold_up_another(
        self, store: Store
    ) -> None:
        crowd = [
            an_execution(f"crowd{n:04}", None, tenant_id="crowd", created_at=at(n))
            for n in range(1000)
        ]
        late = [
            an_execution(f"late{n}", None, tenant_id="late", created_at=at(5000 + n))
            for n in range(3)
        ]
        await make(store, None, *crowd, *late)
        found = await store.read(lambda tx: tx.claimable(at(9000), limit=7, agents=_OURS))
        expected = ["crowd0000", "late0", "crowd0001", "late1", "crowd0002", "late2", "crowd0003"]
        assert found == _ids(*expected)

    async def test_who_runs_less_comes_first(self, store: Store) -> None:
        await write(store, lambda tx: tx.add_worker(a_worker(lease_until=at(99))))
        await make(
            store,
            None,
            *(an_execution(f"a{n}", None, tenant_id="a", created_at=at(n)) for n in range(4)),
            *(an_execution(f"b{n}", None, tenant_id="b", created_at=at(9 + n)) for n in range(3)),
        )
        first = _ids("a0", "a1")
        await write(store, lambda tx: tx.claim(first, worker_id="w", now=at(10)))
        found = await store.read(lambda tx: tx.claimable(at(20), limit=5, agents=_OURS))
        assert found == _ids("b0", "b1", "a2", "b2", "a3")

    async def test_of_a_session_only_the_head_has_a_place_in_the_queue(self, store: Store) -> None:
        waiting = [an_execution(f"s{n}", created_at=at(n)) for n in range(20)]
        await make(store, a_session(), *waiting)
        await make(store, None, an_execution("free", None, created_at=at(50)))
        found = await store.read(lambda tx: tx.claimable(at(99), limit=9, agents=_OURS))
        assert found == _ids("s0", "free")

    async def test_takeovers_come_before_what_waits(self, store: Store) -> None:
        await make(store, None, an_execution("lost", None, created_at=at(5)))
        await claim_one(store, "lost", now=5, lease=1)
        await make(store, None, an_execution("old", None))
        found = await store.read(lambda tx: tx.claimable(at(7), limit=9, agents=_OURS))
        assert found == _ids("lost", "old")
        assert await store.read(lambda tx: tx.is_work_waiting(at(7), agents=_OURS))
        row = await store.read(lambda tx: tx.execution(named_id("lost")))
        assert row is not None
        assert row.status is ExecutionStatus.RUNNING

"""What a store does with executions: claims, leases and fences."""

import pytest
from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import LostLeaseError
from stepwell.sessions.ports import ExecutionFilter, Store, Transaction
from stepwell.sessions.records import Execution
from stepwell.testing.stores_rows import (
    TENANT,
    a_message,
    a_session,
    an_execution,
    at,
    claim_one,
    make,
    name_of,
    named_id,
    status_of,
    write,
)

_PAUSED = ExecutionStatus.PAUSED
_OVER = ExecutionStatus.COMPLETED


class ExecutionConformance:
    """Executions."""

    async def test_an_execution_comes_back_as_it_was_stored(self, store: Store) -> None:
        execution = an_execution(
            agent_config={"model": "m"},
            input={"message_ids": ["m"]},
            output={"answer": [1]},
            step_count=3,
            token_usage=2**40,
            token_details={"input": 5},
            cost=0.1 + 0.2,
            stop_reason="completed",
            decision={"votes": []},
            pending=({"kind": "approval"}, {"kind": "question"}),
            error_message="no",
            metadata={"a": 1},
            worker_id="w",
            started_at=at(2),
            completed_at=at(3),
        )
        await make(store, a_session(), execution, an_execution("bare", None))
        assert await store.read(lambda tx: tx.execution(named_id("x"))) == execution
        assert await store.read(lambda tx: tx.execution(named_id("bare"))) == an_execution(
            "bare", None
        )

    async def test_a_claim_takes_what_waits(self, store: Store) -> None:
        await make(store, a_session(), an_execution())
        execution = await claim_one(store, now=5)
        assert execution is not None
        assert (execution.status, execution.attempt) == (ExecutionStatus.RUNNING, 1)
        assert (execution.worker_id, execution.started_at) == ("w", at(5))
        assert execution.crashes == 0
        assert await store.read(lambda tx: tx.execution(named_id("x"))) == execution
        assert await claim_one(store, now=6) is None
        assert await claim_one(store, "missing") is None

    async def test_a_lease_that_ran_out_can_be_taken_over(self, store: Store) -> None:
        await make(store, a_session(), an_execution())
        first = await claim_one(store, now=0, lease=10)
        assert await claim_one(store, now=10, worker="v") is None
        assert await claim_one(store, now=10.1, worker="v") is not None
        second = await self._execution(store)
        assert first is not None
        assert (second.attempt, second.crashes, second.worker_id) == (2, 1, "v")
        assert second.started_at == first.started_at

    async def test_only_the_head_of_a_session_can_be_claimed(self, store: Store) -> None:
        first, second = an_execution("a"), an_execution("b", created_at=at(1))
        free, child = an_execution("free", None), an_execution("c", parent_execution_id="a")
        await make(store, a_session(), second, first, free, child)
        assert await store.read(lambda tx: tx.claimable(at(0), limit=9)) == [
            named_id("a"),
            named_id("free"),
        ]
        assert await claim_one(store, "b") is None
        assert await claim_one(store, "c") is None
        assert await claim_one(store, "free") is not None
        running = await claim_one(store, "a")
        assert running is not None
        assert await claim_one(store, "b") is None
        await write(store, lambda tx: tx.save_execution(replace(running, status=_PAUSED)))
        assert await claim_one(store, "b") is None
        await write(store, lambda tx: tx.save_execution(replace(running, status=_OVER)))
        assert await store.read(lambda tx: tx.claimable(at(0), limit=9)) == [named_id("b")]
        assert await claim_one(store, "b") is not None

    async def test_claimable_names_what_lost_its_lease(self, store: Store) -> None:
        await make(store, a_session(), an_execution())
        await claim_one(store, now=0, lease=10)
        assert await store.read(lambda tx: tx.claimable(at(9), limit=9)) == []
        assert await store.read(lambda tx: tx.claimable(at(11), limit=9)) == [named_id("x")]

    async def test_who_was_too_slow_cannot_write(self, store: Store) -> None:
        await make(store, a_session(), an_execution())
        slow = await claim_one(store, now=0)
        quick = await claim_one(store, now=11, worker="v")
        assert slow is not None
        assert quick is not None
        with pytest.raises(LostLeaseError):
            await write(store, lambda tx: tx.save_execution(replace(slow, status=_OVER)))
        with pytest.raises(LostLeaseError):
            await write(store, lambda tx: tx.fence(slow))
        assert await store.read(lambda tx: tx.execution(named_id("x"))) == quick

    async def test_a_refused_write_takes_the_whole_transaction_with_it(self, store: Store) -> None:
        session = a_session()
        await make(store, session, an_execution())
        slow = await claim_one(store, now=0)
        await claim_one(store, now=11, worker="v")
        assert slow is not None

        async def step(tx: Transaction) -> None:
            await tx.add_messages(session, [a_message("m")])
            await tx.save_execution(slow)

        with pytest.raises(LostLeaseError):
            await write(store, step)
        assert await store.read(lambda tx: tx.message(named_id("m"))) is None

    async def test_the_fence_tells_what_came_meanwhile(self, store: Store) -> None:
        session = a_session()
        await make(store, session, an_execution())
        running = await claim_one(store)
        assert running is not None
        fenced = await write(store, lambda tx: tx.fence(running))
        assert (fenced.execution, fenced.user_messages) == (running, 0)
        steering = a_message("m", agent_execution_id="x", metadata={"steers": True})
        await write(store, lambda tx: tx.add_messages(session, [steering]))
        await write(store, lambda tx: tx.save_execution(replace(running, cancel_requested="stop")))
        fenced = await write(store, lambda tx: tx.fence(running))
        assert (fenced.execution.cancel_requested, fenced.user_messages) == ("stop", 1)

    async def test_a_stale_write_clears_no_request_to_cancel(self, store: Store) -> None:
        await make(store, a_session(), an_execution())
        running = await claim_one(store)
        assert running is not None
        await write(store, lambda tx: tx.save_execution(replace(running, cancel_requested="stop")))
        await write(store, lambda tx: tx.save_execution(replace(running, step_count=1)))
        stored = await self._execution(store)
        assert (stored.step_count, stored.cancel_requested) == (1, "stop")
        over = replace(running, status=ExecutionStatus.FAILED)
        await write(store, lambda tx: tx.save_execution(over))
        again = replace(over, status=ExecutionStatus.PENDING)
        await write(store, lambda tx: tx.save_execution(again))
        assert (await self._execution(store)).cancel_requested is None

    async def test_unfinished_lists_the_queue_of_a_session(self, store: Store) -> None:
        await make(
            store,
            a_session(),
            an_execution("b", created_at=at(2)),
            an_execution("a", created_at=at(1), status=_PAUSED),
            an_execution("done", status=_OVER),
            an_execution("child", parent_execution_id="a"),
        )
        rows = await store.read(lambda tx: tx.unfinished(named_id("s")))
        assert [name_of(row.id) for row in rows] == ["a", "b"]
        assert await store.read(lambda tx: tx.count_unfinished(TENANT, "ada")) == 2
        assert await store.read(lambda tx: tx.count_unfinished(TENANT, "bob")) == 0
        assert await store.read(lambda tx: tx.count_by_status()) == {
            ExecutionStatus.PENDING: 2,
            ExecutionStatus.PAUSED: 1,
        }

    async def test_executions_are_listed_by_session_and_by_parent(self, store: Store) -> None:
        await make(
            store,
            a_session(),
            an_execution("a"),
            an_execution("c", created_at=at(2), parent_execution_id="a"),
            an_execution("b", created_at=at(1)),
        )
        of_session = await store.read(lambda tx: tx.executions(session_id=named_id("s")))
        of_parent = await store.read(lambda tx: tx.executions(parent_execution_id=named_id("a")))
        first = await store.read(lambda tx: tx.executions(session_id=named_id("s"), limit=1))
        assert [name_of(row.id) for row in of_session] == ["a", "b", "c"]
        assert [name_of(row.id) for row in of_parent] == ["c"]
        assert [name_of(row.id) for row in first] == ["a"]

    async def test_executions_are_listed_page_by_page(self, store: Store) -> None:
        # Two of one moment, so that a time alone can't be the place to go on from.
        made = [an_execution(f"x{n}", created_at=at(n // 2)) for n in range(5)]
        child = an_execution("y", created_at=at(1), parent_execution_id="x0")
        await make(store, a_session(), *made, child)
        pages: list[list[str]] = []
        after = None
        while True:
            page = await store.read(
                lambda tx, after=after: tx.executions(
                    session_id=named_id("s"), after=after, limit=2
                )
            )
            if not page:
                break
            pages.append([name_of(row.id) for row in page])
            after = (page[-1].created_at, page[-1].id)
        assert pages == [["x0", "x1"], ["x2", "x3"], ["y", "x4"]]
        children = await store.read(
            lambda tx: tx.executions(
                parent_execution_id=named_id("x0"), after=(at(1), named_id("x3"))
            )
        )
        assert [name_of(row.id) for row in children] == ["y"]
        everywhere = await store.read(lambda tx: tx.executions(after=(at(1), named_id("y"))))
        assert [name_of(row.id) for row in everywhere] == ["x4"]

    async def test_executions_of_a_user_are_listed_newest_first(self, store: Store) -> None:
        foreign = an_execution("t", None, tenant_id="other", created_at=at(9))
        # Two of one moment, so that a time alone can't be the place to go on from.
        made = [an_execution(f"x{n}", created_at=at(n // 2)) for n in range(5)]
        await make(
            store,
            a_session(),
            *made,
            an_execution("y", created_at=at(5), parent_execution_id="x0"),
            an_execution("z", None, created_at=at(6), user_id="bob", agent_type="other"),
            foreign,
        )
        ada = ExecutionFilter(tenant_id=TENANT, user_id="ada")
        pages: list[list[str]] = []
        before = None
        while page := await store.read(
            lambda tx, before=before: tx.newest_executions(ada, before=before, limit=2)
        ):
            pages.append([name_of(row.id) for row in page])
            before = (page[-1].created_at, page[-1].id)
        assert pages == [["x4", "x3"], ["x2", "x1"], ["x0"]]
        assert await _newest(store, ExecutionFilter(tenant_id=TENANT), limit=2) == ["z", "x4"]
        other = ExecutionFilter(tenant_id=TENANT, agent_type="other")
        assert await _newest(store, other) == ["z"]
        assert await _newest(store, ExecutionFilter(tenant_id="other")) == ["t"]
        assert await _newest(store, ExecutionFilter(tenant_id=TENANT, user_id="eve")) == []

    async def test_a_user_is_listed_what_is_in_their_sessions_and_nothing_else(
        self, store: Store
    ) -> None:
        await make(store, a_session("hers"), an_execution("a", "hers", user_id="root"))
        await make(
            store,
            a_session("own", user_id="root"),
            an_execution("b", "own", user_id="root"),
            an_execution("d", "own", created_at=at(2)),
        )
        await make(store, None, an_execution("c", None, created_at=at(1), user_id="root"))
        expected = {"root": ["d", "c", "b"], "ada": ["a"], None: ["d", "c", "b", "a"]}
        for status in (None, ExecutionStatus.PENDING):
            for user, ids in expected.items():
                which = ExecutionFilter(tenant_id=TENANT, user_id=user, status=status)
                assert await _newest(store, which) == ids
                first, *rest = ids
                id = named_id(first)
                newest = await store.read(lambda tx, id=id: tx.execution(id))
                assert newest is not None
                behind = await store.read(
                    lambda tx, which=which, place=(newest.created_at, newest.id): (
                        tx.newest_executions(which, before=place, limit=9)
                    )
                )
                assert [name_of(row.id) for row in behind] == rest

    async def test_executions_are_listed_by_status(self, store: Store) -> None:
        statuses = [it for it in ExecutionStatus if it is not ExecutionStatus.RUNNING]
        await make(
            store,
            a_session(),
            *(
                an_execution(f"{it} {n}", status=it, created_at=at(n))
                for it in statuses
                for n in (0, 1)
            ),
            an_execution("child", status=_PAUSED, parent_execution_id="paused 0"),
        )
        for status in statuses:
            for user in (None, "ada"):
                which = ExecutionFilter(tenant_id=TENANT, user_id=user, status=status)
                assert await _newest(store, which) == [f"{status} 1", f"{status} 0"]
        running = ExecutionFilter(tenant_id=TENANT, status=ExecutionStatus.RUNNING)
        assert await _newest(store, running) == []

    async def test_a_session_stands_where_its_head_does_or_its_last_execution(
        self, store: Store
    ) -> None:
        await make(
            store,
            a_session("busy", last_execution_id="b2"),
            an_execution("b1", "busy", status=_PAUSED),
            an_execution("b2", "busy", created_at=at(1)),
            an_execution("child", "busy", status=ExecutionStatus.RUNNING, parent_execution_id="b1"),
        )
        over = ExecutionStatus.FAILED
        await make(
            store,
            a_session("quiet", last_execution_id="q2"),
            an_execution("q1", "quiet", status=_OVER),
            an_execution("q2", "quiet", status=over, created_at=at(1)),
        )
        await make(store, a_session("empty"))
        found = await store.read(
            lambda tx: tx.session_statuses(
                [named_id(name) for name in ("quiet", "busy", "empty", "missing")]
            )
        )
        assert found == {named_id("busy"): _PAUSED, named_id("quiet"): over}
        assert await store.read(lambda tx: tx.session_statuses([])) == {}

    async def test_a_lock_shows_the_newest_row(self, store: Store) -> None:
        await make(store, a_session(), an_execution())
        locked = await write(store, lambda tx: tx.execution(named_id("x"), lock=True))
        assert locked == an_execution()
        assert await status_of(store, "x") is ExecutionStatus.PENDING

    async def _execution(self, store: Store) -> Execution:
        execution = await store.read(lambda tx: tx.execution(named_id("x")))
        assert execution is not None
        return execution


async def _newest(store: Store, which: ExecutionFilter, limit: int = 9) -> list[str]:
    rows = await store.read(lambda tx: tx.newest_executions(which, limit=limit))
    return [name_of(row.id) for row in rows]

"""What many writers must not break: one winner, no gaps, all or nothing."""

import asyncio
from itertools import pairwise

import pytest
from msgspec.structs import replace

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.ports import Store, Transaction, session_topic
from stepwell.testing.stores_rows import (
    a_message,
    a_session,
    an_entry,
    an_execution,
    at,
    claim_one,
    make,
    named_id,
    write,
)

_WRITERS = 20


class ConcurrencyConformance:
    """Many at once, from two processes' point of view."""

    async def test_of_many_claimers_one_wins(self, store: Store, second_store: Store) -> None:
        await make(store, a_session(), an_execution())
        stores = (store, second_store) * (_WRITERS // 2)
        claims = await asyncio.gather(*(claim_one(s, worker=f"w{n}") for n, s in enumerate(stores)))
        winners = [claim for claim in claims if claim is not None]
        assert len(winners) == 1
        assert winners[0].attempt == 1

    async def test_of_many_that_take_over_one_wins(self, store: Store, second_store: Store) -> None:
        await make(store, a_session(), an_execution())
        await claim_one(store, now=0, lease=1)
        stores = (store, second_store) * (_WRITERS // 2)
        claims = await asyncio.gather(
            *(claim_one(s, now=5, worker=f"v{n}") for n, s in enumerate(stores))
        )
        attempts = [claim.attempt for claim in claims if claim is not None]
        assert attempts == [2]

    async def test_a_session_never_has_two_that_run(
        self, store: Store, second_store: Store
    ) -> None:
        queue = [an_execution(f"x{n}", created_at=at(n)) for n in range(4)]
        await make(store, a_session(), *queue)
        most = 0

        async def work(mine: Store) -> None:
            nonlocal most
            for execution in queue * 3:
                taken = await claim_one(mine, execution.id)
                if taken is None:
                    continue
                rows = await mine.read(lambda tx: tx.unfinished(named_id("s")))
                most = max(most, sum(row.status is ExecutionStatus.RUNNING for row in rows))
                over = replace(taken, status=ExecutionStatus.COMPLETED)
                await write(mine, lambda tx, over=over: tx.save_execution(over))

        await asyncio.gather(*(work(s) for s in (store, second_store) * 4))
        assert most == 1

    async def test_many_writers_of_one_session_leave_no_gap(
        self, store: Store, second_store: Store
    ) -> None:
        session = a_session()
        await make(store, session)

        async def say(mine: Store, n: int) -> None:
            async def work(tx: Transaction) -> None:
                locked = await tx.session(named_id("s"), lock=True)
                assert locked is not None
                await tx.add_messages(locked, [a_message(f"m{n}-{k}") for k in range(2)])
                await tx.append(locked, [an_entry()] * 3)

            await write(mine, work)

        stores = (store, second_store) * (_WRITERS // 2)
        await asyncio.gather(*(say(mine, n) for n, mine in enumerate(stores)))
        events = await store.read(lambda tx: tx.entries_after(named_id("s"), 0, limit=999))
        assert [event.seq for event in events] == list(range(1, 3 * _WRITERS + 1))
        messages = await store.read(lambda tx: tx.messages(named_id("s"), limit=999))
        assert len(messages) == 2 * _WRITERS
        assert all(a.created_at < b.created_at for a, b in pairwise(messages))

    async def test_writers_that_lock_nothing_leave_no_gap_either(
        self, store: Store, second_store: Store
    ) -> None:
        session = a_session()
        await make(store, session)
        stores = (store, second_store) * (_WRITERS // 2)
        await asyncio.gather(
            *(write(mine, lambda tx: tx.append(session, [an_entry()])) for mine in stores)
        )
        events = await store.read(lambda tx: tx.entries_after(named_id("s"), 0, limit=999))
        assert [event.seq for event in events] == list(range(1, _WRITERS + 1))

    async def test_one_that_raises_leaves_nothing_and_harms_nobody(self, store: Store) -> None:
        session = a_session()
        await make(store, session)

        async def say(n: int) -> None:
            async def work(tx: Transaction) -> None:
                await tx.append(session, [an_entry(payload={"n": n})])
                await tx.add_messages(session, [a_message(f"m{n}")])
                if n % 3 == 0:
                    raise ValueError(n)

            await write(store, work)

        results = await asyncio.gather(*(say(n) for n in range(12)), return_exceptions=True)
        assert [isinstance(result, ValueError) for result in results] == [
            n % 3 == 0 for n in range(12)
        ]
        events = await store.read(lambda tx: tx.entries_after(named_id("s"), 0, limit=99))
        assert sorted(entry.payload["n"] for entry in events) == [n for n in range(12) if n % 3]
        assert [event.seq for event in events] == list(range(1, 9))

    async def test_one_that_is_cancelled_leaves_nothing(self, store: Store) -> None:
        session = a_session()
        await make(store, session)
        begun = asyncio.Event()

        async def work(tx: Transaction) -> None:
            await tx.append(session, [an_entry()])
            begun.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(write(store, work))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        added = await write(store, lambda tx: tx.append(session, [an_entry()]))
        assert added[0].seq == 1

    async def test_the_same_key_sent_twice_at_once_is_stored_once(
        self, store: Store, second_store: Store
    ) -> None:
        session = a_session()
        await make(store, session)

        async def send(mine: Store, n: int) -> str:
            async def work(tx: Transaction) -> str:
                known = await tx.message_by_key("tenant", "key")
                if known is not None:
                    return known.id
                # In a session of its own, as a first message is: nothing is locked.
                own = a_session(f"own{n}")
                await tx.add_session(own)
                new = a_message(f"m{n}", own.id, idempotency_key="key")
                return (await tx.add_messages(own, [new]))[0].id

            return await write(mine, work)

        ids = await asyncio.gather(*(send(s, n) for n, s in enumerate((store, second_store) * 4)))
        assert len(set(ids)) == 1

    async def test_a_read_sees_one_moment(self, store: Store, second_store: Store) -> None:
        session = a_session()
        await make(store, session)

        async def look(tx: Transaction) -> tuple[int, int]:
            first = len(await tx.entries_after(named_id("s"), 0, limit=9))
            await write(second_store, lambda w: w.append(session, [an_entry()]))
            return first, len(await tx.entries_after(named_id("s"), 0, limit=9))

        assert await store.read(look) == (0, 0)
        assert len(await store.read(lambda tx: tx.entries_after(named_id("s"), 0, limit=9))) == 1

    async def test_other_processes_hear_the_bus_if_it_reaches_all(
        self, store: Store, second_store: Store
    ) -> None:
        session = a_session()
        await make(store, session)
        async with second_store.bus.subscribe(session_topic(named_id("s"))) as news:
            while await news.wait(0.2):
                pass
            await write(store, lambda tx: tx.append(session, [an_entry()]))
            assert await news.wait(3 if store.bus.reaches_all else 0.1) is store.bus.reaches_all

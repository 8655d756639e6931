"""What a store does with sessions, messages and events."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from stepwell.sessions.errors import ConflictError, NotThereError
from stepwell.sessions.ports import SessionFilter, Store, Transaction, session_topic
from stepwell.sessions.records import MessageRole, SessionStatus, WhenBusy
from stepwell.testing.stores_rows import (
    START,
    TENANT,
    a_message,
    a_session,
    an_entry,
    an_execution,
    at,
    make,
    name_of,
    named_id,
    write,
)

_TICK = timedelta(microseconds=1)


class SessionConformance:
    """Sessions, messages, events."""

    async def test_a_session_comes_back_as_it_was_stored(self, store: Store) -> None:
        session = a_session(
            title="Größe \U0001f600",
            status=SessionStatus.ARCHIVED,
            when_busy=WhenBusy.STEER,
            related_type="order",
            related_id="7",
            initial_context_url="/orders/7",
            metadata={"deep": {"list": [1, 2.5, None, True, "x"]}, "z": 1, "a": 2},
            last_execution_id=named_id("x"),
            last_snapshot_id="n",
        )
        await make(store, session)
        assert await store.read(lambda tx: tx.session(named_id("s"))) == session
        assert await store.read(lambda tx: tx.session(named_id("other"))) is None
        assert await store.read(lambda tx: tx.session(named_id("not a UUID"))) is None

    async def test_saving_a_session_leaves_its_counters_alone(self, store: Store) -> None:
        session = a_session()
        await make(store, session, events=2)
        await write(store, lambda tx: tx.add_messages(session, [a_message("m")]))
        changed = replace(session, title="New", updated_at=at(5), last_seq=99)
        await write(store, lambda tx: tx.save_session(changed))
        stored = await store.read(lambda tx: tx.session(named_id("s")))
        assert stored == replace(changed, last_seq=2, last_message_at=START)

    async def test_the_same_session_twice_is_a_conflict(self, store: Store) -> None:
        await make(store, a_session())
        with pytest.raises(ConflictError):
            await make(store, a_session())

    async def test_sessions_are_listed_newest_first_in_pages(self, store: Store) -> None:
        for n in range(5):
            # Two share a time, so that the id decides.
            await make(store, a_session(f"s{n}", updated_at=at(n // 2)))
        which = SessionFilter(tenant_id=TENANT)
        first = await store.read(lambda tx: tx.sessions(which, limit=2))
        cursor = (first[-1].updated_at, first[-1].id)
        rest = await store.read(lambda tx: tx.sessions(which, before=cursor, limit=9))
        assert [name_of(s.id) for s in (*first, *rest)] == ["s4", "s3", "s2", "s1", "s0"]

    async def test_a_filter_finds_what_it_names(self, store: Store) -> None:
        await make(store, a_session("mine"))
        await make(store, a_session("bobs", user_id="bob", agent_type="coder"))
        await make(store, a_session("closed", status=SessionStatus.CLOSED))
        await make(store, a_session("foreign", tenant_id="else"))

        async def search(**fields: object) -> set[str]:
            which = SessionFilter(tenant_id=TENANT, **fields)  # type: ignore[arg-type]
            return {name_of(s.id) for s in await store.read(lambda tx: tx.sessions(which, limit=9))}

        assert await search() == {"mine", "bobs", "closed"}
        assert await search(user_id="ada") == {"mine", "closed"}
        assert await search(user_id="ada", status=SessionStatus.ACTIVE) == {"mine"}
        assert await search(agent_type="coder") == {"bobs"}

    async def test_search_finds_words_in_titles_and_in_what_was_said(self, store: Store) -> None:
        titled, talked = a_session("titled", title="Überweisung 100% fertig"), a_session("talked")
        await make(store, titled)
        await make(store, talked)
        said = [
            a_message("m1", "talked", content="Where is my PARCEL?"),
            a_message("m2", "talked", content="It is lost.", role=MessageRole.ASSISTANT),
            a_message("m3", "talked", content="secret_step", role=MessageRole.INFO),
        ]
        await write(store, lambda tx: tx.add_messages(talked, said))

        async def search(words: str) -> set[str]:
            which = SessionFilter(tenant_id=TENANT, search=words)
            return {name_of(s.id) for s in await store.read(lambda tx: tx.sessions(which, limit=9))}

        assert await search("überweisung") == {"titled"}
        assert await search("parcel LOST") == {"talked"}
        assert await search("parcel fertig") == set()
        assert await search("100%") == {"titled"}
        assert await search("0%f") == set()
        assert await search("secret_step") == set()
        assert await search("' OR 1=1 --") == set()

    async def test_messages_get_times_that_only_grow(self, store: Store) -> None:
        session = a_session()
        await make(store, session)
        first = [a_message("m1", created_at=at(5)), a_message("m2", created_at=at(5))]
        added = await write(store, lambda tx: tx.add_messages(session, first))
        assert [m.created_at for m in added] == [at(5), at(5) + _TICK]
        late = [a_message("m3", created_at=at(1)), a_message("m4", created_at=at(9))]
        added = await write(store, lambda tx: tx.add_messages(session, late))
        assert [m.created_at for m in added] == [at(5) + 2 * _TICK, at(9)]
        stored = await store.read(lambda tx: tx.session(named_id("s")))
        assert stored is not None
        assert stored.last_message_at == at(9)

    async def test_a_message_that_is_there_is_not_added_again(self, store: Store) -> None:
        session = a_session()
        await make(store, session)
        one, two = a_message("m1", content="as it was"), a_message("m2")
        await write(store, lambda tx: tx.add_messages(session, [one]))
        again = [replace(one, content="changed"), two, two]
        added = await write(store, lambda tx: tx.add_messages(session, again))
        assert [name_of(message.id) for message in added] == ["m2"]
        assert await store.read(lambda tx: tx.message(named_id("m1"))) == one

    async def test_messages_of_no_session_are_refused(self, store: Store) -> None:
        with pytest.raises(NotThereError):
            await write(store, lambda tx: tx.add_messages(a_session(), [a_message("m")]))

    async def test_messages_are_read_from_both_ends(self, store: Store) -> None:
        session = a_session()
        await make(store, session)
        new = [a_message(f"m{n}", created_at=at(n)) for n in range(6)]
        await write(store, lambda tx: tx.add_messages(session, new))

        async def ids(**cursor: object) -> list[str]:
            rows = await store.read(lambda tx: tx.messages(named_id("s"), limit=2, **cursor))  # type: ignore[arg-type]
            return [name_of(message.id) for message in rows]

        assert await ids() == ["m4", "m5"]
        assert await ids(before=(at(4), named_id("m4"))) == ["m2", "m3"]
        assert await ids(after=(at(1), named_id("m1"))) == ["m2", "m3"]
        assert await ids(after=(at(5), named_id("m5"))) == []

    async def test_a_key_finds_its_message_within_its_tenant(self, store: Store) -> None:
        session = a_session()
        await make(store, session)
        keyed = a_message("m", idempotency_key="ada:1", metadata={"k": "v"}, context_url="/x")
        await write(store, lambda tx: tx.add_messages(session, [keyed]))
        assert await store.read(lambda tx: tx.message_by_key(TENANT, "ada:1")) == keyed
        assert await store.read(lambda tx: tx.message_by_key("else", "ada:1")) is None
        twice = a_message("m2", idempotency_key="ada:1")
        with pytest.raises(ConflictError):
            await write(store, lambda tx: tx.add_messages(session, [twice]))

    async def test_steering_messages_are_those_that_say_so(self, store: Store) -> None:
        session = a_session()
        await make(store, session, an_execution(), an_execution("y"))
        said = [
            a_message("m1", agent_execution_id="x"),
            a_message("m2", agent_execution_id="x", metadata={"steers": True}),
            a_message("m3", agent_execution_id="y", metadata={"steers": True}),
            a_message("m4", agent_execution_id="x", metadata={"steers": True}),
        ]
        await write(store, lambda tx: tx.add_messages(session, said))
        steering = await store.read(lambda tx: tx.steering_messages(named_id("x")))
        assert [name_of(message.id) for message in steering] == ["m2", "m4"]

    async def test_what_no_database_can_hold_is_replaced(self, store: Store) -> None:
        session = a_session()
        await make(store, session)
        broken = a_message("m", content="a\x00b\udce9", metadata={"path": "caf\udce9", "n": "\x00"})
        await write(store, lambda tx: tx.add_messages(session, [broken]))
        stored = await store.read(lambda tx: tx.message(named_id("m")))
        assert stored is not None
        assert stored.content == "a\ufffdb\ufffd"
        assert stored.metadata == {"path": "caf\ufffd", "n": "\ufffd"}

    async def test_events_are_numbered_without_gaps(self, store: Store) -> None:
        session = a_session()
        await make(store, session, an_execution())
        assert await store.read(lambda tx: tx.entry_range(named_id("s"))) == (1, 0)
        first = [an_entry(payload={"text": "\u2028"}), an_entry(execution_id="x")]
        logged = await write(store, lambda tx: tx.append(session, first))
        again = [an_entry(payload={"n": 3}), an_entry(payload={"n": 4})]
        more = await write(store, lambda tx: tx.append(session, again))
        numbers = [(entry.payload.get("n"), entry.seq) for entry in (*logged, *more)]
        assert numbers == [(None, 1), (1, 2), (3, 3), (4, 4)]
        assert len({entry.id for entry in (*logged, *more)}) == 4
        assert await store.read(lambda tx: tx.entries_after(named_id("s"), 0, limit=9)) == [
            *logged,
            *more,
        ]
        assert await store.read(lambda tx: tx.entries_after(named_id("s"), 1, limit=1)) == [
            logged[1]
        ]
        assert await store.read(lambda tx: tx.entry_range(named_id("s"))) == (1, 4)

    async def test_counters_are_right_within_a_transaction_as_well(self, store: Store) -> None:
        session = a_session()

        async def work(tx: Transaction) -> None:
            await tx.add_session(session)
            await tx.append(session, [an_entry(payload={"n": n}) for n in range(40)])
            await tx.add_messages(session, [a_message(f"m{n}") for n in range(40)])
            assert await tx.entry_range(named_id("s")) == (1, 40)
            await tx.append(session, [an_entry()])
            await tx.save_session(replace(session, title="New"))
            await tx.add_messages(session, [a_message("m40")])
            seen = await tx.session(named_id("s"))
            assert seen is not None
            assert (seen.last_seq, seen.title) == (41, "New")
            assert seen.last_message_at == START + 40 * _TICK
            await tx.append(session, [an_entry()])

        await write(store, work)
        stored = await store.read(lambda tx: tx.session(named_id("s")))
        assert stored is not None
        assert (stored.last_seq, stored.last_message_at) == (42, START + 40 * _TICK)

    async def test_the_log_remembers_its_numbers_when_it_is_pruned(self, store: Store) -> None:
        session = a_session()
        await make(store, session, events=3)
        assert await write(store, lambda tx: tx.delete_entries(named_id("s"), up_to=2)) == 2
        assert await store.read(lambda tx: tx.entry_range(named_id("s"))) == (3, 3)
        assert await write(store, lambda tx: tx.delete_entries(named_id("s"), up_to=9)) == 1
        assert await store.read(lambda tx: tx.entry_range(named_id("s"))) == (4, 3)
        added = await write(store, lambda tx: tx.append(session, [an_entry()]))
        assert added[0].seq == 4

    async def test_news_is_published_once_it_can_be_read(self, store: Store) -> None:
        session = a_session()
        await make(store, session)

        async def silent(tx: Transaction) -> None:
            await tx.append(session, [an_entry()])
            raise KeyError

        async with store.bus.subscribe(session_topic(named_id("s"))) as news:
            while await news.wait(0.1):  # what came before is over
                pass
            with pytest.raises(KeyError):
                await write(store, silent)
            assert not await news.wait(0.1)
            await write(store, lambda tx: tx.append(session, [an_entry()]))
            assert await news.wait(5)

    async def test_a_topic_wakes_only_those_who_wait_for_it(self, store: Store) -> None:
        async with store.bus.subscribe("one") as one, store.bus.subscribe("two") as two:
            while await two.wait(0.1):
                pass
            store.bus.publish("one")
            assert await one.wait(5)
            assert not await two.wait(0.1)

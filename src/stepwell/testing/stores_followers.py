"""What a store does for those who follow sessions."""

from collections.abc import Sequence
from typing import Any

from stepwell.sessions.bus import OpenText
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.records import ApiKeyRecord
from stepwell.testing.stores_rows import START, TENANT, a_session, make, name_of, named_id, write


def _a_key(id: str) -> ApiKeyRecord:
    return ApiKeyRecord(
        id=id,
        tenant_id=TENANT,
        user_id="ada",
        name="ci",
        prefix=f"prefix of {id}",
        secret_hash="0f",
        created_at=START,
    )


class FollowerConformance:
    """One query for all of them, and none while nothing happens."""

    async def test_one_query_finds_which_of_many_sessions_have_news(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            await make(store, a_session(name), events=2)

        async def news(known: dict[str, int]) -> Sequence[str]:
            by_id = {named_id(name): seq for name, seq in known.items()}
            found = await store.read(lambda tx: tx.sessions_with_news({**by_id, "no UUID": 0}))
            return [name_of(id) for id in found]

        assert sorted(await news({"a": 0, "b": 1, "c": 2, "gone": 0})) == ["a", "b"]
        assert await news({"a": 2, "c": 3}) == []
        assert await news({}) == []
        many = {f"never {number}": 0 for number in range(20_000)}
        assert list(await news({**many, "b": 1})) == ["b"]

    async def test_many_sessions_and_keys_are_read_at_once(self, store: Store) -> None:
        sessions = [a_session(name) for name in ("a", "b", "c")]
        keys = [_a_key(name) for name in ("k1", "k2")]

        async def work(tx: Transaction) -> None:
            for session in sessions:
                await tx.add_session(session)
            for key in keys:
                await tx.add_api_key(key)

        await write(store, work)
        found = await store.read(
            lambda tx: tx.sessions_by_id(
                [sessions[0].id, sessions[2].id, named_id("gone"), "no UUID"]
            )
        )
        assert found == {it.id: it for it in (sessions[0], sessions[2])}
        assert await store.read(lambda tx: tx.api_keys_by_id(["k2", "gone"])) == {"k2": keys[1]}
        assert await store.read(lambda tx: tx.sessions_by_id([])) == {}
        assert await store.read(lambda tx: tx.api_keys_by_id([])) == {}

    async def test_the_marker_differs_once_somebody_else_has_written(
        self, store: Store, second_store: Store
    ) -> None:
        before = await second_store.change_marker()
        assert await second_store.change_marker() == before
        await make(store, a_session())
        after = await second_store.change_marker()
        assert before is None or after != before

    async def test_the_newest_attempt_stores_the_text_so_far(self, store: Store) -> None:
        await make(store, a_session())
        session, root, child = named_id("s"), named_id("x"), named_id("child")

        def a_text(text: str, **fields: Any) -> OpenText:
            given: dict[str, Any] = {"session_id": session, "execution_id": root, "attempt": 2}
            given |= {"step_number": 1, "response_index": 0, "text": text, "updated_at": START}
            return OpenText(**{**given, **fields})

        async def read_texts() -> Sequence[OpenText]:
            return await store.read(lambda tx: tx.open_texts(session))

        first, other = a_text("Gr\u00fc"), a_text("\U0001f600", execution_id=child)
        await write(store, lambda tx: tx.save_open_texts([first, other]))
        assert sorted(await read_texts(), key=lambda it: it.text) == [first, other]
        longer = a_text("Gr\u00fc\u00dfe")
        await write(store, lambda tx: tx.save_open_texts([longer], closed=[child]))
        assert await read_texts() == [longer]
        zombie = a_text("late", attempt=1)
        await write(store, lambda tx: tx.save_open_texts([zombie]))
        assert await read_texts() == [longer]
        await write(store, lambda tx: tx.delete_session(session))
        assert await read_texts() == []

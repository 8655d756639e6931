"""API keys: shown once, checked in constant time, revocable."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.server.auth import ApiKeys, KeyRing, NotAllowedError
from stepwell.server.auth.keys import MOST_KEYS
from stepwell.sessions.errors import (
    NotThereError,
    RefusedError,
    StoreUnavailableError,
    TooManyError,
)
from stepwell.sessions.ports import ACCESS_TOPIC
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import ApiKeyRecord
from stepwell.testing import FakeClock, SequentialIds
from tests.unit.server.auth.rows import Rows, connection

ADA = Principal(user_id="ada", tenant_id="t1")
ADMIN = Principal(user_id="root", tenant_id="t1", is_admin=True)


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ring(rows: Rows, clock: FakeClock) -> KeyRing:
    return KeyRing(rows, clock, new_id=SequentialIds("key"))  # pyright: ignore[reportArgumentType]


async def test_a_key_signs_in_whom_it_was_made_for(ring: KeyRing) -> None:
    key, text = await ring.create(ADA, "laptop")
    assert await ring.verify(text) == Principal(user_id="ada", tenant_id="t1", key_id=key.id)


async def test_the_secret_is_kept_nowhere(ring: KeyRing, rows: Rows) -> None:
    key, text = await ring.create(ADA, "laptop")
    secret = text.removeprefix(f"sw_{key.prefix}_")
    assert len(secret) == 43
    assert secret not in repr(rows.keys)
    assert key.secret_hash not in text
    _, other = await ring.create(ADA, "laptop")
    assert other != text


async def test_a_wrong_secret_a_wrong_prefix_and_no_key_sign_nobody_in(ring: KeyRing) -> None:
    key, text = await ring.create(ADA, "laptop")
    last = "A" if text[-1] != "A" else "B"
    wrong = [
        text[:-1] + last, text[:-1], text + "A", f" {text}", text + "\n", text.upper(), "", "sw_",
        text.replace(key.prefix, "a" * 12), f"sw_{key.prefix}_{key.secret_hash}",
        "sw_" + "a" * 100_000, f"sw_{key.prefix}_" + "é" * 43, "' OR 1=1 --",
    ]  # fmt: skip
    for attempt in wrong:
        assert await ring.verify(attempt) is None, attempt
    assert await ring.verify(text) is not None


async def test_a_revoked_key_is_refused_and_open_channels_hear_of_it(
    ring: KeyRing, rows: Rows, clock: FakeClock
) -> None:
    key, text = await ring.create(ADA, "laptop")
    principal = await ring.verify(text)
    assert principal is not None
    assert await ring.is_valid(principal)
    revoked = await ring.revoke(key.id, tenant_id="t1")
    assert revoked.revoked_at == clock.now()
    assert rows.told == [ACCESS_TOPIC]
    assert await ring.verify(text) is None
    assert not await ring.is_valid(principal)
    clock.advance(60)
    assert (await ring.revoke(key.id, tenant_id="t1")).revoked_at == revoked.revoked_at
    assert rows.told == [ACCESS_TOPIC]


async def test_a_key_makes_no_key_unless_it_is_an_administrators(ring: KeyRing, rows: Rows) -> None:
    _, text = await ring.create(ADA, "short")
    who = await ring.verify(text)
    assert who is not None
    with pytest.raises(NotAllowedError) as refused:
        await ring.create(who, "for ever")
    assert "signed in with a key" in refused.value.detail
    assert len(rows.keys) == 1
    _, text = await ring.create(ADMIN, "root", is_admin=True)
    who = await ring.verify(text)
    assert who is not None
    await ring.create(who, "another")
    assert len(rows.keys) == 3


async def test_a_user_has_so_many_keys_and_those_that_ended_do_not_count(
    ring: KeyRing, rows: Rows, clock: FakeClock
) -> None:
    first, _ = await ring.create(ADA, "first")
    await ring.create(ADA, "day", expires_at=clock.now() + timedelta(days=1))
    for _ in range(MOST_KEYS - 2):
        await ring.create(ADA, "k")
    for who, of in ((ADA, None), (ADMIN, ADA.user_id)):
        with pytest.raises(TooManyError, match="has 100 keys"):
            await ring.create(who, "one more", user_id=of)
    await ring.create(ADMIN, "somebody else's")
    assert len(rows.keys) == MOST_KEYS + 1
    await ring.revoke(first.id, tenant_id="t1")
    clock.advance(86400)
    for _ in range(2):
        await ring.create(ADA, "k")


async def test_a_key_of_another_tenant_can_not_be_revoked(ring: KeyRing) -> None:
    key, text = await ring.create(ADA, "laptop")
    with pytest.raises(NotThereError, match="there is no key"):
        await ring.revoke(key.id, tenant_id="t2")
    with pytest.raises(NotThereError):
        await ring.revoke("missing", tenant_id="t1")
    assert await ring.verify(text) is not None


async def test_a_key_expires_at_its_time(ring: KeyRing, clock: FakeClock) -> None:
    _, text = await ring.create(ADA, "day", expires_at=clock.now() + timedelta(days=1))
    principal = await ring.verify(text)
    assert principal is not None
    clock.advance(86_399)
    assert await ring.verify(text) is not None
    clock.advance(1)
    assert await ring.verify(text) is None
    assert not await ring.is_valid(principal)


async def test_use_is_noted_once_a_minute(ring: KeyRing, rows: Rows, clock: FakeClock) -> None:
    key, text = await ring.create(ADA, "laptop")
    first = clock.now()
    for _ in range(3):
        await ring.verify(text)
        clock.advance(19)
    assert rows.keys[key.prefix].last_used_at == first
    assert rows.writes.count("key_used") == 1
    clock.advance(3)
    await ring.verify(text)
    assert rows.keys[key.prefix].last_used_at == clock.now()
    assert rows.writes.count("key_used") == 2


async def test_a_refused_key_is_not_noted_as_used(ring: KeyRing, rows: Rows) -> None:
    key, text = await ring.create(ADA, "laptop")
    await ring.verify(text[:-1] + ("A" if text[-1] != "A" else "B"))
    assert rows.keys[key.prefix].last_used_at is None


async def test_noting_use_does_not_undo_a_revocation_that_came_in_between(
    ring: KeyRing, rows: Rows, clock: FakeClock
) -> None:
    key, text = await ring.create(ADA, "laptop")
    revoked = replace(key, revoked_at=clock.now())
    rows.before_write = lambda: rows.keys.update({key.prefix: revoked})
    await ring.verify(text)
    assert rows.keys[key.prefix] == revoked
    assert await ring.verify(text) is None


async def test_a_store_that_can_not_write_just_now_refuses_nobody(
    ring: KeyRing, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    _, text = await ring.create(ADA, "laptop")
    rows.write_fault = StoreUnavailableError("read only")
    assert await ring.verify(text) is not None
    assert "could not store the use of key" in caplog.text
    assert text not in caplog.text


async def test_only_an_administrator_makes_keys_for_others_or_for_administrators(
    ring: KeyRing, rows: Rows
) -> None:
    with pytest.raises(NotAllowedError):
        await ring.create(ADA, "k", is_admin=True)
    with pytest.raises(NotAllowedError):
        await ring.create(ADA, "k", user_id="bob")
    assert rows.keys == {}
    key, text = await ring.create(ADMIN, "k", user_id="bob", is_admin=True)
    assert await ring.verify(text) == Principal(
        user_id="bob", tenant_id="t1", is_admin=True, key_id=key.id
    )


@pytest.mark.parametrize("name", ["", "  ", "a" * 101, "a\nb", "a\0b"])
async def test_a_bad_name_is_refused(ring: KeyRing, rows: Rows, name: str) -> None:
    with pytest.raises(RefusedError, match="name must be"):
        await ring.create(ADA, name)
    with pytest.raises(RefusedError, match="user_id must be"):
        await ring.create(ADMIN, "fine", user_id=name * 2)
    assert rows.keys == {}


async def test_an_expiry_must_lie_ahead_and_have_a_zone(ring: KeyRing, clock: FakeClock) -> None:
    for when in (clock.now(), datetime(2030, 1, 1), datetime(2020, 1, 1, tzinfo=UTC)):  # noqa: DTZ001
        with pytest.raises(RefusedError, match="expires_at"):
            await ring.create(ADA, "k", expires_at=when)


async def test_a_write_that_is_repeated_makes_one_key(rows: Rows, clock: FakeClock) -> None:
    added: list[ApiKeyRecord] = []

    class Twice(Rows):
        async def write(self, work: Any, /, *, name: str) -> Any:
            await work(self)
            return await work(self)

        async def add_api_key(self, key: ApiKeyRecord, /) -> None:
            added.append(key)
            await super().add_api_key(key)

    await KeyRing(Twice(), clock).create(ADA, "k")  # pyright: ignore[reportArgumentType]
    assert len(added) == 1


async def test_keys_are_listed_by_tenant_and_user(ring: KeyRing) -> None:
    mine, _ = await ring.create(ADA, "a")
    other, _ = await ring.create(ADMIN, "b")
    assert await ring.list_keys("t1") == [mine, other]
    assert await ring.list_keys("t1", user_id="ada") == [mine]
    assert await ring.list_keys("t2") == []


@pytest.mark.parametrize(
    "header",
    [("Authorization", "Bearer {}"), ("authorization", "bearer   {}"), ("X-Api-Key", "{}")],
)
async def test_a_key_comes_in_one_of_two_headers(ring: KeyRing, header: tuple[str, str]) -> None:
    _, text = await ring.create(ADA, "k")
    request = connection([(header[0], header[1].format(text))])
    principal = await ApiKeys(ring).authenticate(request)
    assert principal is not None
    assert principal.user_id == "ada"


async def test_a_key_beside_a_foreign_token_counts_and_two_keys_do_not(ring: KeyRing) -> None:
    _, one = await ring.create(ADA, "a")
    _, two = await ring.create(ADMIN, "b")
    keys = ApiKeys(ring)
    token = ("Authorization", "Bearer aaa.bbb.ccc")
    assert await keys.authenticate(connection([token, ("X-Api-Key", one)])) is not None
    for headers in (
        [("Authorization", f"Bearer {one}"), ("X-Api-Key", two)],
        [("Authorization", f"Bearer {one}"), ("Authorization", f"Bearer {one}")],
        [("X-Api-Key", one), ("X-Api-Key", one)],
        [("Authorization", f"Basic {one}")],
        [("Authorization", one)],
        [("Authorization", f"Bearer {one} {one}")],
        [("Authorization", "Bearer")],
        [("Authorization", "Bearer sw_\xe9")],
        [("Authorization", f"Bearer {one}" + " " * 20_000)],
        [("Cookie", f"x-api-key={one}")],
        [token],
        [],
    ):
        assert await keys.authenticate(connection(headers)) is None, headers

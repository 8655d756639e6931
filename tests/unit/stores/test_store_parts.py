"""The parts of stores that need no database."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from msgspec import json

from stepwell.errors import ConfigurationError, SerializationError
from stepwell.sessions.bus import Delta
from stepwell.sessions.errors import ConflictError, RefusedError, StoreUnavailableError
from stepwell.sessions.records import Execution, Session
from stepwell.stores import tables
from stepwell.stores.bus.frames import Frame, encode_frames
from stepwell.stores.codec import RecordCodec, clean_text, iso_time, json_of
from stepwell.stores.database_url import open_store
from stepwell.stores.errors import DamagedDataError
from stepwell.stores.retries import Clash, PassingFault, retry_passing_faults
from stepwell.stores.session_queries import contains, words_of
from stepwell.stores.types import SQLITE
from stepwell.testing import FakeClock
from stepwell.testing.stores_rows import an_execution


def test_times_are_exact_to_the_microsecond_and_sort_as_texts() -> None:
    east = timezone(timedelta(hours=2))
    times = [
        datetime(1, 1, 2, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC),
        datetime(2026, 1, 1, 14, 0, 0, 123457, tzinfo=east),
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ]
    texts = [iso_time(time) for time in times]
    assert [datetime.fromisoformat(text) for text in texts] == times
    assert texts == sorted(texts)
    assert texts[2] == "2026-01-01T12:00:00.000000Z"


def test_documents_hold_no_nul() -> None:
    value = {"a\x00": ["\x00\x00b", "\\u0000", "\\\x00"]}
    assert msgspec.json.decode(json_of(value)) == {
        "a\ufffd": ["\ufffd\ufffdb", "\\u0000", "\\\ufffd"]
    }


def test_a_record_survives_its_row() -> None:
    codec = RecordCodec(Execution, tables.executions, SQLITE)
    execution = an_execution(pending=({"kind": "approval"},), cost=0.1)
    row = [codec.values(execution)[name] for name in codec.names]
    assert codec.record(row) == execution


def test_a_row_that_does_not_fit_is_named() -> None:
    codec = RecordCodec(Session, tables.sessions, SQLITE)
    with pytest.raises(DamagedDataError, match=r"agent_sessions \(id 'broken'\)"):
        codec.record(["broken", *(None for _ in codec.names[1:])])


def test_a_table_has_exactly_the_fields_of_its_record() -> None:
    with pytest.raises(KeyError):
        RecordCodec(Execution, tables.sessions, SQLITE)


@pytest.mark.parametrize("value", [{"x": object()}, {"x": {1, 2}, "y": lambda: 0}])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(SerializationError, match="JSON only"):
        json_of(value)


def test_text_is_left_alone_unless_no_database_can_hold_it() -> None:
    for text in ("", "plain", "Größe \U0001f600", "a\nb\tc"):
        assert clean_text(text) is text
    assert clean_text("a\x00\udce9") == "a\ufffd\ufffd"


def test_words_are_looked_for_without_regard_to_case() -> None:
    assert words_of(" a_B%!  Über ") == ["a_b%!", "über"]
    assert words_of(None) == words_of("  ") == []
    assert contains("Die ÜBERweisung", "über")
    assert not contains(None, "über")


@pytest.mark.parametrize("search", ["a" * 51, "one two three four five six"])
def test_a_search_for_too_much_is_refused(search: str) -> None:
    with pytest.raises(RefusedError, match="at most 5 words of 50 characters") as refused:
        words_of(search)
    assert refused.value.code == "search_too_long"
    words_of(search[:50].removesuffix(" six"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://ada:secret@host/db", "'mysql://ada:***@host/db'"),
        ("mysql://ada:secret@host/db?password=secret", "'mysql://ada:***@host/db'"),
        ("mysql://ada@host/db", "'mysql://ada@host/db'"),
        ("postgresql://ada:sec@secret@host:port/db", "'postgresql://ada:***@host:port/db'"),
        ("postgresql//ada:secret@host/db", "'postgresql//ada:***@host/db'"),
        ("postgresql://ada:secret", "another URL"),
        ("postgresql://ada:se?secret@host:port/db", "another URL"),
        ("ada:secret@host/db", "another URL"),
        ("host=x password=secret", "another URL"),
    ],
)
async def test_the_password_in_a_url_that_is_wrong_is_not_shown(url: str, shown: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        await open_store(url)
    assert str(wrong.value).endswith(f", got {shown}")
    assert wrong.value.__suppress_context__ or wrong.value.__context__ is None


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("password=secret&foo=secret", "has a parameter 'foo', which PostgreSQL does not know"),
        ("port=secret", "hosts and ports in the parameters of"),
    ],
)
async def test_a_wrong_parameter_in_a_url_is_named_and_no_value(parameters: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as wrong:
        await open_store(f"postgresql://ada:secret@127.0.0.1:1/db?{parameters}")
    assert told in str(wrong.value)
    assert "'postgresql://ada:***@127.0.0.1:1/db'" in str(wrong.value)
    assert "secret" not in str(wrong.value)
    assert wrong.value.__suppress_context__


def test_frames_keep_to_what_a_notification_holds() -> None:
    topics = tuple(f"session:{n:036}" for n in range(1000))
    deltas = tuple(Delta("s", "x", 1, 1, n, n * 90, "ä" * 90) for n in range(200))
    encoded = encode_frames(Frame("me", topics, deltas, everything=True), 7500)
    assert len(encoded) < 20
    assert all(len(frame) <= 7500 for frame in encoded)
    frames = [json.decode(frame, type=Frame) for frame in encoded]
    assert tuple(topic for frame in frames for topic in frame.topics) == topics
    assert tuple(delta for frame in frames for delta in frame.deltas) == deltas
    assert [frame.everything for frame in frames].count(True) == 1
    assert {frame.sender for frame in frames} == {"me"}


async def test_what_passes_is_tried_again() -> None:
    clock, faults = FakeClock(), [PassingFault("busy")] * 3

    async def act() -> str:
        if faults:
            raise faults.pop()
        return "done"

    assert await retry_passing_faults(act, clock) == "done"
    assert len(clock.slept) == 3
    assert clock.slept == sorted(clock.slept)


async def test_patience_ends() -> None:
    clock = FakeClock()

    async def act() -> None:
        raise PassingFault("the disk is full")

    with pytest.raises(StoreUnavailableError, match="did not do 'send' for 15 s, last: the disk"):
        await retry_passing_faults(act, clock, "send")
    assert 15 <= clock.monotonic() < 17


async def test_a_clash_that_stays_is_a_conflict(caplog: pytest.LogCaptureFixture) -> None:
    tries = 0

    async def act() -> None:
        nonlocal tries
        tries += 1
        raise Clash("duplicate key value, Key (id)=(secret)")

    with pytest.raises(ConflictError, match="already") as conflict:
        await retry_passing_faults(act, FakeClock(), "send")
    assert tries == 5
    # What the database said is for the log.
    assert "secret" not in str(conflict.value)
    assert "'send' clashed 5 times, last: duplicate key value, Key (id)=(secret)" in caplog.text

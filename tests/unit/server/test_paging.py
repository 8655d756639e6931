"""Cursors name a place, and nothing but cursors is taken for one."""

import base64
from datetime import UTC, datetime, timedelta, timezone

import pytest

from stepwell.server.pages import cursor_of, cut, cut_last, place_of
from stepwell.sessions.errors import RefusedError

AT = datetime(2026, 1, 6, 12, 34, 56, 123456, tzinfo=UTC)


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def test_a_cursor_gives_its_place_back_to_the_microsecond() -> None:
    assert place_of(cursor_of(AT, "0198-ab")) == (AT, "0198-ab")


def test_no_cursor_is_no_place() -> None:
    assert place_of(None) is None


def test_a_time_in_another_zone_is_the_same_place() -> None:
    elsewhere = AT.astimezone(timezone(timedelta(hours=5)))

    assert cursor_of(elsewhere, "a") == cursor_of(AT, "a")


@pytest.mark.parametrize(
    "word",
    [
        "",
        "x",
        "not a cursor",
        "é" * 8,
        "A" * 300,
        cursor_of(AT, "a") + "=",
        cursor_of(AT, "a") + "AAAA",
        cursor_of(AT, "a\0b"),
        encoded("2026-01-06T12:34:56.123456+00:00"),
        encoded("2026-01-06 a"),
        encoded("0001-01-01T00:00:00.000000+23:59 a"),
        encoded("9999-99-01T00:00:00.000000+00:00 a"),
        base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode(),
    ],
)
def test_what_is_no_cursor_is_refused(word: str) -> None:
    with pytest.raises(RefusedError) as refused:
        place_of(word)

    assert refused.value.code == "bad_cursor"


def test_a_page_is_cut_from_the_side_it_was_read_from() -> None:
    assert cut([1, 2, 3], 3) == ([1, 2, 3], False)
    assert cut([1, 2, 3, 4], 3) == ([1, 2, 3], True)
    assert cut_last([1, 2, 3], 3) == ([1, 2, 3], False)
    assert cut_last([1, 2, 3, 4], 3) == ([2, 3, 4], True)
    assert cut_last([], 3) == ([], False)

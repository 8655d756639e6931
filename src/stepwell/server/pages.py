"""Pages of lists: opaque cursors, and cuts to size. A cursor grants nothing: every query returns
only what the caller may see."""

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

from stepwell.sessions.errors import RefusedError
from stepwell.sessions.records import SessionMessage
from stepwell.sessions.views.reader import TracePlace

Place = tuple[datetime, str]
Row = TypeVar("Row")
_LONGEST = 256
_LONGEST_NUMBER = 10
_MOST_CHARACTERS = 1_000_000


def cursor_of(at: datetime, id: str) -> str:
    """Return the cursor for a time, with the id as tie-break.

    >>> place_of(cursor_of(datetime(2026, 1, 6, tzinfo=UTC), "b7"))
    (datetime.datetime(2026, 1, 6, 0, 0, tzinfo=datetime.timezone.utc), 'b7')
    """
    text = f"{at.astimezone(UTC).isoformat(timespec='microseconds')} {id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def place_of(cursor: str | None) -> Place | None:
    """Return the place of a cursor. Raises ``RefusedError`` if it is invalid."""
    if cursor is None:
        return None
    try:
        if len(cursor) > _LONGEST:
            raise ValueError
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        time, _, id = text.partition(" ")
        at = datetime.fromisoformat(time).astimezone(UTC)
        if cursor_of(at, id) != cursor or not id.isprintable():
            raise ValueError
    except (ValueError, OverflowError, binascii.Error):
        raise bad_cursor() from None
    return at, id


def trace_cursor(place: TracePlace) -> str:
    """Return the cursor for a place in a trace.

    >>> trace_place(trace_cursor(TracePlace(7)))
    TracePlace(step=7, message=None)
    """
    return f"{place.step}.{'' if place.message is None else cursor_of(*place.message)}"


def trace_place(cursor: str | None) -> TracePlace:
    """Return the place of such a cursor. Raises ``RefusedError`` if it is invalid."""
    if cursor is None:
        return TracePlace()
    step, _, message = cursor.partition(".")
    if not (step.isascii() and step.isdigit() and len(step) < _LONGEST_NUMBER):
        raise bad_cursor()
    return TracePlace(int(step), place_of(message or None))


def within_characters(
    rows: Sequence[SessionMessage], *, from_end: bool
) -> tuple[list[SessionMessage], bool]:
    """Return the first or last messages that fit one page, at least one, and whether any was left
    out."""
    taken: list[SessionMessage] = []
    left = _MOST_CHARACTERS
    for row in reversed(rows) if from_end else rows:
        left -= len(row.content)
        if taken and left < 0:
            break
        taken.append(row)
    return (taken[::-1] if from_end else taken), len(taken) < len(rows)


def cut(rows: Sequence[Row], limit: int) -> tuple[list[Row], bool]:
    """Return the first ``limit`` of ``limit + 1`` rows, and whether there are more.

    >>> cut([1, 2, 3], 2)
    ([1, 2], True)
    """
    return list(rows[:limit]), len(rows) > limit


def bad_cursor() -> RefusedError:
    """Return the error for an invalid cursor."""
    return RefusedError(
        "the cursor is not valid for this list; use one from a response, or leave it out",
        code="bad_cursor",
    )


def cut_last(rows: Sequence[Row], limit: int) -> tuple[list[Row], bool]:
    """Return the last ``limit`` rows, and whether there are more.

    >>> cut_last([1, 2, 3], 2)
    ([2, 3], True)
    """
    return list(rows[-limit:]), len(rows) > limit

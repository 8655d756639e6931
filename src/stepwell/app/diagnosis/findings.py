"""What a check found."""

from enum import StrEnum

from msgspec import Struct

FROM_CLONE = "pip install <path of its clone>"
"""Stepwell is on no package index yet."""


class Level(StrEnum):
    """How much it matters."""

    OK = "ok"
    NOTE = "note"
    """Not needed, or only for some things."""
    BROKEN = "broken"


MARKS = {Level.OK: "✓", Level.NOTE: "!", Level.BROKEN: "✗"}


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at.

    >>> Finding(about="disk", level=Level.OK, text="40 GB free").mark
    '✓'
    """

    about: str
    level: Level
    text: str
    fix: str | None = None
    """What to do about it."""

    @property
    def mark(self) -> str:
        """The sign before it."""
        return MARKS[self.level]


def ok(about: str, text: str) -> Finding:
    """It is as it should be."""
    return Finding(about=about, level=Level.OK, text=text)


def note(about: str, text: str, fix: str | None = None) -> Finding:
    """Something to know."""
    return Finding(about=about, level=Level.NOTE, text=text, fix=fix)


def broken(about: str, text: str, fix: str) -> Finding:
    """It must be fixed."""
    return Finding(about=about, level=Level.BROKEN, text=text, fix=fix)

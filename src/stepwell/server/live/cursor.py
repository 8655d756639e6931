"""The position of a follower: a number of the journal, and offsets in streamed text. Opaque to
clients."""

from typing import Self

from msgspec import Struct

from stepwell.sessions.errors import RefusedError

_LONGEST = 400


class TextPosition(Struct, frozen=True):
    """How much of a streamed response a follower has."""

    start: int
    """The number of the event that started its step."""
    offset: int
    """The number of characters."""
    chunks: int
    """The number of chunks."""


class Cursor(Struct, frozen=True):
    """The number of the newest event, and the positions in open texts.

    >>> str(Cursor(57, (TextPosition(55, 120, 4),)))
    '57.55.120.4'
    """

    seq: int
    texts: tuple[TextPosition, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a cursor that a client sends. Raises ``RefusedError``.

        >>> Cursor.parse("57.55.120.4") == Cursor(57, (TextPosition(55, 120, 4),))
        True
        """
        parts = text[:_LONGEST].split(".")
        are_numbers = all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts)
        if len(text) > _LONGEST or not are_numbers or len(parts) % 3 != 1:
            raise RefusedError(
                f"Last-Event-ID is {text[:40]!r}; send the id of the last event unchanged",
                code="bad_cursor",
            )
        seq, *rest = map(int, parts)
        groups = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
        return cls(seq, tuple(TextPosition(*group) for group in groups))

    def __str__(self) -> str:
        texts = "".join(f".{it.start}.{it.offset}.{it.chunks}" for it in self.texts)
        return f"{self.seq}{texts}"

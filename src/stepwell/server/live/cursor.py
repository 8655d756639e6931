"""Where a follower of a session is: behind a number of the log, and so far into the text that is
being generated. Clients send it back as it is."""

from typing import Self

from msgspec import Struct

from stepwell.sessions.errors import RefusedError

_LONGEST = 400


class TextPosition(Struct, frozen=True):
    """How much a follower has of a response that is being generated."""

    start: int
    """The number of the event by which its step began."""
    offset: int
    """So many characters it has."""
    chunks: int
    """In so many chunks."""


class Cursor(Struct, frozen=True):
    """The number of the newest event that came, and the open texts that came in part.

    >>> str(Cursor(57, (TextPosition(55, 120, 4),)))
    '57.55.120.4'
    """

    seq: int
    texts: tuple[TextPosition, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what a client sends back. Raises ``RefusedError``.

        >>> Cursor.parse("57.55.120.4") == Cursor(57, (TextPosition(55, 120, 4),))
        True
        """
        parts = text[:_LONGEST].split(".")
        are_numbers = all(part.isascii() and part.isdigit() and len(part) <= 18 for part in parts)
        if len(text) > _LONGEST or not are_numbers or len(parts) % 3 != 1:
            raise RefusedError(
                f"Last-Event-ID is {text[:40]!r}; send back the id of the last event as it came",
                code="bad_cursor",
            )
        seq, *rest = map(int, parts)
        groups = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
        return cls(seq, tuple(TextPosition(*group) for group in groups))

    def __str__(self) -> str:
        texts = "".join(f".{it.start}.{it.offset}.{it.chunks}" for it in self.texts)
        return f"{self.seq}{texts}"

"""How things look in a terminal: plain ANSI where somebody looks, plain text in pipes.

What models and tools said is shown without control characters, so that it can't move the cursor.
"""

import re
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import IO, Any

from msgspec import Struct, json

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SPACE = re.compile(r"\s+")


class Style(Struct, frozen=True):
    """Words with colours, if they are seen.

    >>> Style(False).bold("plain")
    'plain'
    """

    is_colored: bool

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_colored and text else text

    def bold(self, text: str) -> str:
        """What matters most."""
        return self._in("1", text)

    def dim(self, text: str) -> str:
        """What may be passed over."""
        return self._in("2", text)

    def good(self, text: str) -> str:
        """What went well."""
        return self._in("32", text)

    def bad(self, text: str) -> str:
        """What went wrong."""
        return self._in("31", text)

    def warm(self, text: str) -> str:
        """What wants attention."""
        return self._in("33", text)

    def status(self, word: str) -> str:
        """The status of an execution."""
        match word:
            case "completed":
                return self.good(word)
            case "failed":
                return self.bad(word)
            case "paused" | "stopped" | "cancelled":
                return self.warm(word)
            case _:
                return word


def is_terminal(stream: IO[Any]) -> bool:
    """Whether a person sees it."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def style_of(stream: IO[Any]) -> Style:
    """Colours for a terminal, unless NO_COLOR is set."""
    if not is_terminal(stream):
        return Style(False)
    from stepwell.models.secrets import from_environment

    return Style(from_environment("NO_COLOR") is None)


def out_style() -> Style:
    """Of standard output."""
    return style_of(sys.stdout)


def shown(text: str) -> str:
    """The text without what would steer a terminal; line breaks and tabs stay.

    >>> shown("a\\x1b[2Jb\\tc")
    'a[2Jb\\tc'
    """
    return _CONTROLS.sub("", text)


def one_line(text: str, width: int = 100) -> str:
    """The text in one line of that many characters at most.

    >>> one_line("first line\\nsecond line", 16)
    'first line se...'
    """
    flat = _SPACE.sub(" ", shown(text)).strip()
    return flat if len(flat) <= width else f"{flat[: width - 3]}..."


def clipped(text: str, lines: int = 12, width: int = 2000) -> str:
    """The beginning of a long text, and how much of it is left out."""
    kept = "\n".join(shown(text).splitlines()[:lines])[:width]
    left = len(shown(text)) - len(kept)
    return kept if left <= 1 else f"{kept}\n... ({left} more characters; --full shows all)"


def indented(text: str, by: str = "    ") -> str:
    """Each line a little to the right."""
    return "\n".join(f"{by}{line}" if line else "" for line in text.splitlines())


def seconds(value: float | None) -> str:
    """A duration.

    >>> seconds(0.0123), seconds(4.21), seconds(75)
    ('12 ms', '4.2 s', '75 s')
    """
    if value is None:
        return "?"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 60 else f"{value:.0f} s"


def moment(at: datetime | str | None) -> str:
    """A time, in UTC, to the second.

    >>> moment("2026-01-06T12:34:56.123456Z")
    '2026-01-06 12:34:56'
    """
    if at is None:
        return "-"
    text = at if isinstance(at, str) else at.isoformat()
    return text[:19].replace("T", " ")


def document(value: Any) -> str:
    """A value as JSON for people and programs."""
    return json.format(json.encode(value, enc_hook=str), indent=2).decode()


def line_of(value: Any) -> str:
    """A value as one line of JSON."""
    return json.encode(value, enc_hook=str).decode()


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns, as wide as they must be; the last one as it is.

    >>> table([["a", "long"], ["word", "x"]])
    'a     long\\nword  x'
    """
    if not rows:
        return ""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )

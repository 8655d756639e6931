"""How things look in a terminal: plain ANSI where somebody looks, plain text in pipes.

What models and tools said is shown with every character that steers a terminal or can't be seen
written out, so that a person reads what is there.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from json import dumps
from typing import IO, Any, cast
from unicodedata import east_asian_width

from msgspec import Struct, json

from stepwell.hidden_text import replace_hidden, reveal

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
    """The text with what would steer a terminal, or hide in it, written out; line breaks and tabs
    stay.

    >>> shown("a\\x1b[2Jb\\tc")
    'a⟨U+001B⟩[2Jb\\tc'
    """
    return reveal(text.replace("\r\n", "\n"))


def one_line(text: str, width: int = 100) -> str:
    """The text in one line of that many characters at most.

    >>> one_line("first line\\nsecond line", 16)
    'first line se...'
    """
    flat = _SPACE.sub(" ", shown(text)).strip()
    return flat if len(flat) <= width else f"{flat[: width - 3]}..."


def clipped(
    text: str, lines: int = 12, width: int = 2000, *, way: str = "; --full shows all"
) -> str:
    """The beginning of a long text, how much of it is left out, and the way to see that."""
    kept = "\n".join(shown(text).splitlines()[:lines])[:width]
    left = len(shown(text)) - len(kept)
    return kept if left <= 1 else f"{kept}\n... ({left} more characters{way})"


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
    return _escaped(json.format(json.encode(value, enc_hook=str), indent=2).decode())


def line_of(value: Any) -> str:
    """A value as one line of JSON.

    >>> line_of(["a\\u202eb"])
    '["a\\\\u202eb"]'
    """
    return _escaped(json.encode(value, enc_hook=str).decode())


def _escaped(text: str) -> str:
    """The same JSON without characters that a terminal would obey or not show. They can only be
    inside of strings."""
    return replace_hidden(text, lambda found: dumps(found)[1:-1].replace("\x7f", r"\u007f"))


def shown_arguments(arguments: Any, width: int = 100) -> str:
    """Arguments of a call, all of them and nothing left out, as the page shows them: JSON, but
    texts of several lines line by line. All that continues begins with a bar, so that no text can
    pass for another argument.

    >>> print(shown_arguments({"to": "ada", "text": "Dear Ada,\\nbye"}))
    "to": "ada"
    "text":
    │ Dear Ada,
    │ bye
    """
    if not isinstance(arguments, Mapping):
        return _folded(_json(arguments), width)
    pairs = cast("Mapping[str, Any]", arguments)
    return "\n".join(_argument(str(name), value, width) for name, value in pairs.items())


def _argument(name: str, value: Any, width: int) -> str:
    if not isinstance(value, str) or "\n" not in value:
        return _folded(f"{_json(name)}: {_json(value)}", width)
    lines = [f"│ {shown(line)}" for line in value.split("\n")]
    return "\n".join(_folded(line, width) for line in [f"{_json(name)}:", *lines])


def _json(value: Any) -> str:
    return shown(json.encode(value, enc_hook=str).decode())


def _folded(line: str, width: int) -> str:
    """The line in pieces that fit: a terminal that folds it would begin the rest without a bar."""
    pieces, used = [""], 0
    for character in line:
        takes = 2 if east_asian_width(character) in "WF" else 8 if character == "\t" else 1
        if used + takes > width and pieces[-1] not in {"", "│ "}:
            pieces.append("│ ")
            used = 2
        pieces[-1] += character
        used += takes
    return "\n".join(pieces)


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

"""Formats output: ANSI styles in a terminal, plain text in pipes.

Control characters and invisible characters in texts of models and tools are written out, so that
a person sees what is there.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from json import dumps
from typing import IO, Any, cast
from unicodedata import east_asian_width

from msgspec import Struct, json

from stepwell.text import truncate, truncate_with_note
from stepwell.text.hidden_characters import replace_hidden, reveal

_SPACE = re.compile(r"\s+")


class Style(Struct, frozen=True):
    """Colours for a terminal; plain text otherwise.

    >>> Style(False).bold("plain")
    'plain'
    """

    is_colored: bool

    def _in(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_colored and text else text

    def bold(self, text: str) -> str:
        """Emphasize."""
        return self._in("1", text)

    def dim(self, text: str) -> str:
        """De-emphasize."""
        return self._in("2", text)

    def good(self, text: str) -> str:
        """Mark as success."""
        return self._in("32", text)

    def bad(self, text: str) -> str:
        """Mark as error."""
        return self._in("31", text)

    def warm(self, text: str) -> str:
        """Mark as warning."""
        return self._in("33", text)

    def status(self, word: str) -> str:
        """Colour the status of an execution."""
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
    """Whether the stream is a terminal."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def style_of(stream: IO[Any]) -> Style:
    """Return the style for a stream; plain if NO_COLOR is set."""
    if not is_terminal(stream):
        return Style(False)
    from stepwell.models.api_key import from_environment

    return Style(from_environment("NO_COLOR") is None)


def out_style() -> Style:
    """Return the style for standard output."""
    return style_of(sys.stdout)


def printable(text: str) -> str:
    """Escape characters that control a terminal or are invisible, except line breaks and tabs.

    >>> printable("a\\x1b[2Jb\\tc")
    'a⟨U+001B⟩[2Jb\\tc'
    """
    return reveal(text.replace("\r\n", "\n"))


def one_line(text: str, width: int = 100) -> str:
    """Join the text into one line of at most ``width`` characters.

    >>> one_line("first line\\nsecond line", 16)
    'first line se...'
    """
    return truncate(_SPACE.sub(" ", printable(text)).strip(), width)


def clip(text: str, lines: int = 12, width: int = 2000, *, way: str = "--full shows all") -> str:
    """Return the start of a long text with a note on what is left out and how to see it."""
    text = printable(text).removesuffix("\n")
    kept = "\n".join(text.splitlines()[:lines])[:width]
    return truncate_with_note(text, len(kept), way)


def indent(text: str, by: str = "    ") -> str:
    """Indent each line."""
    return "\n".join(f"{by}{line}" if line else "" for line in text.splitlines())


def seconds(value: float | None) -> str:
    """Format a duration.

    >>> seconds(0.0123), seconds(4.21), seconds(75)
    ('12 ms', '4.2 s', '75 s')
    """
    if value is None:
        return "?"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 60 else f"{value:.0f} s"


def moment(at: datetime | str | None) -> str:
    """Format a time in UTC, to the second.

    >>> moment("2026-01-06T12:34:56.123456Z")
    '2026-01-06 12:34:56'
    """
    if at is None:
        return "-"
    text = at if isinstance(at, str) else at.isoformat()
    return text[:19].replace("T", " ")


def document(value: Any) -> str:
    """Format a value as indented JSON."""
    return _escape(json.format(json.encode(value, enc_hook=str), indent=2).decode())


def line_of(value: Any) -> str:
    """Format a value as one line of JSON.

    >>> line_of(["a\\u202eb"])
    '["a\\\\u202eb"]'
    """
    return _escape(json.encode(value, enc_hook=str).decode())


def _escape(text: str) -> str:
    """Escape control and invisible characters in JSON; they only occur inside strings."""
    return replace_hidden(text, lambda found: dumps(found)[1:-1].replace("\x7f", r"\u007f"))


def printable_arguments(arguments: Any, width: int = 100) -> str:
    """Format all arguments of a call as the page shows them: JSON, but texts with several lines
    line by line. Continuation lines start with a bar, so that no text looks like another
    argument.

    >>> print(printable_arguments({"to": "ada", "text": "Dear Ada,\\nbye"}))
    "to": "ada"
    "text":
    │ Dear Ada,
    │ bye
    """
    if not isinstance(arguments, Mapping):
        return _fold(_json(arguments), width)
    pairs = cast("Mapping[str, Any]", arguments)
    return "\n".join(_argument(str(name), value, width) for name, value in pairs.items())


def _argument(name: str, value: Any, width: int) -> str:
    if not isinstance(value, str) or "\n" not in value:
        return _fold(f"{_json(name)}: {_json(value)}", width)
    lines = [f"│ {printable(line)}" for line in value.split("\n")]
    return "\n".join(_fold(line, width) for line in [f"{_json(name)}:", *lines])


def _json(value: Any) -> str:
    return printable(json.encode(value, enc_hook=str).decode())


def _fold(line: str, width: int) -> str:
    """Break a line to fit the width; a terminal would wrap it without the bar."""
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
    """Align rows in columns; the last column is not padded.

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

"""Finds the line that a model most likely meant by a text that does not occur in a file."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import partial
from heapq import nlargest
from itertools import islice

from stepwell.capabilities.files.texts import decode_line
from stepwell.capabilities.files.watched_file import Readable

_NUMBERED = re.compile(rb"\s*\d+\t")
_WHITE = b" \t\r\n\f\v"
PIECES_READ = 50_000
LINE_BYTES = 400
LINES_COMPARED = 3_000
CHARACTERS_COMPARED = 120
CLOSELY_COMPARED = 20
"""An exact comparison of two lines takes milliseconds, so only the best candidates get one."""
ALIKE = 0.6


def near_miss(file: Readable, needle: bytes) -> str:
    """Return a hint for a text that does not occur in the file.

    >>> from io import BytesIO
    >>> near_miss(BytesIO(b"def f():\\n    return 1\\n"), b"\\treturn 1")
    "line 2 has it with different whitespace: '    return 1'"
    """
    lines = [line for line in needle.splitlines() if line.strip()]
    if lines and all(_NUMBERED.match(line) for line in lines):
        return "leave out the line numbers that read_file adds"
    if not lines:
        return "read the file again and copy the text exactly"
    first = lines[0]
    letters = first.translate(None, _WHITE)
    candidates: list[bytes] = []
    for number, line in enumerate(_lines(file), start=1):
        if line.translate(None, _WHITE) == letters:
            if line.rstrip() != first.rstrip():
                return f"line {number} has it with different whitespace: {_quote(line)}"
            return (
                f"line {number} matches its first line, but the text that follows differs; read "
                "the file from there"
            )
        if number <= LINES_COMPARED:
            candidates.append(line)
    return _closest(first, candidates) or "read the file again and copy the text exactly"


def _lines(file: Readable) -> Iterator[bytes]:
    """Yield the start of each line, up to ``PIECES_READ`` reads."""
    file.seek(0)
    pieces = iter(partial(file.readline, LINE_BYTES), b"")
    is_start = True
    for piece in islice(pieces, PIECES_READ):
        if is_start:
            yield piece
        is_start = piece.endswith(b"\n")


def _closest(needle: bytes, lines: list[bytes]) -> str:
    """Describe the most similar line, or return an empty text if none is similar."""
    matcher = SequenceMatcher(None, "", _normalized_start(needle), autojunk=False)

    def upper_bound(line: bytes) -> float:
        """Return a cheap upper bound of the similarity."""
        matcher.set_seq1(_normalized_start(line))
        return matcher.quick_ratio() if matcher.real_quick_ratio() > ALIKE else 0.0

    ranked = ((upper_bound(line), -number) for number, line in enumerate(lines, start=1))
    closest, score = "", ALIKE
    for promise, minus_number in nlargest(CLOSELY_COMPARED, ranked):
        if promise <= score:
            break
        line = lines[-minus_number - 1]
        matcher.set_seq1(_normalized_start(line))
        if (alike := matcher.ratio()) > score:
            closest, score = f"the closest is line {-minus_number}: {_quote(line)}", alike
    return closest


def _normalized_start(line: bytes) -> str:
    return decode_line(b" ".join(line[:LINE_BYTES].split())[:CHARACTERS_COMPARED])


def _quote(line: bytes) -> str:
    return repr(decode_line(line.rstrip()))

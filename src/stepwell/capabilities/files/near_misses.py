"""Why a text was not found in a file: the line that the model most likely meant."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import partial
from heapq import nlargest
from itertools import islice

from stepwell.capabilities.files.texts import decoded
from stepwell.capabilities.files.watching import Readable

_NUMBERED = re.compile(rb"\s*\d+\t")
_WHITE = b" \t\r\n\f\v"
PIECES_READ = 50_000
LINE_BYTES = 400
LINES_COMPARED = 3_000
CHARACTERS_COMPARED = 120
CLOSELY_COMPARED = 20
"""A close look at two lines takes milliseconds, so only the most promising get one."""
ALIKE = 0.6


def near_miss(file: Readable, wanted: bytes) -> str:
    """What to do about a text that does not occur.

    >>> from io import BytesIO
    >>> near_miss(BytesIO(b"def f():\\n    return 1\\n"), b"\\treturn 1")
    "line 2 has it with other white space: '    return 1'"
    """
    lines = [line for line in wanted.splitlines() if line.strip()]
    if lines and all(_NUMBERED.match(line) for line in lines):
        return "leave out the line numbers that read_file puts in front"
    if not lines:
        return "read the file again and copy the text exactly"
    first = lines[0]
    letters = first.translate(None, _WHITE)
    candidates: list[bytes] = []
    for number, line in enumerate(_lines(file), start=1):
        if line.translate(None, _WHITE) == letters:
            if line.rstrip() != first.rstrip():
                return f"line {number} has it with other white space: {_quoted(line)}"
            return (
                f"line {number} is its first line, and the text goes on otherwise; read the file "
                "from there on"
            )
        if number <= LINES_COMPARED:
            candidates.append(line)
    return _closest(first, candidates) or "read the file again and copy the text exactly"


def _lines(file: Readable) -> Iterator[bytes]:
    """The beginnings of lines; of a huge file those of its first part."""
    file.seek(0)
    pieces = iter(partial(file.readline, LINE_BYTES), b"")
    is_start = True
    for piece in islice(pieces, PIECES_READ):
        if is_start:
            yield piece
        is_start = piece.endswith(b"\n")


def _closest(wanted: bytes, lines: list[bytes]) -> str:
    """The line whose beginning is most like that of the wanted one, if one is like it at all."""
    matcher = SequenceMatcher(None, "", _beginning(wanted), autojunk=False)

    def at_most(line: bytes) -> float:
        """Quickly, how alike they can be; the likeness itself is no higher."""
        matcher.set_seq1(_beginning(line))
        return matcher.quick_ratio() if matcher.real_quick_ratio() > ALIKE else 0.0

    ranked = ((at_most(line), -number) for number, line in enumerate(lines, start=1))
    closest, score = "", ALIKE
    for promise, minus_number in nlargest(CLOSELY_COMPARED, ranked):
        if promise <= score:
            break
        line = lines[-minus_number - 1]
        matcher.set_seq1(_beginning(line))
        if (alike := matcher.ratio()) > score:
            closest, score = f"the closest is line {-minus_number}: {_quoted(line)}", alike
    return closest


def _beginning(line: bytes) -> str:
    return decoded(b" ".join(line[:LINE_BYTES].split())[:CHARACTERS_COMPARED])


def _quoted(line: bytes) -> str:
    return repr(decoded(line.rstrip()))

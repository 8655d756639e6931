"""Why a text was not found in a file: the line that the model most likely meant."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import partial
from itertools import islice
from typing import BinaryIO

from stepwell.capabilities.files.texts import decoded

_NUMBERED = re.compile(rb"\s*\d+\t")
LINES_COMPARED = 5_000
LINE_BYTES = 400
ALIKE = 0.6


def near_miss(file: BinaryIO, wanted: bytes) -> str:
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
    squeezed = b" ".join(lines[0].split())
    closest, score = "", ALIKE
    matcher = SequenceMatcher(None, "", decoded(squeezed[:LINE_BYTES]), autojunk=False)
    for number, line in enumerate(_lines(file), start=1):
        shown = b" ".join(line.split())
        if shown == squeezed and line.rstrip() != lines[0].rstrip():
            return f"line {number} has it with other white space: {_quoted(line)}"
        if shown == squeezed:
            return (
                f"line {number} is its first line, and the text goes on otherwise; read the file "
                "from there on"
            )
        if number <= LINES_COMPARED and (alike := _likeness(matcher, shown, score)) > score:
            closest, score = f"the closest is line {number}: {_quoted(line)}", alike
    return closest or "read the file again and copy the text exactly"


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The beginnings of lines; of a huge file those of its first part."""
    file.seek(0)
    pieces = iter(partial(file.readline, LINE_BYTES), b"")
    is_start = True
    for piece in islice(pieces, 40 * LINES_COMPARED):
        if is_start:
            yield piece
        is_start = piece.endswith(b"\n")


def _likeness(matcher: "SequenceMatcher[str]", line: bytes, least: float) -> float:
    """How alike two lines are; 0 when a quick look shows that it is not enough."""
    matcher.set_seq1(decoded(line))
    if matcher.real_quick_ratio() <= least or matcher.quick_ratio() <= least:
        return 0.0
    return matcher.ratio()


def _quoted(line: bytes) -> str:
    return repr(decoded(line.rstrip()))

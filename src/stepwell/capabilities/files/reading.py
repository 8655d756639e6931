"""``read_file``: a window of numbered lines of a text file, in bounded memory."""

from collections.abc import Iterator
from functools import partial
from os import SEEK_CUR

from msgspec import Struct

from stepwell.capabilities.files.file_tool import FileTool, answered, refuse_if_cancelled
from stepwell.capabilities.files.refusals import FileRefused, shortened
from stepwell.capabilities.files.texts import (
    BOM,
    HEAD_BYTES,
    decoded,
    is_utf8,
    plural,
    refuse_binary,
    whole_characters,
)
from stepwell.capabilities.files.watching import Readable, WatchedFile
from stepwell.tools import ToolContext, ToolEffect, ToolFailure

PIECE_BYTES = 65_536
PREVIEW_BYTES = 4096


class Line(Struct, frozen=True):
    """A line without its ending, or the beginning of a very long one."""

    head: bytes
    size: int

    @property
    def is_cut(self) -> bool:
        """Whether only its beginning is known."""
        return len(self.head) < self.size


class Window(Struct, frozen=True):
    """Neighbouring lines of a file."""

    first: int
    lines: tuple[Line, ...]
    has_more: bool

    @property
    def next_offset(self) -> int:
        """How many lines there are up to the end of the window."""
        return self.first + len(self.lines)


class ReadFileTool(FileTool):
    """Reads text files with line numbers; ``pure``, so it may be done again."""

    name = "read_file"
    effect = ToolEffect.PURE

    def __call__(
        self,
        path: str,
        offset: int = 0,
        limit: int | None = None,
        context: ToolContext | None = None,
    ) -> str | ToolFailure:
        """Read a text file as numbered lines. Of a long file it shows a part and how to go on.

        Line numbers count from 1 and are not part of the file.

        Args:
            path: The file, from the base directory on, such as 'src/main.py'.
            offset: How many lines to skip; 0 begins with the first line.
            limit: How many lines to show at most; left out, a few hundred.
        """
        return answered(path, lambda: self._shown(path, max(offset, 0), limit, context))

    def _shown(self, path: str, offset: int, limit: int | None, context: ToolContext | None) -> str:
        count = self.policy.max_lines if limit is None else max(limit, 1)

        def look_up(scanned: int) -> None:
            refuse_if_cancelled(context)
            if scanned > self.policy.max_scanned_bytes:
                raise FileRefused(
                    f"what was asked for lies beyond the first {self.policy.max_scanned_bytes} "
                    f"bytes of {shortened(path)!r}, and read_file goes no further; find lines "
                    "with search_files, or cut the part out with bash (sed -n, tail -c)"
                )

        with self.directory.file(path) as opened:
            file = WatchedFile(opened, look_up)
            head = file.read(HEAD_BYTES)
            if not head:
                return "(empty file)"
            refuse_binary(head, path)
            file.seek(0)
            window = window_of(file, offset, count, self.policy.max_read_bytes)
        if not window.lines:
            raise FileRefused(
                f"offset {offset} is past the end of {shortened(path)!r}, which has "
                f"{plural(window.first, 'line')}"
            )
        if any(b"\0" in line.head for line in window.lines):
            raise FileRefused(f"{shortened(path)!r} is a binary file from line {offset + 1} on")
        return "\n".join((*numbered(window), *notes(window, self.policy.max_read_bytes)))


def window_of(file: Readable, offset: int, count: int, max_bytes: int) -> Window:
    """Some lines after the offset, as many as fit; one that fits nowhere comes alone, cut.

    With no lines, ``first`` is the number of lines that the file has.
    """
    skipped = _skipped(file, offset)
    if skipped < offset:
        return Window(skipped, (), False)
    lines: list[Line] = []
    room = max_bytes
    while len(lines) < count:
        line = _next_line(file, max_bytes)
        if line is None:
            return Window(offset if lines else skipped, tuple(lines), False)
        if line.size > room and lines:
            return Window(offset, tuple(lines), True)
        lines.append(line)
        room -= line.size + 1
        if line.is_cut:
            break
    return Window(offset, tuple(lines), bool(file.read(1)))


def _pieces(file: Readable) -> Iterator[bytes]:
    """Lines, the long ones in pieces."""
    return iter(partial(file.readline, PIECE_BYTES), b"")


def _skipped(file: Readable, count: int) -> int:
    """Skip lines; how many there were, if there are fewer."""
    skipped, piece = 0, b"\n"
    while skipped < count and (following := file.read(PIECE_BYTES)):
        piece = following
        found = piece.count(b"\n")
        if skipped + found >= count:
            rest = piece.split(b"\n", count - skipped)[-1]
            file.seek(-len(rest), SEEK_CUR)
            return count
        skipped += found
    return skipped + (not piece.endswith(b"\n"))


def _next_line(file: Readable, keep: int) -> Line | None:
    head, size, tail = bytearray(), 0, b""
    for piece in _pieces(file):
        head += piece[: max(keep - len(head), 0)]
        size += len(piece)
        tail = (tail + piece)[-2:]
        if piece.endswith(b"\n"):
            break
    if not size:
        return None
    size -= 2 if tail == b"\r\n" else tail.endswith(b"\n")
    return Line(bytes(head[:size]), size)


def numbered(window: Window) -> Iterator[str]:
    """The lines of a window with their numbers, as in an editor."""
    for number, line in enumerate(window.lines, start=window.first + 1):
        text = line.head.removeprefix(BOM) if number == 1 else line.head
        if line.is_cut:
            text = whole_characters(text[:PREVIEW_BYTES])
        yield f"{number:>6}\t{decoded(text)}"


def notes(window: Window, max_bytes: int) -> Iterator[str]:
    """What the model must know about what it sees, after an empty line."""
    found: list[str] = []
    last = window.lines[-1]
    go_on = f"Continue at offset {window.next_offset}"
    if last.is_cut:
        shown = min(PREVIEW_BYTES, max_bytes)
        rest = f"{go_on} for the next line." if window.has_more else "It is the last line."
        found.append(
            f"Line {window.next_offset} is {last.size} bytes long, over the limit of {max_bytes}; "
            f"its first {shown} bytes are shown. {rest}"
        )
    elif window.has_more:
        found.append(
            f"Lines {window.first + 1} to {window.next_offset} are shown, there are more. {go_on}."
        )
    odd = sum(not is_utf8(line.head) for line in window.lines if not line.is_cut)
    if odd:
        found.append(f"Bytes that are not UTF-8 are shown as \\xNN, in {plural(odd, 'line')}.")
    if found:
        yield ""
        yield from (f"({note})" for note in found)

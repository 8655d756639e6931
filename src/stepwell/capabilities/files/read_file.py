"""``read_file``: shows a window of numbered lines of a text file, in bounded memory."""

from collections.abc import Iterator
from functools import partial
from os import SEEK_CUR

from msgspec import Struct

from stepwell.capabilities.files.file_tool import FileTool, refuse_if_cancelled, run_or_fail
from stepwell.capabilities.files.refusals import FileRefused, quote
from stepwell.capabilities.files.texts import (
    BOM,
    HEAD_BYTES,
    decode_line,
    is_utf8,
    plural,
    refuse_binary,
    trim_partial_character,
)
from stepwell.capabilities.files.watched_file import Readable, WatchedFile
from stepwell.tools import ToolContext, ToolEffect, ToolFailure

PIECE_BYTES = 65_536
PREVIEW_BYTES = 4096


class Line(Struct, frozen=True):
    """A line without its line ending, or the start of a very long line."""

    head: bytes
    size: int

    @property
    def is_cut(self) -> bool:
        """Whether only the start of the line was kept."""
        return len(self.head) < self.size


class Window(Struct, frozen=True):
    """Consecutive lines of a file."""

    first: int
    lines: tuple[Line, ...]
    has_more: bool

    @property
    def next_offset(self) -> int:
        """The offset at which the next window starts."""
        return self.first + len(self.lines)


class ReadFileTool(FileTool):
    """Reads text files with line numbers."""

    name = "read_file"
    effect = ToolEffect.PURE

    def __call__(
        self,
        path: str,
        offset: int = 0,
        limit: int | None = None,
        context: ToolContext | None = None,
    ) -> str | ToolFailure:
        """Read a text file as numbered lines. Shows part of a long file, and how to continue.

        Line numbers start at 1 and are not part of the file.

        Args:
            path: The file, relative to the base directory, such as 'src/main.py'.
            offset: Number of lines to skip; 0 starts at the first line.
            limit: Maximum number of lines to show; the default is a few hundred.
        """
        return run_or_fail(path, lambda: self._read(path, max(offset, 0), limit, context))

    def _read(self, path: str, offset: int, limit: int | None, context: ToolContext | None) -> str:
        count = self.policy.max_lines if limit is None else max(limit, 1)

        def check_progress(scanned: int) -> None:
            refuse_if_cancelled(context)
            if scanned > self.policy.max_scanned_bytes:
                raise FileRefused(
                    f"the requested lines are beyond the first {self.policy.max_scanned_bytes} "
                    f"bytes of {quote(path)}, where read_file stops; find lines with "
                    "search_files, or extract the part with bash (sed -n, tail -c)"
                )

        with self.directory.file(path) as opened:
            file = WatchedFile(opened, check_progress)
            head = file.read(HEAD_BYTES)
            if not head:
                return "(empty file)"
            refuse_binary(head, path)
            file.seek(0)
            window = read_window(file, offset, count, self.policy.max_read_bytes)
        if not window.lines:
            raise FileRefused(
                f"offset {offset} is past the end of {quote(path)}, which has "
                f"{plural(window.first, 'line')}"
            )
        if any(b"\0" in line.head for line in window.lines):
            raise FileRefused(f"{quote(path)} has binary content from line {offset + 1} on")
        return "\n".join((*number_lines(window), *notes(window, self.policy.max_read_bytes)))


def read_window(file: Readable, offset: int, count: int, max_bytes: int) -> Window:
    """Read up to ``count`` lines after the offset, as many as fit into ``max_bytes``.

    A line that does not fit by itself comes alone and truncated. With no lines, ``first`` is the
    number of lines in the file.
    """
    skipped = _skip_lines(file, offset)
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
    """Iterate over the lines; long lines come in pieces."""
    return iter(partial(file.readline, PIECE_BYTES), b"")


def _skip_lines(file: Readable, count: int) -> int:
    """Skip up to ``count`` lines and return how many were skipped."""
    skipped, piece = 0, b"\n"
    while skipped < count and (following := file.read(PIECE_BYTES)):
        piece = following
        newlines = piece.count(b"\n")
        if skipped + newlines >= count:
            rest = piece.split(b"\n", count - skipped)[-1]
            file.seek(-len(rest), SEEK_CUR)
            return count
        skipped += newlines
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


def number_lines(window: Window) -> Iterator[str]:
    """Yield the lines of a window with their numbers."""
    for number, line in enumerate(window.lines, start=window.first + 1):
        text = line.head.removeprefix(BOM) if number == 1 else line.head
        if line.is_cut:
            text = trim_partial_character(text[:PREVIEW_BYTES])
        yield f"{number:>6}\t{decode_line(text)}"


def notes(window: Window, max_bytes: int) -> Iterator[str]:
    """Yield an empty line and notes on what was truncated, left out or escaped."""
    collected: list[str] = []
    last = window.lines[-1]
    next_hint = f"Continue at offset {window.next_offset}"
    if last.is_cut:
        shown = min(PREVIEW_BYTES, max_bytes)
        rest = f"{next_hint} for the next line." if window.has_more else "It is the last line."
        collected.append(
            f"Line {window.next_offset} is {last.size} bytes long, over the limit of {max_bytes}; "
            f"only its first {shown} bytes are shown. {rest}"
        )
    elif window.has_more:
        collected.append(
            f"Lines {window.first + 1} to {window.next_offset} are shown; there are more. "
            f"{next_hint}."
        )
    escaped = sum(not is_utf8(line.head) for line in window.lines if not line.is_cut)
    if escaped:
        collected.append(
            f"Bytes that are not UTF-8 are shown as \\xNN ({plural(escaped, 'line')})."
        )
    if collected:
        yield ""
        yield from (f"({note})" for note in collected)

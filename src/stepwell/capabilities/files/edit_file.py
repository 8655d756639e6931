"""``edit_file``: replaces text in a file, in bounded memory, unless the file changed meanwhile."""

import os
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import BinaryIO

from msgspec import Struct

from stepwell.capabilities.files.atomic_write import replace_atomically, stat_replaceable
from stepwell.capabilities.files.confined_directory import Place
from stepwell.capabilities.files.file_tool import FileTool, refuse_if_cancelled, run_or_fail
from stepwell.capabilities.files.near_misses import near_miss
from stepwell.capabilities.files.refusals import FileRefused, quote
from stepwell.capabilities.files.texts import HEAD_BYTES, plural, refuse_binary
from stepwell.capabilities.files.watched_file import Readable, WatchedFile
from stepwell.capabilities.files.write_file import encode_utf8
from stepwell.tools import ToolContext, ToolEffect, ToolFailure

CHUNK_BYTES = 256 * 1024
LINES_NAMED = 10


class Fingerprint(Struct, frozen=True):
    """Detects whether a file changed; also knows the file's line endings."""

    identity: tuple[int, ...]
    digest: bytes
    has_crlf: bool

    @classmethod
    def of(cls, file: Readable) -> "Fingerprint":
        """Read the whole file and take its fingerprint."""
        file.seek(0)
        digest = blake2b()
        line_feeds = crlf = 0
        last = b""
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            line_feeds += chunk.count(b"\n")
            crlf += chunk.count(b"\r\n") + (last == b"\r" and chunk.startswith(b"\n"))
            last = chunk[-1:]
        return cls(_identity(os.fstat(file.fileno())), digest.digest(), crlf * 2 > line_feeds)


class Change(Struct, frozen=True):
    """A replacement: old and new bytes, number of occurrences, and the first lines they are in."""

    old: bytes
    new: bytes
    count: int = 0
    lines: tuple[int, ...] = ()

    @property
    def places(self) -> str:
        """The lines as text."""
        more = ", ..." if self.count > len(self.lines) else ""
        noun = "line" if self.count == 1 else "lines"
        return f"{noun} {', '.join(str(line) for line in self.lines)}{more}"


class EditFileTool(FileTool):
    """Replaces text in files. It is ``external``: if the new text contains the old, repeating the
    edit would apply it twice.

    Inserted lines take the line endings of the file. Symlinks and hard links are handled as in
    ``write_file``.
    """

    name = "edit_file"
    effect = ToolEffect.EXTERNAL
    parallel = False

    def __call__(
        self,
        path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,
        context: ToolContext | None = None,
    ) -> str | ToolFailure:
        """Replace text in a file. The old text must occur exactly once unless replace_all is set.

        Args:
            path: The file, relative to the base directory, such as 'src/main.py'.
            old_string: The text to replace, exactly as in the file, without line numbers. Include
                enough surrounding lines that it occurs only once.
            new_string: The replacement text.
            replace_all: Replace every occurrence.
        """
        if not old_string:
            return ToolFailure(
                "old_string is empty; give the text to replace, or use write_file for a new file"
            )
        if old_string == new_string:
            return ToolFailure("old_string and new_string are equal, so nothing would change")
        return run_or_fail(
            path, lambda: self._edit(path, (old_string, new_string), replace_all, context)
        )

    def _edit(
        self, path: str, texts: tuple[str, str], replace_all: bool, context: ToolContext | None
    ) -> str:
        old, new = encode_utf8(texts[0], "old_string"), encode_utf8(texts[1], "new_string")

        def check_cancelled(_: int = 0) -> None:
            refuse_if_cancelled(context)

        with self.directory.place(path, self.check_writable) as place, place.open() as opened:
            file = WatchedFile(opened, check_cancelled)
            found = stat_replaceable(place)
            refuse_binary(file.read(HEAD_BYTES), path)
            size = os.fstat(file.fileno()).st_size
            self._refuse_huge(size, path)
            before = Fingerprint.of(file)
            change = _locate(file, Change(old, new), before.has_crlf, replace_all)
            if change.count == 0:
                raise FileRefused(
                    f"old_string does not occur in {quote(path)}; {near_miss(file, old)}"
                )
            if change.count > 1 and not replace_all:
                few = change.count <= LINES_NAMED
                often = str(change.count) if few else f"more than {LINES_NAMED}"
                raise FileRefused(
                    f"old_string occurs {often} times in {quote(path)}, in "
                    f"{change.places}; add lines around it until it occurs once, or set replace_all"
                )

            self._refuse_huge(size + change.count * (len(change.new) - len(change.old)), path)

            def check_before_rename() -> None:
                check_cancelled()
                _refuse_changed(place, before, path, check_cancelled)

            replace_atomically(
                place, found, lambda copy: copy_changed(file, copy, change), check_before_rename
            )
        replaced = plural(change.count, "occurrence")
        return f"Replaced {replaced} in {quote(path)}, in {change.places}."

    def _refuse_huge(self, size: int, path: str) -> None:
        if size > self.policy.max_edit_bytes:
            raise FileRefused(
                f"{quote(path)} has {size} bytes, or would have after the edit; the limit "
                f"of edit_file is {self.policy.max_edit_bytes}"
            )


def _locate(file: Readable, change: Change, has_crlf: bool, replace_all: bool) -> Change:
    """Find the occurrences. Models write LF even if the file has CRLF, so both are tried."""
    tries = [change]
    if has_crlf:
        tries.insert(0, Change(_with_crlf(change.old), _with_crlf(change.new)))
    for attempt in tries:
        if replace_all:
            lines = list(islice(lines_with(file, attempt.old, len(attempt.old)), LINES_NAMED))
            count = sum(len(pieces) for pieces, _ in split_at(file, attempt.old)) if lines else 0
        else:  # overlapping occurrences are ambiguous as well
            lines = list(islice(lines_with(file, attempt.old, 1), LINES_NAMED + 1))
            count = len(lines)
        if count:
            return Change(attempt.old, attempt.new, count, tuple(lines[:LINES_NAMED]))
    return change


def _with_crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def lines_with(file: Readable, needle: bytes, step: int) -> Iterator[int]:
    """Yield the number of the line in which each occurrence starts."""
    file.seek(0)
    buffer, line = b"", 1
    is_open = True
    while is_open:
        chunk = file.read(max(CHUNK_BYTES, len(needle)))
        is_open = bool(chunk)
        buffer += chunk
        counted = start = 0
        while (at := buffer.find(needle, start)) >= 0:
            line += buffer.count(b"\n", counted, at)
            counted, start = at, at + step
            yield line
        keep = max(start, len(buffer) - len(needle) + 1)
        line += buffer.count(b"\n", counted, keep)
        buffer = buffer[keep:]


def split_at(file: Readable, needle: bytes) -> Iterator[tuple[list[bytes], bytes]]:
    """Split a file at the needle: yields pieces that the needle follows, and the remainder."""
    file.seek(0)
    buffer = b""
    while chunk := file.read(max(CHUNK_BYTES, len(needle))):
        *pieces, buffer = (buffer + chunk).split(needle)
        keep = max(len(buffer) - len(needle) + 1, 0)
        yield pieces, buffer[:keep]
        buffer = buffer[keep:]
    yield [], buffer


def copy_changed(file: Readable, copy: BinaryIO, change: Change) -> None:
    """Copy a file, replacing every occurrence."""
    for pieces, rest in split_at(file, change.old):
        for piece in pieces:
            copy.write(piece)
            copy.write(change.new)
        copy.write(rest)


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _refuse_changed(
    place: Place, before: Fingerprint, path: str, check_cancelled: Callable[[int], None]
) -> None:
    """Raise ``FileRefused`` if the file changed. Timestamps are coarse, so content is compared."""
    try:
        with place.open() as file:
            is_same = Fingerprint.of(WatchedFile(file, check_cancelled)) == before
            is_same = is_same and _identity(place.lstat()) == before.identity
    except OSError:  # removed, or no longer a regular file
        is_same = False
    if not is_same:
        raise FileRefused(
            f"{quote(path)} was changed by someone else during the edit, so nothing was "
            "written; read it again and repeat the edit"
        )

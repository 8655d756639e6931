"""``edit_file``: replaces a piece of a text file, in bounded memory, if nobody else changed it."""

import os
from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import BinaryIO

from msgspec import Struct

from stepwell.capabilities.files.confined import Place
from stepwell.capabilities.files.file_tool import FileTool, answered, refuse_if_cancelled
from stepwell.capabilities.files.near_misses import near_miss
from stepwell.capabilities.files.refusals import FileRefused, shortened
from stepwell.capabilities.files.replacing import replace_at, replaceable
from stepwell.capabilities.files.texts import HEAD_BYTES, plural, refuse_binary
from stepwell.capabilities.files.watching import Readable, WatchedFile
from stepwell.capabilities.files.writing import as_utf8
from stepwell.tools import ToolContext, ToolEffect, ToolFailure

CHUNK_BYTES = 256 * 1024
LINES_NAMED = 10


class Fingerprint(Struct, frozen=True):
    """What is compared to see that a file is still the same, and how its lines end."""

    identity: tuple[int, ...]
    digest: bytes
    has_crlf: bool

    @classmethod
    def of(cls, file: Readable) -> "Fingerprint":
        """Read the whole file, from its start."""
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
    """What is replaced by what, how often it was found, and in which lines at first."""

    old: bytes
    new: bytes
    count: int = 0
    lines: tuple[int, ...] = ()

    @property
    def places(self) -> str:
        """The lines, in words."""
        more = ", ..." if self.count > len(self.lines) else ""
        noun = "line" if self.count == 1 else "lines"
        return f"{noun} {', '.join(str(line) for line in self.lines)}{more}"


class EditFileTool(FileTool):
    """Replaces text in files; ``external``, since an edit that keeps its old text in the new one
    would be made twice if it were done again.

    The lines that are put in end as those of the file do. Symlinks and hard links are treated as
    ``write_file`` treats them.
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
        """Replace text in a file. The old text must occur exactly once, unless all are replaced.

        Args:
            path: The file, from the base directory on, such as 'src/main.py'.
            old_string: The text to replace, exactly as in the file, without line numbers. Take
                enough of the lines around it that it occurs only once.
            new_string: The text to put in its place.
            replace_all: Replace every occurrence.
        """
        if not old_string:
            return ToolFailure(
                "old_string is empty; give the text to replace, or use write_file for a new file"
            )
        if old_string == new_string:
            return ToolFailure("old_string and new_string are the same, so nothing would change")
        return answered(
            path, lambda: self._edited(path, (old_string, new_string), replace_all, context)
        )

    def _edited(
        self, path: str, texts: tuple[str, str], replace_all: bool, context: ToolContext | None
    ) -> str:
        old, new = as_utf8(texts[0], "old_string"), as_utf8(texts[1], "new_string")

        def look_up(_: int = 0) -> None:
            refuse_if_cancelled(context)

        with self.directory.place(path, self.check_writable) as place, place.opened() as opened:
            file = WatchedFile(opened, look_up)
            found = replaceable(place)
            refuse_binary(file.read(HEAD_BYTES), path)
            size = os.fstat(file.fileno()).st_size
            self._refuse_huge(size, path)
            before = Fingerprint.of(file)
            change = _found(file, Change(old, new), before.has_crlf, replace_all)
            if change.count == 0:
                raise FileRefused(
                    f"old_string does not occur in {shortened(path)!r}; {near_miss(file, old)}"
                )
            if change.count > 1 and not replace_all:
                few = change.count <= LINES_NAMED
                often = str(change.count) if few else f"more than {LINES_NAMED}"
                raise FileRefused(
                    f"old_string occurs {often} times in {shortened(path)!r}, in {change.places}; "
                    "add lines around it until it occurs once, or set replace_all"
                )

            self._refuse_huge(size + change.count * (len(change.new) - len(change.old)), path)

            def last_look() -> None:
                look_up()
                _refuse_changed(place, before, path, look_up)

            replace_at(place, found, lambda copy: copy_changed(file, copy, change), last_look)
        replaced = plural(change.count, "occurrence")
        return f"Replaced {replaced} in {shortened(path)!r}, in {change.places}."

    def _refuse_huge(self, size: int, path: str) -> None:
        if size > self.policy.max_edit_bytes:
            raise FileRefused(
                f"{shortened(path)!r} has {size} bytes, or would have them after the edit, and "
                f"edit_file takes at most {self.policy.max_edit_bytes}"
            )


def _found(file: Readable, change: Change, has_crlf: bool, replace_all: bool) -> Change:
    """The change with what was found of it. Models write line feeds whatever the file has."""
    tries = [change]
    if has_crlf:
        tries.insert(0, Change(_with_crlf(change.old), _with_crlf(change.new)))
    for attempt in tries:
        if replace_all:
            lines = list(islice(lines_with(file, attempt.old, len(attempt.old)), LINES_NAMED))
            count = sum(len(pieces) for pieces, _ in split_at(file, attempt.old)) if lines else 0
        else:  # those that overlap are ambiguous as well
            lines = list(islice(lines_with(file, attempt.old, 1), LINES_NAMED + 1))
            count = len(lines)
        if count:
            return Change(attempt.old, attempt.new, count, tuple(lines[:LINES_NAMED]))
    return change


def _with_crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def lines_with(file: Readable, needle: bytes, step: int) -> Iterator[int]:
    """The number of the line in which each occurrence begins, from the start of the file."""
    file.seek(0)
    held, line = b"", 1
    is_open = True
    while is_open:
        chunk = file.read(max(CHUNK_BYTES, len(needle)))
        is_open = bool(chunk)
        held += chunk
        counted = start = 0
        while (at := held.find(needle, start)) >= 0:
            line += held.count(b"\n", counted, at)
            counted, start = at, at + step
            yield line
        keep = max(start, len(held) - len(needle) + 1)
        line += held.count(b"\n", counted, keep)
        held = held[keep:]


def split_at(file: Readable, needle: bytes) -> Iterator[tuple[list[bytes], bytes]]:
    """A file from its start, in parts: pieces that the needle follows, and what comes after."""
    file.seek(0)
    held = b""
    while chunk := file.read(max(CHUNK_BYTES, len(needle))):
        *pieces, held = (held + chunk).split(needle)
        keep = max(len(held) - len(needle) + 1, 0)
        yield pieces, held[:keep]
        held = held[keep:]
    yield [], held


def copy_changed(file: Readable, copy: BinaryIO, change: Change) -> None:
    """Copy a file with every occurrence replaced."""
    for pieces, rest in split_at(file, change.old):
        for piece in pieces:
            copy.write(piece)
            copy.write(change.new)
        copy.write(rest)


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _refuse_changed(
    place: Place, before: Fingerprint, path: str, look_up: Callable[[int], None]
) -> None:
    """Times are too coarse to show every change, so the content is compared as well."""
    try:
        with place.opened() as file:
            is_same = Fingerprint.of(WatchedFile(file, look_up)) == before
            is_same = is_same and _identity(place.lstat()) == before.identity
    except OSError:  # gone, or something else by now
        is_same = False
    if not is_same:
        raise FileRefused(
            f"{shortened(path)!r} was changed by someone else during the edit, so it was left as "
            "it is; read it again and repeat the edit"
        )

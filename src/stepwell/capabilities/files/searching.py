"""``search_files``: finds files by path, and lines in them by text, with bounded work."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from stepwell.capabilities.files.confined import ConfinedDirectory
from stepwell.capabilities.files.file_tool import FileTool, answered, refuse_if_cancelled
from stepwell.capabilities.files.opening import NOFOLLOW
from stepwell.capabilities.files.patterns import PathPattern
from stepwell.capabilities.files.policy import FilePolicy
from stepwell.capabilities.files.refusals import FileRefused, printable, shortened
from stepwell.capabilities.files.texts import (
    HEAD_BYTES,
    decoded,
    looks_binary,
    whole_characters,
)
from stepwell.capabilities.files.watching import Readable, WatchedFile
from stepwell.capabilities.files.writing import as_utf8
from stepwell.tools import ToolContext, ToolEffect, ToolFailure

PIECE_BYTES = 65_536
EXCERPT = 200

Names = tuple[str, ...]


class SearchFilesTool(FileTool):
    """Finds files by name or path, and lines in them; ``pure``, so it may be done again.

    Hidden files are found like others. Symlinks are shown but never gone through.
    """

    name = "search_files"
    effect = ToolEffect.PURE

    def __call__(
        self, pattern: str, contains: str | None = None, context: ToolContext | None = None
    ) -> str | ToolFailure:
        """Search for files by name or path; with a text, for the lines that have it in them.

        Directories such as .git and node_modules are left out, unless the pattern names them.

        Args:
            pattern: A glob from the base directory: '*.py' finds files in the base directory
                only, '**/*.py' at any depth, 'src/**/*.{ts,tsx}' beneath src. Or a path such as
                './a.py' or 'src/ui/': that file, or the files beneath that directory. Or a piece
                of a path, without '/', such as 'config': at any depth. '**' finds all files.
            contains: Text that a line must have, letter by letter; shows the lines.
        """
        return answered(pattern, lambda: self._shown(pattern, contains or None, context))

    def _shown(self, pattern: str, contains: str | None, context: ToolContext | None) -> str:
        if pattern.startswith("/"):
            pattern = "/".join((".", *self.directory.names(pattern)))
        wanted = PathPattern(pattern)
        search = self._search(wanted, context)
        if contains is None:
            hits = (printable("/".join(names)) for names in search.files())
        else:
            if "\n" in contains:
                raise FileRefused("contains has a line break; search for a piece of one line")
            hits = search.lines(as_utf8(contains, "contains"))
        shown: list[str] = []
        more = 0
        for hit in hits:
            if len(shown) < self.policy.max_results:
                shown.append(hit)
            else:
                more += 1
        if not shown:
            what = "files match" if contains is None else f"lines with {contains!r:.80} in files of"
            shown.append(f"No {what} {shortened(pattern)!r}.")
            if not search.has_matched:
                shown.extend(self._hints(wanted, context))
        if more:
            shown.append(f"... and {more} more; narrow the pattern to see them")
        return "\n".join((*shown, *search.notes()))

    def _search(self, wanted: PathPattern, context: ToolContext | None) -> "_Search":
        return _Search(self.directory, wanted, self.policy, lambda: refuse_if_cancelled(context))

    def _hints(self, wanted: PathPattern, context: ToolContext | None) -> Iterator[str]:
        """Name the first pattern that finds files at other depths, if any does."""
        for wider in wanted.wider:
            found = next(self._search(PathPattern(wider), context).files(), None)
            if found is not None:
                yield (
                    "A glob or a path starts at the base directory; "
                    f"{shortened(wider)!r} finds {printable('/'.join(found))}."
                )
                return


class _Search:
    """One search on its way down, and what it has used up."""

    def __init__(
        self,
        directory: ConfinedDirectory,
        wanted: PathPattern,
        policy: FilePolicy,
        look_up: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._wanted = wanted
        self._policy = policy
        self._look_up = look_up
        self._skipped = {name for name in policy.skipped_directories if not wanted.names(name)}
        self._entries_left = policy.max_visited
        self._bytes_left = policy.max_searched_bytes
        self._unreadable = 0
        self.has_matched = False

    def files(self) -> Iterator[Names]:
        """The files that match, those higher up first."""
        waiting: deque[Names] = deque([()])
        while waiting and self._entries_left > 0:
            above = waiting.popleft()
            try:
                found = self._entries(above)
            except OSError:  # closed to us, too deep, or gone by now
                self._unreadable += 1
                continue
            for name, is_directory in found:
                self._look_up()
                path = (*above, name)
                if not is_directory and self._wanted.matches(path):
                    self.has_matched = True
                    yield path
                if is_directory and self._enters(path):
                    waiting.append(path)
        if waiting:
            self._entries_left = -1

    def _entries(self, names: Names) -> list[tuple[str, bool]]:
        found: list[tuple[str, bool]] = []
        with (
            self._directory.directory(names, NOFOLLOW if names else 0) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            for entry in entries:
                if self._entries_left == 0:
                    self._entries_left = -1
                    break
                self._entries_left -= 1
                found.append((entry.name, entry.is_dir(follow_symlinks=False)))
        return sorted(found, key=lambda entry: (entry[0].casefold(), entry[0]))

    def _enters(self, path: Names) -> bool:
        return path[-1] not in self._skipped and self._wanted.may_match_beneath(path)

    def lines(self, text: bytes) -> Iterator[str]:
        """The lines with a text in them, in the files that match."""
        for names in self.files():
            with suppress(OSError), self._directory.file_at(names) as opened:
                file = WatchedFile(opened, lambda _: self._look_up())
                path = printable("/".join(names))
                yield from (f"{path}:{n}: {line}" for n, line in self._lines_of(file, text))
            if self._bytes_left <= 0:
                return

    def _lines_of(self, file: Readable, text: bytes) -> Iterator[tuple[int, str]]:
        if looks_binary(file.read(HEAD_BYTES)):
            return
        file.seek(0)
        number, last_hit, carried = 1, 0, b""
        while piece := file.read(min(PIECE_BYTES, self._bytes_left)):
            piece += file.readline(PIECE_BYTES)
            self._bytes_left = max(self._bytes_left - len(piece), 0)
            held = carried + piece
            if text in held:  # else there is no need to look at each line
                for line_number, line in enumerate(held.split(b"\n"), start=number):
                    if text in line and line_number != last_hit:
                        last_hit = line_number
                        yield line_number, _excerpt(line, text)
            number += piece.count(b"\n")
            carried = held.rpartition(b"\n")[2][-len(text) :]

    def notes(self) -> Iterator[str]:
        """What was left out."""
        if self._entries_left < 0:
            yield (
                f"(Stopped after {self._policy.max_visited} files and directories; narrow the "
                "pattern, for example to one directory.)"
            )
        if self._bytes_left <= 0:
            yield (
                f"(Stopped after reading {self._policy.max_searched_bytes} bytes; narrow the "
                "pattern.)"
            )
        if self._unreadable:
            unreadable = "directories" if self._unreadable > 1 else "directory"
            yield f"({self._unreadable} {unreadable} could not be read.)"


def _excerpt(line: bytes, text: bytes) -> str:
    """The line, or what stands around the text in a long one."""
    line = line.rstrip()
    start = max(line.find(text) - EXCERPT // 2, 0) if len(line) > EXCERPT else 0
    piece = whole_characters(line[start : start + EXCERPT])
    before = "..." if start else ""
    after = "..." if start + EXCERPT < len(line) else ""
    return f"{before}{decoded(piece)}{after}"

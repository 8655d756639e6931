"""``search_files``: finds files by path and lines by text, with bounded work."""

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from stepwell.capabilities.files.confined_directory import ConfinedDirectory
from stepwell.capabilities.files.file_tool import FileTool, refuse_if_cancelled, run_or_fail
from stepwell.capabilities.files.openat import NOFOLLOW
from stepwell.capabilities.files.patterns import PathPattern
from stepwell.capabilities.files.policy import FilePolicy
from stepwell.capabilities.files.refusals import FileRefused, printable, quote
from stepwell.capabilities.files.texts import (
    HEAD_BYTES,
    decode_line,
    looks_binary,
    trim_partial_character,
)
from stepwell.capabilities.files.watched_file import Readable, WatchedFile
from stepwell.capabilities.files.write_file import encode_utf8
from stepwell.tools import ToolContext, ToolEffect, ToolFailure

PIECE_BYTES = 65_536
EXCERPT = 200

Names = tuple[str, ...]


class SearchFilesTool(FileTool):
    """Finds files by name or path, and lines in them.

    Hidden files are included. Symlinks are listed but never followed.
    """

    name = "search_files"
    effect = ToolEffect.PURE

    def __call__(
        self, pattern: str, contains: str | None = None, context: ToolContext | None = None
    ) -> str | ToolFailure:
        """Search for files by name or path, or for the lines that contain a text.

        Directories such as .git and node_modules are skipped unless the pattern names them.

        Args:
            pattern: A glob relative to the base directory: '*.py' finds files directly in it,
                '**/*.py' at any depth, 'src/**/*.{ts,tsx}' beneath src. Or a path such as
                './a.py' or 'src/ui/': that file, or the files beneath that directory. Or part
                of a path, without '/', such as 'config': at any depth. '**' finds all files.
            contains: Exact text that a line must contain; shows these lines.
        """
        return run_or_fail(pattern, lambda: self._run(pattern, contains or None, context))

    def _run(self, pattern: str, contains: str | None, context: ToolContext | None) -> str:
        if pattern.startswith("/"):
            pattern = "/".join((".", *self.directory.names(pattern)))
        path_pattern = PathPattern(pattern)
        search = self._search(path_pattern, context)
        if contains is None:
            hits = (printable("/".join(names)) for names in search.files())
        else:
            if "\n" in contains:
                raise FileRefused("contains has a line break; search for part of one line")
            hits = search.lines(encode_utf8(contains, "contains"))
        shown: list[str] = []
        more = 0
        for hit in hits:
            if len(shown) < self.policy.max_results:
                shown.append(hit)
            else:
                more += 1
        if not shown:
            what = "files match" if contains is None else f"lines contain {contains!r:.80} in"
            shown.append(f"No {what} {quote(pattern)}.")
            if not search.has_matched:
                shown.extend(self._hints(path_pattern, context))
        if more:
            shown.append(f"... and {more} more; narrow the pattern to see them")
        return "\n".join((*shown, *search.notes()))

    def _search(self, path_pattern: PathPattern, context: ToolContext | None) -> "_FileSearch":
        return _FileSearch(
            self.directory, path_pattern, self.policy, lambda: refuse_if_cancelled(context)
        )

    def _hints(self, path_pattern: PathPattern, context: ToolContext | None) -> Iterator[str]:
        """Suggest the first broader pattern that finds a file."""
        for broader in path_pattern.broader:
            found = next(self._search(PathPattern(broader), context).files(), None)
            if found is not None:
                yield (
                    "Globs and paths start at the base directory; "
                    f"{quote(broader)} finds {printable('/'.join(found))}."
                )
                return


class _FileSearch:
    """One breadth-first search and what is left of its limits."""

    def __init__(
        self,
        directory: ConfinedDirectory,
        path_pattern: PathPattern,
        policy: FilePolicy,
        check_cancelled: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._pattern = path_pattern
        self._policy = policy
        self._check_cancelled = check_cancelled
        self._skipped = {
            name for name in policy.skipped_directories if not path_pattern.names(name)
        }
        self._entries_left = policy.max_visited
        self._bytes_left = policy.max_searched_bytes
        self._unreadable = 0
        self.has_matched = False

    def files(self) -> Iterator[Names]:
        """Yield the matching files, those closest to the base directory first."""
        queue: deque[Names] = deque([()])
        while queue and self._entries_left > 0:
            parent = queue.popleft()
            try:
                found = self._entries(parent)
            except OSError:  # no permission, too deep, or removed meanwhile
                self._unreadable += 1
                continue
            for name, is_directory in found:
                self._check_cancelled()
                path = (*parent, name)
                if not is_directory and self._pattern.matches(path):
                    self.has_matched = True
                    yield path
                if is_directory and self._should_enter(path):
                    queue.append(path)
        if queue:
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

    def _should_enter(self, path: Names) -> bool:
        return path[-1] not in self._skipped and self._pattern.may_match_beneath(path)

    def lines(self, text: bytes) -> Iterator[str]:
        """Yield the lines that contain the text, in the matching files."""
        for names in self.files():
            with suppress(OSError), self._directory.file_at(names) as opened:
                file = WatchedFile(opened, lambda _: self._check_cancelled())
                path = printable("/".join(names))
                yield from (f"{path}:{n}: {line}" for n, line in self._matching_lines(file, text))
            if self._bytes_left <= 0:
                return

    def _matching_lines(self, file: Readable, text: bytes) -> Iterator[tuple[int, str]]:
        if looks_binary(file.read(HEAD_BYTES)):
            return
        file.seek(0)
        number, last_hit, carried = 1, 0, b""
        while piece := file.read(min(PIECE_BYTES, self._bytes_left)):
            piece += file.readline(PIECE_BYTES)
            self._bytes_left = max(self._bytes_left - len(piece), 0)
            held = carried + piece
            if text in held:  # otherwise no line needs a look
                for line_number, line in enumerate(held.split(b"\n"), start=number):
                    if text in line and line_number != last_hit:
                        last_hit = line_number
                        yield line_number, _excerpt(line, text)
            number += piece.count(b"\n")
            carried = held.rpartition(b"\n")[2][-len(text) :]

    def notes(self) -> Iterator[str]:
        """Yield notes on what the search left out."""
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
    """Return the line, or the surroundings of the text in a long line."""
    line = line.rstrip()
    start = max(line.find(text) - EXCERPT // 2, 0) if len(line) > EXCERPT else 0
    piece = trim_partial_character(line[start : start + EXCERPT])
    before = "..." if start else ""
    after = "..." if start + EXCERPT < len(line) else ""
    return f"{before}{decode_line(piece)}{after}"

"""``list_dir``: lists the entries of a directory, in bounded memory."""

import os
import stat
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice

from stepwell.capabilities.files.file_tool import FileTool, refuse_if_cancelled, run_or_fail
from stepwell.capabilities.files.openat import READ_FILE
from stepwell.capabilities.files.refusals import FileRefused, printable, quote
from stepwell.tools import ToolContext, ToolEffect, ToolFailure

Entry = tuple[bool, str, str, str]
"""Sort key and text: not a directory, casefolded name, name, the line to show."""


class ListDirTool(FileTool):
    """Lists directories."""

    name = "list_dir"
    effect = ToolEffect.PURE

    def __call__(self, path: str = ".", context: ToolContext | None = None) -> str | ToolFailure:
        """List a directory: subdirectories first, then files.

        Args:
            path: The directory, relative to the base directory; the default is the base directory.
        """
        return run_or_fail(path, lambda: self._list(path, context))

    def _list(self, path: str, context: ToolContext | None) -> str:
        names = self.directory.names(path)
        total = 0

        def visit(entries: "Iterator[os.DirEntry[str]]") -> Iterator[Entry]:
            nonlocal total
            for total, entry in enumerate(islice(entries, self.policy.max_visited), start=1):  # noqa: B007
                refuse_if_cancelled(context)
                yield self._entry(names, entry)

        try:
            with (
                self.directory.directory(names) as descriptor,
                os.scandir(descriptor) as entries,
            ):
                first = nsmallest(self.policy.max_entries, visit(entries))
                is_all = next(entries, None) is None
        except NotADirectoryError:
            raise FileRefused(
                f"{quote(path)} is not a directory; use read_file for a file"
            ) from None
        if not first:
            return "(empty directory)"
        more = total - len(first)
        if not is_all:
            last = [f"... and more; only {total} entries were visited, in no particular order"]
        else:
            last = [f"... and {more} more"] if more else []
        return "\n".join((*(shown for _, _, _, shown in first), *last))

    def _entry(self, names: tuple[str, ...], entry: "os.DirEntry[str]") -> Entry:
        kind = self._kind(names, entry)
        shown = f"[{kind}] {printable(entry.name)}"
        return kind != "dir", entry.name.casefold(), entry.name, shown

    def _kind(self, names: tuple[str, ...], entry: "os.DirEntry[str]") -> str:
        if entry.is_dir(follow_symlinks=False):
            return "dir"
        if entry.is_file(follow_symlinks=False):
            return "file"
        return self._link_kind((*names, entry.name)) if entry.is_symlink() else "special"

    def _link_kind(self, names: tuple[str, ...]) -> str:
        """Return the kind of a symlink's target, as the other tools would open it."""
        try:
            descriptor = self.directory.descriptor(names, READ_FILE)
        except OSError:
            return "closed link"
        try:
            mode = os.fstat(descriptor).st_mode
        finally:
            os.close(descriptor)
        if stat.S_ISDIR(mode):
            return "dir"
        return "file" if stat.S_ISREG(mode) else "special"

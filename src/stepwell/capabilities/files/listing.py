"""``list_dir``: what is in a directory, in bounded memory."""

import os
import stat
from collections.abc import Iterator
from heapq import nsmallest
from itertools import islice

from stepwell.capabilities.files.file_tool import FileTool, answered, refuse_if_cancelled
from stepwell.capabilities.files.opening import READ_FILE
from stepwell.capabilities.files.refusals import FileRefused, printable, shortened
from stepwell.tools import ToolContext, ToolEffect, ToolFailure

Entry = tuple[bool, str, str, str]
"""Not a directory, the name in small letters, the name, what is shown: sorted as it stands."""


class ListDirTool(FileTool):
    """Lists directories; ``pure``, so it may be done again."""

    name = "list_dir"
    effect = ToolEffect.PURE

    def __call__(self, path: str = ".", context: ToolContext | None = None) -> str | ToolFailure:
        """List a directory: its directories first, then its files.

        Args:
            path: The directory, from the base directory on; left out, the base directory.
        """
        return answered(path, lambda: self._shown(path, context))

    def _shown(self, path: str, context: ToolContext | None) -> str:
        names = self.directory.names(path)
        total = 0

        def looked_at(entries: "Iterator[os.DirEntry[str]]") -> Iterator[Entry]:
            nonlocal total
            for total, entry in enumerate(islice(entries, self.policy.max_visited), start=1):  # noqa: B007
                refuse_if_cancelled(context)
                yield self._entry(names, entry)

        try:
            with (
                self.directory.directory(names) as descriptor,
                os.scandir(descriptor) as entries,
            ):
                first = nsmallest(self.policy.max_entries, looked_at(entries))
                is_all = next(entries, None) is None
        except NotADirectoryError:
            raise FileRefused(
                f"{shortened(path)!r} is not a directory; read_file shows a file"
            ) from None
        if not first:
            return "(empty directory)"
        more = total - len(first)
        if not is_all:
            last = [f"... and more; only {total} entries were looked at, in no order"]
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
        """What a symlink stands for, as the other tools would see it."""
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

"""``list_dir``: what is in a directory, in bounded memory."""

import os
import stat
from collections.abc import Iterator
from heapq import nsmallest
from os import PathLike
from typing import Self

from msgspec.structs import replace

from stepwell.capabilities.files.confined import ConfinedDirectory
from stepwell.capabilities.files.file_tool import FileTool, answered
from stepwell.capabilities.files.opening import READ_FILE
from stepwell.capabilities.files.policy import DEFAULT_POLICY, FilePolicy
from stepwell.capabilities.files.refusals import FileRefused, printable, shortened
from stepwell.tools import ToolEffect, ToolFailure

Entry = tuple[bool, str, str, str]
"""Not a directory, the name in small letters, the name, what is shown: sorted as it stands."""


class ListDirTool(FileTool):
    """Lists directories; ``pure``, so it may be done again."""

    name = "list_dir"
    effect = ToolEffect.PURE

    @classmethod
    def in_directory(
        cls,
        base_dir: str | PathLike[str],
        *,
        policy: FilePolicy = DEFAULT_POLICY,
        max_entries: int | None = None,
    ) -> Self:
        """The tool for the directories beneath this one."""
        if max_entries is not None:
            policy = replace(policy, max_entries=max_entries)
        return cls(ConfinedDirectory(base_dir), policy)

    def __call__(self, path: str = ".") -> str | ToolFailure:
        """List a directory: its directories first, then its files.

        Args:
            path: The directory, from the base directory on; left out, the base directory.
        """
        return answered(path, lambda: self._shown(path))

    def _shown(self, path: str) -> str:
        names = self.directory.names(path)
        try:
            with self.directory.directory(names) as descriptor:
                total = 0

                def counted() -> Iterator[Entry]:
                    nonlocal total
                    for total, entry in enumerate(self._entries(names, descriptor), start=1):  # noqa: B007
                        yield entry

                first = nsmallest(self.policy.max_entries, counted())
        except NotADirectoryError:
            raise FileRefused(
                f"{shortened(path)!r} is not a directory; read_file shows a file"
            ) from None
        if not first:
            return "(empty directory)"
        more = total - len(first)
        last = [f"... and {more} more"] if more else []
        return "\n".join((*(shown for _, _, _, shown in first), *last))

    def _entries(self, names: tuple[str, ...], descriptor: int) -> Iterator[Entry]:
        with os.scandir(descriptor) as entries:
            for entry in entries:
                kind = self._kind(names, entry)
                shown = f"[{kind}] {printable(entry.name)}"
                yield kind != "dir", entry.name.casefold(), entry.name, shown

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

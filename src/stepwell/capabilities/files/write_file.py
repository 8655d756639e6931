"""``write_file``: creates a file or replaces its whole content, atomically."""

from typing import BinaryIO

from stepwell.capabilities.files.atomic_write import replace_atomically, stat_replaceable
from stepwell.capabilities.files.file_tool import FileTool, refuse_if_cancelled, run_or_fail
from stepwell.capabilities.files.refusals import FileRefused, quote
from stepwell.capabilities.files.texts import plural
from stepwell.text import HALF_CHARACTER
from stepwell.tools import ToolContext, ToolEffect, ToolFailure


class WriteFileTool(FileTool):
    """Creates and replaces files. It is ``idempotent``: writing the same content changes nothing.

    A symlink that stays in the base directory is followed: its target is replaced, and the link
    stays. A hard link is broken: the other name keeps the old content.
    """

    name = "write_file"
    effect = ToolEffect.IDEMPOTENT
    parallel = False

    def __call__(
        self, path: str, content: str, context: ToolContext | None = None
    ) -> str | ToolFailure:
        """Write a whole file. Replaces an existing file and creates missing directories.

        Args:
            path: The file, relative to the base directory, such as 'src/main.py'.
            content: The complete new text.
        """
        return run_or_fail(path, lambda: self._write(path, content, context))

    def _write(self, path: str, content: str, context: ToolContext | None) -> str:
        data = encode_utf8(content, "content")
        if len(data) > self.policy.max_write_bytes:
            raise FileRefused(
                f"the content has {len(data)} bytes, and write_file accepts at most "
                f"{self.policy.max_write_bytes}; write less and add the rest with edit_file"
            )

        def fill(file: BinaryIO) -> None:
            file.write(data)

        refuse_if_cancelled(context)
        with self.directory.place(path, self.check_writable, create_parents=True) as place:
            old = stat_replaceable(place)
            replace_atomically(place, old, fill, lambda: refuse_if_cancelled(context))
        lines = content.count("\n") + (not content.endswith("\n") and content != "")
        what = "Created" if old is None else "Replaced"
        return f"{what} {quote(path)}: {plural(len(data), 'byte')}, {plural(lines, 'line')}."


def encode_utf8(text: str, name: str) -> bytes:
    """Encode a text that a model wrote. Raises ``FileRefused`` for half a character."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FileRefused(
            f"{name} has {HALF_CHARACTER} at position {error.start}; write the whole character"
        ) from None

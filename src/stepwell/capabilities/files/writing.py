"""``write_file``: a whole file with new content, made or replaced at once."""

from typing import BinaryIO

from stepwell.capabilities.files.file_tool import FileTool, answered, refuse_if_cancelled
from stepwell.capabilities.files.refusals import FileRefused, shortened
from stepwell.capabilities.files.replacing import replace_at, replaceable
from stepwell.capabilities.files.texts import plural
from stepwell.tools import ToolContext, ToolEffect, ToolFailure


class WriteFileTool(FileTool):
    """Makes and replaces files; ``idempotent``, since writing the same again changes nothing.

    A symlink that stays in the base directory is followed: the file it names is replaced, and the
    link stays. A hard link is broken: the other name keeps the old content.
    """

    name = "write_file"
    effect = ToolEffect.IDEMPOTENT
    parallel = False

    def __call__(
        self, path: str, content: str, context: ToolContext | None = None
    ) -> str | ToolFailure:
        """Write a whole file. An existing file is replaced; missing directories are made.

        Args:
            path: The file, from the base directory on, such as 'src/main.py'.
            content: All of the new text.
        """
        return answered(path, lambda: self._written(path, content, context))

    def _written(self, path: str, content: str, context: ToolContext | None) -> str:
        data = as_utf8(content, "content")
        if len(data) > self.policy.max_write_bytes:
            raise FileRefused(
                f"the content has {len(data)} bytes, and write_file takes at most "
                f"{self.policy.max_write_bytes}; write less, and add the rest with edit_file"
            )

        def fill(file: BinaryIO) -> None:
            file.write(data)

        refuse_if_cancelled(context)
        with self.directory.place(path, self.check_writable, create_parents=True) as place:
            old = replaceable(place)
            replace_at(place, old, fill, lambda: refuse_if_cancelled(context))
        lines = content.count("\n") + (not content.endswith("\n") and content != "")
        what = "Created" if old is None else "Replaced"
        return f"{what} {shortened(path)!r}: {plural(len(data), 'byte')}, {plural(lines, 'line')}."


def as_utf8(text: str, name: str) -> bytes:
    """The bytes of a text that a model wrote."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise FileRefused(
            f"{name} has half a character (a lone surrogate) at position {error.start}; write the "
            "whole character"
        ) from None

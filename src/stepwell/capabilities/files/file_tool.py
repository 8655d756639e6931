"""The base class of the file tools: a confined directory, limits, and failures as values."""

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Self

from stepwell.capabilities.files.confined_directory import ConfinedDirectory
from stepwell.capabilities.files.policy import DEFAULT_POLICY, FilePolicy
from stepwell.capabilities.files.refusals import FileRefused, explain_error, quote
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_kind
from stepwell.sandbox.host.import_guard import guard_directories
from stepwell.sandbox.host.names import protected_name
from stepwell.sandbox.host.protection import host_path_of
from stepwell.tools import BaseTool, ToolContext, ToolFailure


class FileTool(BaseTool):
    """A tool confined to one directory, with the limits of a policy."""

    def __init__(self, directory: ConfinedDirectory, policy: FilePolicy = DEFAULT_POLICY) -> None:
        if not isinstance(directory, ConfinedDirectory):  # pyright: ignore[reportUnnecessaryIsInstance]
            name = type(self).__name__
            raise ConfigurationError(
                f"{name} needs a ConfinedDirectory, got {directory!r:.80}. Write "
                f"{name}.in_directory(path)"
            )
        self.directory = directory
        self.policy = check_kind(policy, "policy", FilePolicy)
        super().__init__()

    @classmethod
    def in_directory(
        cls, base_dir: str | PathLike[str], *, policy: FilePolicy = DEFAULT_POLICY
    ) -> Self:
        """Make the tool for the files beneath this directory."""
        return cls(ConfinedDirectory(base_dir), policy)

    def check_writable(self, real_path: str) -> None:
        """Raise ``FileRefused`` for a path that the policy protects."""
        shown = os.path.relpath(real_path, self.directory.path)
        names = [*shown.split("/"), *([""] if real_path.endswith("/") else [])]
        if pattern := protected_name(names, self.policy.protected):
            raise FileRefused(
                f"{quote(shown)} is protected by the rule {pattern!r} because other "
                "programs execute its content. Leave it unchanged and describe the change instead. "
                "The developer can allow it with FilePolicy(protected=...)"
            )
        if not self.policy.protect_host:
            return
        if host := host_path_of(real_path):
            raise FileRefused(
                f"{quote(shown)} is protected: it is inside {host.path}, which is "
                f"{host.use}. Write elsewhere. The developer can allow it with "
                "FilePolicy(protect_host=False)"
            )
        guard_directories([Path(self.directory.path)])


def run_or_fail(path: str, work: Callable[[], str]) -> str | ToolFailure:
    """Return the result of ``work``, or a failure that explains why it could not be done."""
    try:
        return work()
    except FileRefused as refusal:
        return ToolFailure(str(refusal))
    except OSError as error:
        return ToolFailure(explain_error(error, path))


def refuse_if_cancelled(context: ToolContext | None) -> None:
    """Raise ``FileRefused`` if the call was cancelled. Its thread would otherwise continue."""
    if context is not None and context.is_cancelled:
        raise FileRefused("the call was cancelled, and nothing was changed")

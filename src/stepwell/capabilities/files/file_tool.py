"""What the file tools have in common: a confined directory, limits, and failures as values."""

import os
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Self

from stepwell.capabilities.files.confined import ConfinedDirectory
from stepwell.capabilities.files.policy import DEFAULT_POLICY, FilePolicy
from stepwell.capabilities.files.refusals import FileRefused, shortened, why
from stepwell.errors import ConfigurationError
from stepwell.sandbox.host.import_guard import guard_directories
from stepwell.sandbox.host.names import protected_name
from stepwell.sandbox.host.protection import host_path_of
from stepwell.tools import BaseTool, ToolContext, ToolFailure


class FileTool(BaseTool):
    """A tool that works beneath one directory, within a policy."""

    def __init__(self, directory: ConfinedDirectory, policy: FilePolicy = DEFAULT_POLICY) -> None:
        if not isinstance(directory, ConfinedDirectory):  # pyright: ignore[reportUnnecessaryIsInstance]
            name = type(self).__name__
            raise ConfigurationError(
                f"{name} works in a ConfinedDirectory, got {directory!r:.80}; write "
                f"{name}.in_directory(path)"
            )
        if not isinstance(policy, FilePolicy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{policy!r:.80} is not a policy; write FilePolicy(max_results=20)"
            )
        self.directory = directory
        self.policy = policy
        super().__init__()

    @classmethod
    def in_directory(
        cls, base_dir: str | PathLike[str], *, policy: FilePolicy = DEFAULT_POLICY
    ) -> Self:
        """The tool for the files beneath this directory."""
        return cls(ConfinedDirectory(base_dir), policy)

    def check_writable(self, real_path: str) -> None:
        """Raise ``FileRefused`` for a path that the policy protects."""
        shown = os.path.relpath(real_path, self.directory.path)
        names = [*shown.split("/"), *([""] if real_path.endswith("/") else [])]
        if pattern := protected_name(names, self.policy.protected):
            raise FileRefused(
                f"{shortened(shown)!r} is protected by the rule {pattern!r}: other "
                "programs execute what it says. Leave it as it is, and say what should change; the "
                "developer can allow it with FilePolicy(protected=...)"
            )
        if not self.policy.protect_host:
            return
        if host := host_path_of(real_path):
            raise FileRefused(
                f"{shortened(shown)!r} is protected: it lies in {host.path}, which is "
                f"{host.use}. Write elsewhere; the developer can allow it with "
                "FilePolicy(protect_host=False)"
            )
        guard_directories([Path(self.directory.path)])


def answered(path: str, work: Callable[[], str]) -> str | ToolFailure:
    """What the work gives, or in words why it could not be done."""
    try:
        return work()
    except FileRefused as refusal:
        return ToolFailure(str(refusal))
    except OSError as error:
        return ToolFailure(why(error, path))


def refuse_if_cancelled(context: ToolContext | None) -> None:
    """A call whose result nobody waits for any more must not go on in its thread."""
    if context is not None and context.is_cancelled:
        raise FileRefused("the call was cancelled, and nothing was changed")

"""What the file tools have in common: a confined directory, limits, and failures as values."""

from collections.abc import Callable
from os import PathLike
from typing import Self

from stepwell.capabilities.files.confined import ConfinedDirectory
from stepwell.capabilities.files.policy import DEFAULT_POLICY, FilePolicy
from stepwell.capabilities.files.refusals import FileRefused, why
from stepwell.errors import ConfigurationError
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

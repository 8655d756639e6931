"""A temporary folder for one command, removed afterwards whatever it contains."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from stepwell.errors import SandboxError
from stepwell.sandbox.environment import PATH
from stepwell.sandbox.waits import finish_uncancelled


@asynccontextmanager
async def private_folder(prefix: str = "stepwell-") -> AsyncGenerator[Path]:
    """Create a folder that only this user can read, and remove it at the end."""
    folder = _create(prefix)
    try:
        yield folder
    finally:
        if not _remove_if_empty(folder):
            await finish_uncancelled(asyncio.to_thread(remove, folder))


def remove(folder: Path) -> None:
    """Remove a folder with its content. Links are removed, but not their targets.

    Uses system programs, because a command may have nested folders deeper than Python's recursion
    limit and removed its own permissions.
    """
    for command in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        if folder.exists():
            with suppress(OSError):
                subprocess.run(
                    [*command, "--", folder],
                    env={"PATH": PATH},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                )


def _create(prefix: str) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    except OSError as error:
        raise SandboxError(
            f"a temporary folder can't be created: {error}; free some space"
        ) from error


def _remove_if_empty(folder: Path) -> bool:
    """Remove an empty folder, which is the usual case and needs no program."""
    with suppress(OSError):
        os.rmdir(folder)
        return True
    return False

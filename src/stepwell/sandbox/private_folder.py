"""A folder that is a command's own while it runs, and gone afterwards, whatever was put into it."""

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from stepwell.errors import SandboxError
from stepwell.sandbox.environment import PATH
from stepwell.sandbox.waiting import unbroken


@asynccontextmanager
async def private_folder(prefix: str = "stepwell-") -> AsyncGenerator[Path]:
    """A new folder that only this user can read."""
    folder = _made(prefix)
    try:
        yield folder
    finally:
        if not _removed_empty(folder):
            await unbroken(asyncio.to_thread(remove, folder))


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it. Links are removed, what they point to is not.

    By programs of the system: a command may have nested folders deeper than a recursion goes, and
    have closed them to its own user.
    """
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):
        if folder.exists():
            with suppress(OSError):
                subprocess.run(
                    [*words, "--", folder],
                    env={"PATH": PATH},
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    check=False,
                )


def _made(prefix: str) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    except OSError as error:
        raise SandboxError(
            f"a folder for temporary files can't be made: {error}; make room for one"
        ) from error


def _removed_empty(folder: Path) -> bool:
    """Mostly there is nothing in it, and no program is needed."""
    with suppress(OSError):
        os.rmdir(folder)
        return True
    return False

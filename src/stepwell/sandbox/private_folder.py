"""A folder that is a command's own while it runs, and gone afterwards, whatever was put into it."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from stepwell.sandbox.processes import unbroken


@asynccontextmanager
async def private_folder(prefix: str = "stepwell-") -> AsyncGenerator[Path]:
    """A new folder that only this user can read."""
    folder = _made(prefix)
    try:
        yield folder
    finally:
        await unbroken(asyncio.to_thread(remove, folder))


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it. Links are removed, what they point to is not."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        _open_up(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _made(prefix: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=prefix)).resolve()


def _open_up(folder: Path) -> None:
    """A command may have closed its folders, also to itself."""
    os.chmod(folder, 0o700)
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)

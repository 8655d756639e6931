"""Real clients of npm, run by Node.js and told what to do line by line."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.servers.node import HERE, PACKAGES, find_node, why_missing

_WHY = why_missing(PACKAGES / "laravel-echo" / "package.json")
needs_node = pytest.mark.skipif(_WHY is not None, reason=str(_WHY))
LONGEST_LINE = 4 * 1024 * 1024


class NodeClient:
    """A program that answers each line of JSON with one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, **command: Any) -> Any:
        """Its answer."""
        reading, writing = self._process.stdout, self._process.stdin
        assert reading is not None
        assert writing is not None
        writing.write(json.dumps(command).encode() + b"\n")
        async with asyncio.timeout(90):
            line = await reading.readline()
        assert line, "the client ended"
        return json.loads(line)


@asynccontextmanager
async def node_client(script: str) -> AsyncIterator[NodeClient]:
    """Run a script of tests/servers for the length of a block."""
    node = find_node()
    assert node is not None
    process = await asyncio.create_subprocess_exec(
        node.node,
        str(HERE / script),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LONGEST_LINE,
    )
    try:
        yield NodeClient(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(90):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

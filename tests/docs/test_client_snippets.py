"""The client code of the how-to pages runs against a server, as it stands there."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.docs.test_snippets import ROOT
from tests.integration.server.serving import Address, listening, serving
from tests.servers.node import HERE, PACKAGES, find_node, why_missing

ADDRESS = "http://127.0.0.1:8400"
_BLOCK = re.compile(r"^```(js|py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PRINTED = re.compile(r"^(?://|#)> (.*)$", re.MULTILINE)
BLOCKS = [
    pytest.param(kind, source, id=f"{page}-{kind}")
    for page in ("ai-sdk", "ag-ui", "openai")
    for kind, source in _BLOCK.findall((ROOT / f"docs/howto/{page}.md").read_text())
    if ADDRESS in source
]
_WHY = why_missing(PACKAGES / "openai" / "package.json")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Address]:
    async with serving(tmp_path_factory.mktemp("snippets")) as served:

        async def app(scope: Any, receive: Any, send: Any) -> None:
            # As in development, where everybody on this machine is signed in.
            if scope["type"] == "http":
                scope["headers"] = [*scope["headers"], (b"x-user", b"dev")]
            await served.app(scope, receive, send)

        async with listening(served, app=app) as address:
            yield address


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 4


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.skipif(_WHY is not None, reason=str(_WHY))
@pytest.mark.parametrize(("kind", "source"), BLOCKS)
async def test_client_code_runs(server: Address, kind: str, source: str) -> None:
    node = find_node()
    assert node is not None
    code = source.replace(ADDRESS, server.url)
    node_command = [node.node, "--input-type=module", "--eval", code]
    command = node_command if kind == "js" else [sys.executable, "-c", code]
    ran = await asyncio.to_thread(
        subprocess.run,
        command,
        cwd=HERE if kind == "js" else Path(sys.prefix),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == _PRINTED.findall(source)

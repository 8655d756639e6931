"""One server for all tests of a module: sessions and users keep them apart."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.server.live.living import Live, living


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    """A server with a worker, impatient enough for tests."""
    folder = tmp_path_factory.mktemp("live")
    async with living(folder, works=True, ping_seconds=0.2, live_cut_seconds=3.0) as made:
        yield made

"""The same runs and takeovers on PostgreSQL; what is tried in detail on SQLite holds here too."""

from pathlib import Path

import pytest

from tests.integration.sessions.tried import QUICK, WRITES, Tried, taken_over
from tests.integration.sessions.world import world
from tests.servers.postgres_server import database_of_its_own


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_crashes_at_every_write_one_after_the_other_end_in_one_answer(
    tmp_path: Path, postgres_url: str, after: bool
) -> None:
    tried = Tried()
    with database_of_its_own(postgres_url, f"runner_{after}".lower()) as url:
        await crashed_everywhere(tmp_path, tried, url, after=after)


async def crashed_everywhere(folder: Path, tried: Tried, url: str, *, after: bool) -> None:
    async with world(folder, tried.agent, settings=QUICK, url=url) as here:
        id = await here.send("go")
        crashes = [(at, after) for at in range(1, len(WRITES) + 1)]
        assert await taken_over(here, id, crashes) >= 3
        assert (await here.execution(id)).status == "completed"
        texts = await here.texts()
        assert texts.count("All done.") == 1
        assert len(texts) == len(set(texts))
        assert await here.statuses() == ["processing", "completed"]
        assert tried.times("pay") <= 1

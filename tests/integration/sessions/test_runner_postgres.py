"""The same runs and takeovers on PostgreSQL; what is tried in detail on SQLite holds here too."""

from pathlib import Path

import pytest

from tests.integration.sessions.tried import QUICK, WRITES, Tried, taken_over
from tests.integration.sessions.world import world


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_crashes_at_every_write_one_after_the_other_end_in_one_answer(
    tmp_path: Path, postgres_database: str, after: bool
) -> None:
    tried = Tried()
    async with world(tmp_path, tried.agent, settings=QUICK, url=postgres_database) as here:
        id = await here.send("go")
        crashes = [(at, after) for at in range(1, len(WRITES) + 1)]
        assert await taken_over(here, id, crashes) >= 3
        assert (await here.execution(id)).status == "completed"
        texts = await here.texts()
        assert texts.count("All done.") == 1
        assert len(texts) == len(set(texts))
        assert await here.statuses() == ["processing", "completed"]
        assert tried.times("pay") <= 1

"""A cancellation that is accepted while a run comes to its own end: it ends as cancelled."""

from pathlib import Path
from typing import Any

import pytest

from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.testing import call
from tests.integration.sessions.tried import QUICK, Tried
from tests.integration.sessions.world import CrashingStore, World, world


class LateCancellation(CrashingStore):
    """A store in front of whose last write of a run somebody cancels it."""

    def __init__(self, here: World, execution_id: str) -> None:
        super().__init__(here.store)
        self._lifecycle = Lifecycle(here.store, here.jobs, here.agents)
        self._execution_id = execution_id

    async def write(self, work: Any, /, *, name: str) -> Any:
        if name == "finish":
            await self._lifecycle.cancel(self._execution_id, reason="too late?")
        return await super().write(work, name=name)


@pytest.mark.parametrize(
    "turns",
    [("Done.",), ([call("pay", id="p", at="x")], "Paid.")],
    ids=["the only step", "a later step"],
)
async def test_an_accepted_cancellation_ends_the_execution_as_cancelled(
    tmp_path: Path, database: str | Path, turns: Any
) -> None:
    url = database if isinstance(database, str) else None
    async with world(tmp_path, Tried(turns).agent, settings=QUICK, url=url) as here:
        id = await here.send("go")
        assert await here.run(id, store=LateCancellation(here, id)) == "cancelled"
        row = await here.execution(id)
        assert (row.status, row.cancel_requested) == ("cancelled", "too late?")
        assert row.output is None
        assert await here.statuses() == ["processing", "cancelled"]
        texts = await here.texts()
        assert not {"Done.", "Paid."} & set(texts)
        assert len(texts) == len(set(texts))
        assert row.last_snapshot_id is not None
        assert await here.store.read(lambda tx: tx.intent(id)) is None

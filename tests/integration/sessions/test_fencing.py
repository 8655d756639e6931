"""Who lost its lease writes nothing, and a write that fails never becomes a result."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.sessions.attempt.runner import RunControl
from stepwell.sessions.errors import LostLeaseError, StoreUnavailableError
from stepwell.sessions.settings import SessionSettings
from stepwell.testing import MockTool, ScriptedModel, call
from tests.integration.sessions.world import CrashingStore, World, world

QUICK = SessionSettings(flush_seconds=5.0)


class Frozen:
    """An agent whose first tool call stands still until it is let go."""

    def __init__(self) -> None:
        self.began, self.thaw = asyncio.Event(), asyncio.Event()
        self.runs = 0
        model = ScriptedModel(
            lambda request: (
                "Done."
                if any(message.is_tool() for message in request.messages)
                else call("wait", id="w")
            )
        )
        tool = MockTool("wait", self._wait, effect="external")
        self.agent = Agent(model, tools=[tool])

    async def _wait(self, **_: Any) -> str:
        self.runs += 1
        self.began.set()
        await self.thaw.wait()
        return "thawed"


@pytest.fixture
def frozen() -> Frozen:
    return Frozen()


@pytest.fixture
async def here(tmp_path: Path, frozen: Frozen) -> AsyncIterator[World]:
    async with world(tmp_path, frozen.agent, settings=QUICK) as made:
        yield made


async def test_a_worker_that_wakes_up_after_a_takeover_changes_nothing(
    here: World, frozen: Frozen
) -> None:
    id = await here.send("go")
    slow = asyncio.create_task(here.run(id))
    await frozen.began.wait()
    assert await here.run(id, dead=True) == "completed"
    row, texts, events = await here.execution(id), await here.texts(), await here.events()
    frozen.thaw.set()
    with pytest.raises(LostLeaseError):
        await slow
    assert await here.execution(id) == row
    assert await here.texts() == texts
    assert await here.events() == events
    assert frozen.runs == 1


async def test_an_abandoned_run_ends_at_once_and_writes_nothing(
    here: World, frozen: Frozen
) -> None:
    id, control = await here.send("go"), RunControl()
    store = CrashingStore(here.store)
    run = asyncio.create_task(here.run(id, control=control, store=store))
    await frozen.began.wait()
    before, events = tuple(store.names), await here.events()
    control.abandon(LostLeaseError(id, 1))
    with pytest.raises(LostLeaseError):
        await run
    assert tuple(store.names) == before
    assert await here.events() == events
    assert (await here.execution(id)).status == "running"
    assert await here.statuses() == []


async def test_a_run_that_was_abandoned_before_it_began_does_not_begin(here: World) -> None:
    id, control = await here.send("go"), RunControl()
    control.abandon(LostLeaseError(id, 1))
    store = CrashingStore(here.store)
    with pytest.raises(LostLeaseError):
        await here.run(id, control=control, store=store)
    assert store.names == []


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_database_that_does_not_answer_leaves_the_execution_for_takeover(
    here: World, frozen: Frozen, at: int
) -> None:
    frozen.thaw.set()
    id = await here.send("go")
    store = CrashingStore(here.store, at=at)
    store.error = StoreUnavailableError("gone")
    with pytest.raises(StoreUnavailableError):
        await here.run(id, store=store)
    row = await here.execution(id)
    assert (row.status, row.error_message) == ("running", None)
    assert await here.run(id, dead=True) == "completed"
    assert frozen.runs == 1
    assert (await here.texts("assistant")) == ["Done."]


async def test_a_flush_that_fails_ends_the_run_as_well(tmp_path: Path) -> None:
    class Endless(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            async for part in super().stream(request):
                yield part
                await asyncio.sleep(0.01)

    model = Endless([" ".join("word" for _ in range(2000))])
    async with world(tmp_path, Agent(model), settings=SessionSettings(flush_seconds=0.02)) as here:
        id = await here.send("go")

        class Mute(CrashingStore):
            async def write(self, work: Any, /, *, name: str) -> Any:
                if name == "flush":
                    raise StoreUnavailableError("gone")
                return await super().write(work, name=name)

        with pytest.raises(StoreUnavailableError):
            await here.run(id, store=Mute(here.store))
        assert (await here.execution(id)).status == "running"


async def test_a_cancelled_worker_leaves_no_task_behind(here: World, frozen: Frozen) -> None:
    id, others = await here.send("go"), asyncio.all_tasks()
    run = asyncio.create_task(here.run(id))
    await frozen.began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.all_tasks() <= others
    assert (await here.execution(id)).status == "running"

"""Of a first attempt nothing is stored before its first commit: what that must not cost."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.sessions.endings.end import EndDeps
from stepwell.sessions.endings.outside import mark_failed
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.settings import SessionSettings
from stepwell.testing import MockTool, ScriptedModel, call
from tests.integration.sessions.tried import QUICK, Held, conversation
from tests.integration.sessions.world import CLOCK, Crash, CrashingStore, World, world


async def broken(here: World, id: str) -> str:
    claimed = await here.claim(id)
    deps = EndDeps(jobs=here.jobs, clock=CLOCK, settings=here.settings)
    assert await here.store.write(lambda tx: mark_failed(tx, claimed, "e1", deps), name="fail")
    return "failed"


async def set_aside(here: World, id: str) -> str:
    for attempt in range(3):
        with pytest.raises(Crash):
            await here.run(id, store=CrashingStore(here.store, at=1), dead=attempt > 0)
    return await here.run(id, dead=True, settings=SessionSettings(max_crashes=3))


async def cancelled(here: World, id: str) -> str:
    await here.claim(id)
    await Lifecycle(here.store, here.jobs, here.agents).cancel(id)
    return await here.run(id, dead=True)


@pytest.mark.parametrize("ends", [broken, set_aside, cancelled], ids=lambda way: way.__name__)
async def test_the_session_keeps_the_message_of_an_execution_that_stored_nothing(
    tmp_path: Path, ends: Any
) -> None:
    model = ScriptedModel(lambda request: f"I heard {len(request.messages)}.")
    async with world(tmp_path, Agent(model), settings=QUICK) as here:
        first = await here.send("My name is Ada.")
        await here.run(first)
        second = await here.send("I live in Rome.")
        assert await ends(here, second) in ("failed", "cancelled")
        assert (await here.execution(second)).last_snapshot_id is not None
        third = await here.send("Where do I live?")
        assert await here.run(third) == "completed"
        said = [part.text for _, role, [part] in await conversation(here) if role == "user"]
        assert said == ["My name is Ada.", "I live in Rome.", "Where do I live?"]


async def test_one_that_was_cancelled_in_the_queue_leaves_no_state(tmp_path: Path) -> None:
    async with world(tmp_path, Agent(ScriptedModel(["Yes."])), settings=QUICK) as here:
        id = await here.send("go")
        row = await Lifecycle(here.store, here.jobs, here.agents).cancel(id)
        assert (row.status, row.last_snapshot_id) == ("cancelled", None)


async def test_a_flush_that_is_repeated_after_it_was_committed_doubles_nothing(
    tmp_path: Path,
) -> None:
    held, pay = Held(), MockTool.returning("pay", "receipt 7")
    agent = Agent(ScriptedModel([call("pay", id="p"), "Paid."]), tools=[pay], hooks=[held.hook])
    async with world(tmp_path, agent, settings=SessionSettings(flush_seconds=0.01)) as here:
        id = await here.send("go")
        held.until_stored(here, id, "receipt 7")

        class Twice(CrashingStore):
            async def write(self, work: Any, /, *, name: str) -> Any:
                await super().write(work, name=name)
                return await super().write(work, name=name)

        store = Twice(here.store)
        assert await here.run(id, store=store) == "completed"
        assert "flush" in store.names
        ids = [event.id for event in await here.events()]
        assert len(ids) == len(set(ids))
        assert await here.statuses() == ["processing", "completed"]
        snapshots = await here.store.read(lambda tx: tx.snapshots(id))
        assert [it.step_number for it in snapshots] == [0, 1, 2]


async def test_a_crash_after_a_flush_does_not_tell_twice_that_it_is_processed(
    tmp_path: Path,
) -> None:
    held, look = Held(), MockTool.returning("look", "trees")
    agent = Agent(
        ScriptedModel(
            lambda request: (
                "Trees."
                if any(message.is_tool() for message in request.messages)
                else call("look", id="l")
            )
        ),
        tools=[look],
        hooks=[held.hook],
    )
    async with world(tmp_path, agent, settings=SessionSettings(flush_seconds=0.01)) as here:
        id = await here.send("go")
        held.until_stored(here, id, "trees")
        store = CrashingStore(here.store)
        store.crash_at("step")
        with pytest.raises(Crash):
            await here.run(id, store=store)
        held.let_go()
        assert await here.statuses() == ["processing"]
        assert await here.run(id, dead=True) == "completed"
        assert await here.statuses() == ["processing", "completed"]


async def test_a_deadline_while_an_intent_is_stored_runs_no_tool_and_ends_the_run(
    tmp_path: Path,
) -> None:
    pay = MockTool.returning("pay", "paid")
    agent = Agent(ScriptedModel([call("pay", id="p"), "Paid."]), tools=[pay], timeout=1.0)
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")

        class Slow(CrashingStore):
            async def write(self, work: Any, /, *, name: str) -> Any:
                if name == "intent":
                    await asyncio.sleep(1.5)
                return await super().write(work, name=name)

        store = Slow(here.store)
        status = await here.run(id, store=store)
        row = await here.execution(id)
        assert row.status == status
        assert status.is_terminal
        assert store.names[0] == "intent"
        assert pay.calls == []
        assert not any("not known" in text for text in await here.texts("notification"))
        assert await here.statuses() == ["processing", str(status)]
        assert await here.store.read(lambda tx: tx.intent(id)) is None

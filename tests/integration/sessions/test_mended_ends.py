"""Every end leaves the same: messages nobody saw are answered, subagents end, one last status."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.sessions.attempt.runner import RunControl, Runner
from stepwell.sessions.endings.end import EndDeps
from stepwell.sessions.endings.outside import mark_failed
from stepwell.sessions.errors import ConflictError
from stepwell.sessions.ids import derived_id
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import SessionStatus, WhenBusy
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.settings import SessionSettings
from stepwell.testing import ScriptedModel, call
from tests.integration.sessions.front_desk import FrontDesk, desk_at
from tests.integration.sessions.test_subagents import children, parent
from tests.integration.sessions.world import CLOCK, Crash, CrashingStore, World, world

QUICK = SessionSettings(flush_seconds=5.0)


class Interrupted:
    """A store before whose write of one name something happens."""

    def __init__(self, desk: FrontDesk, at: str, happens: Any) -> None:
        self._store, self._at, self._happens = desk.store, at, happens
        self.bus = desk.store.bus

    async def read(self, work: Any, /) -> Any:
        return await self._store.read(work)

    async def write(self, work: Any, /, *, name: str) -> Any:
        if name == self._at:
            self._at = ""
            await self._happens()
        return await self._store.write(work, name=name)

    async def close(self) -> None:
        pass


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with desk_at(tmp_path / "s.db", flush_seconds=5.0, max_crashes=1) as desk:
        yield desk


async def steered_at(desk: FrontDesk, text: str, at: str, *, closes: bool = False) -> str:
    """A run in which a message comes too late to be seen; its session's id."""
    session = await desk.begin(WhenBusy.STEER)
    sent = await desk.send(text, session.id)
    assert sent.execution is not None

    async def happens() -> None:
        late = await desk.send("too late", session.id)
        assert late.execution is None
        if closes:
            await desk.lifecycle.change_session(session.id, status=SessionStatus.CLOSED)

    claimed = await desk.claim(sent.execution.id)
    assert claimed is not None
    store = Interrupted(desk, at, happens)
    await Runner(store, desk.jobs, desk.agents, settings=desk.settings).run(claimed, RunControl())
    return session.id


async def assert_the_late_message_is_next(desk: FrontDesk, session_id: str) -> None:
    [own] = await desk.unfinished(session_id)
    assert own.status == "pending"
    assert own.id in desk.jobs.enqueued
    assert await desk.run(own.id) == "completed"
    assert "assistant: Answer to too late" in await desk.contents(session_id)


async def test_an_unseen_message_is_answered_after_a_paused_execution_is_cancelled(
    desk: FrontDesk,
) -> None:
    session_id = await steered_at(desk, "ask", "pause")
    [paused] = await desk.unfinished(session_id)
    assert (await desk.lifecycle.cancel(paused.id)).status == "cancelled"
    await assert_the_late_message_is_next(desk, session_id)


async def test_an_unseen_message_is_answered_after_its_execution_broke(
    desk: FrontDesk,
) -> None:
    session = await desk.begin(WhenBusy.STEER)
    sent = await desk.send("add", session.id)
    assert sent.execution is not None
    claimed = await desk.claim(sent.execution.id)
    assert claimed is not None
    await desk.send("too late", session.id)
    deps = EndDeps(jobs=desk.jobs, clock=desk.clock, settings=desk.settings)
    assert await desk.store.write(lambda tx: mark_failed(tx, claimed, "e1", deps), name="fail")
    await assert_the_late_message_is_next(desk, session.id)


@pytest.mark.parametrize(("text", "at"), [("add", "finish"), ("ask", "pause")])
async def test_a_session_that_was_closed_runs_nothing_more_and_says_so(
    desk: FrontDesk, text: str, at: str
) -> None:
    session_id = await steered_at(desk, text, at, closes=True)
    assert await desk.unfinished(session_id) == []
    told = [it for it in await desk.contents(session_id) if "not answered" in it]
    assert told == ["notification: 1 of your messages was not answered: the session was closed."]


async def test_closing_a_session_with_a_paused_execution_starts_nothing(desk: FrontDesk) -> None:
    session_id = await steered_at(desk, "ask", "pause")
    await desk.lifecycle.change_session(session_id, status=SessionStatus.CLOSED)
    assert await desk.unfinished(session_id) == []
    assert (await desk.session(session_id)).status == "closed"
    assert any("not answered" in it for it in await desk.contents(session_id))


async def test_a_broken_execution_is_explained_as_any_other(desk: FrontDesk) -> None:
    sent = await desk.sent_and_run("add")
    broken = await desk.send("add", sent.session.id)
    assert broken.execution is not None
    claimed = await desk.claim(broken.execution.id)
    assert claimed is not None
    deps = EndDeps(jobs=desk.jobs, clock=desk.clock, settings=desk.settings)
    await desk.store.write(lambda tx: mark_failed(tx, claimed, "e1", deps), name="fail")
    row = await desk.execution(claimed.id)
    assert row.decision is not None
    assert row.decision["stop_reason"] == row.stop_reason == "error"
    agents = {
        event.payload["agent_id"]
        for event in await desk.events(sent.session.id)
        if event.type == "agent.status"
    }
    assert agents == {derived_id(sent.session.id, "agent")}


async def test_without_statuses_no_end_tells_one(tmp_path: Path) -> None:
    quiet = SessionSettings(
        flush_seconds=5.0, broadcast=BroadcastConfig(auto_status_tracking=False)
    )
    agent = Agent(ScriptedModel([call("nothing", id="n"), "Done."]))
    async with world(tmp_path, agent, settings=quiet) as here:
        first, second, third = [await here.send(text) for text in "abc"]
        lifecycle = Lifecycle(here.store, here.jobs, here.agents, settings=quiet)
        await lifecycle.cancel(third)
        claimed = await here.claim(first)
        deps = EndDeps(jobs=here.jobs, clock=CLOCK, settings=quiet)
        await here.store.write(lambda tx: mark_failed(tx, claimed, "e1", deps), name="fail")
        await lifecycle.cancel(second)
        assert await here.events("agent.status") == []


# Subagents


async def statuses_of(here: World, id: str) -> list[str]:
    events = await here.events("agent.status")
    return [event.payload["status"] for event in events if event.execution_id == id]


async def test_a_subagent_that_waits_ends_with_its_parent_for_clients_too(tmp_path: Path) -> None:
    agent, _ = parent(call("user_input", id="q", question="Which wood?"), "The dark one.")
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")
        assert await here.run(id) == "paused"
        await Lifecycle(here.store, here.jobs, here.agents).cancel(id)
        [child] = await children(here, id)
        assert (child.status, child.pending) == ("cancelled", ())
        assert child.decision is not None
        assert await statuses_of(here, child.id) == ["processing", "paused", "cancelled"]
        [last] = [
            event.payload
            for event in await here.events("agent.status")
            if event.execution_id == child.id and event.payload["status"] == "cancelled"
        ]
        assert last["parent_execution_id"] == id
        told = {
            event.payload["agent_id"]
            for event in await here.events("agent.status")
            if event.execution_id == child.id
        }
        assert told == {last["agent_id"]}


@pytest.mark.parametrize("after", [False, True])
async def test_each_subagent_has_one_last_status_wherever_its_worker_dies(
    tmp_path: Path, after: bool
) -> None:
    for at in range(1, 20):
        folder = tmp_path / str(at)
        folder.mkdir()
        agent, _ = parent(call("look", id="l"), "Trees.")
        async with world(folder, agent, settings=QUICK) as here:
            id = await here.send("go")
            store = CrashingStore(here.store, at=at, after=after)
            try:
                await here.run(id, store=store)
            except Crash:
                if (await here.execution(id)).status == "running":
                    await here.run(id, dead=True)
            for child in await children(here, id):
                statuses = await statuses_of(here, child.id)
                assert statuses[-1:] == [str(child.status)], (at, store.names)
                assert statuses.count(str(child.status)) == 1
            if len(store.names) < at:
                return
    raise AssertionError("the run has more writes than expected")


@pytest.mark.parametrize("wish", ["cancel", "answer", "resume", "fork"])
async def test_a_subagent_is_changed_through_its_root_only(tmp_path: Path, wish: str) -> None:
    agent, _ = parent(call("user_input", id="q", question="Which wood?"), "The dark one.")
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")
        await here.run(id)
        [child] = await children(here, id)
        lifecycle = Lifecycle(here.store, here.jobs, here.agents)
        before = await here.session(), await here.events()
        wishes: dict[str, Callable[[], Awaitable[Any]]] = {
            "cancel": lambda: lifecycle.cancel(child.id),
            "answer": lambda: lifecycle.answer(child.id, "q", "dark"),
            "resume": lambda: lifecycle.resume(child.id, steps=1),
            "fork": lambda: lifecycle.fork(Principal(user_id="ada"), child.id, message="go on"),
        }
        with pytest.raises(ConflictError, match=id) as refused:
            await wishes[wish]()
        assert refused.value.code == "subagent"
        assert (await here.session(), await here.events()) == before

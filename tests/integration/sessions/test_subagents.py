"""Subagents are executions of their own, with a parent, a result and a snapshot."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.capabilities.subagents import UseSubagents
from stepwell.capabilities.user_input import UseUserInput
from stepwell.models import ModelRequest
from stepwell.sessions.records import Execution
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.reader import Reader
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import MockTool, ScriptedModel, call
from tests.integration.sessions.world import Crash, CrashingStore, World, world

QUICK = SessionSettings(flush_seconds=5.0)
SPAWN = call("spawn_subagent", id="s", subagent="scout", prompt="Look around.")


def parent(*childs_turns: Any) -> tuple[Agent, MockTool]:
    """An agent that spawns a scout, whose turns these are."""
    tool = MockTool.returning("look", "trees")

    def turn(request: ModelRequest) -> Any:
        said = [message for message in request.messages if message.is_user()]
        done = sum(1 for message in request.messages if message.is_assistant())
        if said[0].text == "Look around.":
            return childs_turns[done]
        return [SPAWN, "The scout saw trees."][done]

    registry = AgentRegistry().register(
        AgentSpec(name="scout", description="Looks.", system_prompt="You look.")
    )
    capabilities = [UseSubagents(registry), UseUserInput()]
    return Agent(ScriptedModel(turn), tools=[tool], capabilities=capabilities), tool


async def children(here: World, id: str) -> list[Execution]:
    return list(await here.store.read(lambda tx: tx.executions(parent_execution_id=id)))


async def test_a_subagent_is_an_execution_with_parent_result_and_snapshot(tmp_path: Path) -> None:
    agent, _ = parent(call("look", id="l"), "Trees.")
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")
        assert await here.run(id) == "completed"
        [child] = await children(here, id)
        assert (child.status, child.output, child.agent_type) == ("completed", "Trees.", "scout")
        assert (child.step_count, child.token_usage, child.session_id) == (2, 30, here.session_id)
        assert child.input["prompt"] == "Look around."
        assert child.last_snapshot_id is not None
        snapshot = await here.store.read(lambda tx: tx.snapshot(child.last_snapshot_id or ""))
        assert snapshot is not None
        assert snapshot.is_final
        assert snapshot.is_whole
        parents = await here.store.read(lambda tx: tx.snapshots(id))
        assert snapshot.parent_snapshot_id in [it.id for it in parents]
        state = await Reader(here.store).state_of(snapshot.id)
        assert state.execution is not None
        assert state.execution.id == child.id
        assert (await here.execution(id)).token_usage == 60
        live = [e.payload for e in await here.events("agent.status") if e.execution_id == child.id]
        assert [payload["status"] for payload in live] == ["processing", "completed"]
        assert {payload["parent_execution_id"] for payload in live} == {id}
        call_ids = {payload["parent_tool_call_id"] for payload in live}
        assert call_ids == {child.metadata["parent_tool_call_id"]}


async def test_a_subagent_that_waits_is_paused_with_its_parent_and_goes_on(tmp_path: Path) -> None:
    agent, _ = parent(call("user_input", id="q", question="Which wood?"), "The dark one.")
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")
        assert await here.run(id) == "paused"
        [child] = await children(here, id)
        assert child.status == "paused"
        assert child.pending[0]["call_id"] == "q"
        assert child.last_snapshot_id is not None
        [asked] = (await here.execution(id)).questions
        lifecycle = Lifecycle(here.store, here.jobs, here.agents)
        await lifecycle.answer(id, asked["question_id"], "the dark one")
        assert await here.run(id) == "completed"
        [child] = await children(here, id)
        assert (child.status, child.output) == ("completed", "The dark one.")


@pytest.mark.parametrize("at", range(2, 6))
async def test_after_a_crash_no_subagent_is_left_running_and_none_is_repeated(
    tmp_path: Path, at: int
) -> None:
    agent, _ = parent(call("look", id="l"), "Trees.")
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")
        store = CrashingStore(here.store, at=at)
        with pytest.raises(Crash):
            await here.run(id, store=store)
        assert await here.run(id, dead=True) == "completed"
        rows = await children(here, id)
        assert all(row.status.is_terminal for row in rows)
        assert len(rows) <= 1
        assert await here.texts("assistant") == ["The scout saw trees."]


NESTED: dict[str, list[Any]] = {
    "go": [SPAWN, "The scout saw trees."],
    "Look around.": [
        call("spawn_subagent", id="b", subagent="beetle", prompt="Look below."),
        "Trees, and roots.",
    ],
    "Look below.": [call("look", id="l"), "Roots."],
}


def nested() -> Agent:
    """An agent whose scout spawns a beetle."""

    def turn(request: ModelRequest) -> Any:
        asked = next(message.text for message in request.messages if message.is_user())
        done = sum(1 for message in request.messages if message.is_assistant())
        return NESTED[asked][done]

    registry = AgentRegistry()
    for name in ("scout", "beetle"):
        registry = registry.register(
            AgentSpec(name=name, description="Looks.", system_prompt="You look.")
        )
    tools = [MockTool.returning("look", "roots")]
    return Agent(ScriptedModel(turn), tools=tools, capabilities=[UseSubagents(registry)])


async def test_the_snapshots_of_a_subagents_subagent_point_to_their_own_parent(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, nested(), settings=QUICK) as here:
        id = await here.send("go")
        assert await here.run(id) == "completed"
        [scout] = await children(here, id)
        [beetle] = await children(here, scout.id)
        owners: list[set[str]] = []
        for execution in (scout, beetle):
            snapshots = await here.store.read(lambda tx, id=execution.id: tx.snapshots(id))
            assert [it.is_final for it in snapshots] == [False, True]
            parents = [
                await here.store.read(lambda tx, id=it.parent_snapshot_id or "": tx.snapshot(id))
                for it in snapshots
            ]
            owners.append({it.agent_execution_id for it in parents if it is not None})
        assert owners == [{id}, {scout.id}]


async def test_usage_of_a_tree_is_the_sum_over_executions_without_a_parent(tmp_path: Path) -> None:
    async with world(tmp_path, nested(), settings=QUICK) as here:
        id = await here.send("go")
        await here.run(id)
        root = await here.execution(id)
        [scout] = await children(here, id)
        [beetle] = await children(here, scout.id)
        # Two turns of 15 tokens each; a parent counts what its subagents spent.
        assert [it.token_usage for it in (beetle, scout, root)] == [30, 60, 90]
        with closing(sqlite3.connect(tmp_path / "stepwell.db")) as file:
            [(total,)] = file.execute(
                "SELECT sum(token_usage) FROM agent_executions WHERE parent_execution_id IS NULL"
            )
        assert total == 90

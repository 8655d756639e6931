"""Recovery where it is hard: decisions written as text, secrets that are gone, tools that are gone,
an execution that was set aside."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import json
from pydantic import SecretStr

from stepwell.agent import Agent
from stepwell.drivers import ReActDriver
from stepwell.messages import ToolCall
from stepwell.models import ModelRequest, ModelResponse
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.settings import SessionSettings
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools import FunctionTool
from tests.integration.sessions.databases import rows_as_text
from tests.integration.sessions.tried import (
    QUICK,
    Held,
    Tried,
    conversation,
    died_with_stored_results,
)
from tests.integration.sessions.world import Crash, CrashingStore, World, world


def decision(tool: str, **args: Any) -> str:
    return json.encode({"thought": "", "type": "call_tool", "tool": tool, "args": args}).decode()


def by_turn(*turns: Any) -> ScriptedModel:
    def turn(request: ModelRequest) -> Any:
        return turns[sum(1 for message in request.messages if message.is_assistant())]

    return ScriptedModel(turn)


async def results(here: World) -> list[str]:
    return [part.content for _, role, [part, *_] in await conversation(here) if role == "tool"]


async def test_a_decision_written_as_text_is_kept_as_well(tmp_path: Path) -> None:
    final = json.encode({"type": "final_answer", "answer": "Paid."}).decode()
    model = by_turn(decision("pay", to="ada"), final)
    pay, held = MockTool.returning("pay", "receipt 7"), Held()
    agent = Agent(driver=ReActDriver(model), tools=[pay], hooks=[held.hook])
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")
        await died_with_stored_results(here, held, id, "receipt 7")
        assert await here.run(id, dead=True) == "completed"
        assert (await here.execution(id)).output == "Paid."
        assert len(pay.calls) == 1
        assert len(model.requests) == 2
        assert await results(here) == ["receipt 7"]


class Guarded:
    """An agent whose external tool takes a secret."""

    def __init__(self, *, react: bool) -> None:
        self.runs = 0
        self.held = Held()

        def login(name: str, password: SecretStr) -> str:
            "Log in."
            self.runs += 1
            return f"{name} is in"

        arguments = {"name": "ada", "password": "hunter2-secret"}
        made = ToolCall(id="l", name="login", arguments=arguments)
        tools = [FunctionTool(login)]
        if react:
            final = json.encode({"type": "final_answer", "answer": "In."}).decode()
            driver = ReActDriver(by_turn(decision("login", **arguments), final))
            self.agent = Agent(driver=driver, tools=tools, hooks=[self.held.hook])
        else:
            first = ModelResponse(text="With hunter2-secret.", tool_calls=(made,))
            self.agent = Agent(by_turn(first, "In."), tools=tools, hooks=[self.held.hook])


@pytest.mark.parametrize("react", [False, True], ids=["native", "react"])
@pytest.mark.parametrize(("is_stored", "said"), [(False, "may or may not"), (True, "ada is in")])
async def test_a_call_whose_secret_is_gone_is_not_repeated(
    tmp_path: Path, react: bool, is_stored: bool, said: str
) -> None:
    guarded = Guarded(react=react)
    async with world(tmp_path, guarded.agent, settings=QUICK) as here:
        id = await here.send("go")
        if is_stored:
            await died_with_stored_results(here, guarded.held, id, "ada is in")
        else:
            with pytest.raises(Crash):
                await here.run(id, store=CrashingStore(here.store, at=2))
        dump = "\n".join(rows_as_text(tmp_path / "stepwell.db"))
        assert "hunter2" not in dump
        assert "agent_step_intents" in dump
        assert await here.run(id, dead=True) == "completed"
        assert guarded.runs == 1
        [result] = await results(here)
        assert said in result


async def test_a_call_whose_tool_is_gone_is_told_as_unknown(tmp_path: Path) -> None:
    tried = Tried(([call("pay", id="p", at="x")], "I will see."))
    async with world(tmp_path, tried.agent, settings=QUICK) as here:
        id = await here.send("go")
        with pytest.raises(Crash):
            await here.run(id, store=CrashingStore(here.store, at=2))
        without = AgentDirectory({"helper": Agent(by_turn("", "I will see."))})
        assert await here.run(id, dead=True, agents=without) == "completed"
        [result] = await results(here)
        assert "may or may not have taken effect" in result


async def test_a_result_that_json_cannot_hold_is_kept_as_its_text(tmp_path: Path) -> None:
    pay, held = MockTool.returning("pay", float("inf")), Held()
    agent = Agent(by_turn(call("pay", id="p"), "Paid."), tools=[pay], hooks=[held.hook])
    async with world(tmp_path, agent, settings=QUICK) as here:
        id = await here.send("go")
        await died_with_stored_results(here, held, id, "completed_at")
        await here.run(id, dead=True)
        assert len(pay.calls) == 1
        assert "may or may not" not in str(await results(here))


async def test_what_was_set_aside_can_be_taken_up_again(tmp_path: Path) -> None:
    tried = Tried(([call("pay", id="p", at="x")], "Paid."))
    dies_at_once = SessionSettings(flush_seconds=5.0, max_crashes=1)
    async with world(tmp_path, tried.agent, settings=dies_at_once) as here:
        id = await here.send("go")
        with pytest.raises(Crash):
            await here.run(id, store=CrashingStore(here.store, at=2))
        assert await here.run(id, dead=True) == "failed"
        await Lifecycle(here.store, here.jobs, here.agents).resume(id)
        assert await here.run(id) == "completed"
        row = await here.execution(id)
        assert row.output == "Paid."
        assert "set_aside" not in row.metadata
        assert tried.times("pay") == 1
        statuses = [
            e.payload["status"] for e in await here.events("agent.status") if e.execution_id == id
        ]
        assert statuses == ["failed", "processing", "completed"]

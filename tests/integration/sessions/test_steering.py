"""A message sent to a running execution is seen before its next step, and never lost."""

from pathlib import Path
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.models import ModelRequest
from stepwell.sessions.settings import SessionSettings
from stepwell.testing import MockTool, ScriptedModel, call
from tests.integration.sessions.world import Crash, CrashingStore, World, world

QUICK = SessionSettings(flush_seconds=5.0)


class Steered:
    """An agent whose tool is when somebody writes to it."""

    def __init__(self, *turns: Any) -> None:
        self.here: World | None = None
        self.id = ""
        self.texts = ["Rather the blue one."]
        self.model = ScriptedModel(self._turn)
        self._turns = turns
        self.agent = Agent(self.model, tools=[MockTool("look", self._look)])

    def _turn(self, request: ModelRequest) -> Any:
        return self._turns[sum(1 for message in request.messages if message.is_assistant())]

    async def _look(self, **_: Any) -> str:
        assert self.here is not None
        if self.texts:
            await self.here.send(self.texts.pop(0), steers=self.id)
        return "seen"


async def test_the_running_loop_sees_it_before_its_next_step(tmp_path: Path) -> None:
    steered = Steered(call("look", id="1"), call("look", id="2"), "Blue.")
    async with world(tmp_path, steered.agent, settings=QUICK) as here:
        steered.here, steered.id = here, await here.send("Find the red one.")
        assert await here.run(steered.id) == "completed"
        said = [m.text for m in steered.model.requests[1].messages if m.is_user()]
        assert said == ["Find the red one.", "Rather the blue one."]
        later = [m.text for m in steered.model.requests[2].messages if m.is_user()]
        assert later == said
        assert here.jobs.ids == []


async def test_one_that_came_too_late_gets_an_execution_of_its_own(tmp_path: Path) -> None:
    model = ScriptedModel(["Red.", "Blue."])
    async with world(tmp_path, Agent(model), settings=QUICK) as here:
        id = await here.send("Find the red one.")

        class Late(CrashingStore):
            async def write(self, work: Any, /, *, name: str) -> Any:
                if name == "finish":
                    await here.send("Rather the blue one.", steers=id)
                return await super().write(work, name=name)

        assert await here.run(id, store=Late(here.store)) == "completed"
        [next_id] = here.jobs.ids
        assert (await here.texts())[-1] == "Execution queued"
        queued = [e.seq for e in await here.events() if e.execution_id == next_id]
        assert (await here.execution(next_id)).metadata["first_seq"] <= min(queued)
        assert await here.run(next_id) == "completed"
        assert await here.texts("assistant") == ["Red.", "Blue."]
        assert model.requests[1].messages[-1].text == "Rather the blue one."


@pytest.mark.parametrize("at", range(2, 6))
async def test_it_is_seen_once_also_after_a_crash(tmp_path: Path, at: int) -> None:
    steered = Steered(call("look", id="1"), call("look", id="2"), "Blue.")
    async with world(tmp_path, steered.agent, settings=QUICK) as here:
        steered.here, steered.id = here, await here.send("Find the red one.")
        with pytest.raises(Crash):
            await here.run(steered.id, store=CrashingStore(here.store, at=at))
        assert await here.run(steered.id, dead=True) == "completed"
        said = [m.text for m in steered.model.requests[-1].messages if m.is_user()]
        assert said == ["Find the red one.", "Rather the blue one."]

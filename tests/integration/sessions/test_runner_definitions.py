"""The hash of a definition is the same wherever it is made: workers compare it. And a session goes
on with the definition that its agent has now."""

import subprocess
import sys
from pathlib import Path

from stepwell.agent import Agent
from stepwell.testing import ScriptedModel
from tests.integration.sessions.front_desk import desk_at

PROGRAM = """
from enum import Enum
from typing import Literal
from stepwell.agent import Agent
from stepwell.sessions.directory import AgentDirectory
from stepwell.testing import ScriptedModel
def pick(color: Literal["red", "blue"], sizes: set[int]) -> str:
    "Pick one."
    return color
made = Agent(ScriptedModel(["x"]), tools=[pick], stop_on_finish_reasons={"length", "error"})
print(AgentDirectory({"x": made}).get("x").definition_hash)
"""


def test_the_hash_is_the_same_in_every_process() -> None:
    hashes = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(hashes) == 1


async def test_b125_a_message_after_the_model_was_changed_is_answered_by_the_new_one(
    tmp_path: Path,
) -> None:
    """B125: a session has the model of its agent, so that is where it is changed."""
    old, new = ScriptedModel(["One."], name="old"), ScriptedModel(["Two."], name="new")
    async with desk_at(tmp_path / "a.db", {"helper": Agent(old)}) as desk:
        first = await desk.sent_and_run("First")
    async with desk_at(tmp_path / "a.db", {"helper": Agent(new)}) as desk:
        second = await desk.sent_and_run("Second", first.session.id)
        assert second.execution is not None
        row = await desk.execution(second.execution.id)
    assert (len(old.requests), len(new.requests)) == (1, 1)
    assert [message.text for message in new.requests[0].messages] == ["First", "One.", "Second"]
    assert (row.status, row.output, row.agent_config["model"]) == ("completed", "Two.", "new")

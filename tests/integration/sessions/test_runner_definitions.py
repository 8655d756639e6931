"""The hash of a definition is the same wherever it is made: workers compare it."""

import subprocess
import sys

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

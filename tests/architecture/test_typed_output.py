"""Type checkers know the type of a run's output."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from dataclasses import dataclass
from typing import Any, assert_type

from stepwell import Agent, AgentState
from stepwell.testing import ScriptedModel


@dataclass
class Weather:
    degrees: float


class Database: ...


async def main() -> None:
    model = ScriptedModel(["{}"])
    state = await Agent(model, output_type=Weather).run("How warm is it?")
    assert_type(state, AgentState[Weather])
    assert_type(state.output, Weather | None)
    assert_type(state.unwrap(), Weather)
    assert_type((await Agent(model, output_type=list[int]).run("Count.")).unwrap(), list[int])
    assert_type((await Agent(model).run("Hello")).unwrap(), Any)
    agent: Agent[Database, Weather] = Agent(model, output_type=Weather)
    assert_type(await agent.run("How warm is it?", deps=Database()), AgentState[Weather])
    await agent.run("How warm is it?", deps=3)  # pyright: ignore[reportArgumentType]
"""


@pytest.mark.slow
def test_pyright_knows_the_type_of_the_output(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text(
        '{"strict": ["."], "reportUnnecessaryTypeIgnoreComment": "error"}'
    )
    pyright = Path(sys.executable).with_name("pyright")
    command = [pyright, "--project", tmp_path, "--pythonpath", sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout

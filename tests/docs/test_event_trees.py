"""The event trees printed in the docs are what real runs emit."""

import re
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, InputRequired, make_hook
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "events.md"
TREE = re.compile(r"<!-- run: ([\w-]+) -->\n```text\n(.*?)```", re.DOTALL)
TREES = dict(TREE.findall(PAGE.read_text(encoding="utf-8")))


def agent_for(tool: MockTool, **options: Any) -> Agent:
    return Agent(ScriptedModel([call(tool.schema.name), "Done."]), tools=[tool], **options)


def raises(_context: Any) -> None:
    raise ValueError("broken")


AGENTS = {
    "one-tool": lambda: agent_for(MockTool.returning("ping", "pong")),
    "tool-error": lambda: agent_for(MockTool.raising("ping", ValueError("boom"))),
    "blocked": lambda: agent_for(
        MockTool.returning("ping", "pong"),
        hooks=[make_hook("before_tool", lambda context: context.block("not now"))],
    ),
    "no-step": lambda: agent_for(MockTool.returning("ping", "pong"), max_steps=0),
    "before-step-hook-raises": lambda: agent_for(
        MockTool.returning("ping", "pong"), hooks=[make_hook("before_step", raises)]
    ),
    "input-required": lambda: agent_for(
        MockTool.returning("ping", InputRequired(prompt="Which one?"))
    ),
}


def test_every_tree_has_a_run() -> None:
    assert set(TREES) == set(AGENTS)


@pytest.mark.parametrize("name", AGENTS)
async def test_tree_is_what_a_run_emits(name: str) -> None:
    agent = AGENTS[name]()
    recorder = EventRecorder()
    agent.wiretap(recorder)
    await agent.run("Go.")
    assert recorder.names == [line.lstrip("│├└─ ") for line in TREES[name].splitlines()]

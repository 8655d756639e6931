"""What is told of a subagent that is about to run."""

import pytest

from stepwell import Agent, AgentRegistry, AgentSpec, UseSubagents
from stepwell.events import SubagentSpawning
from stepwell.testing import EventRecorder, ScriptedModel, call


@pytest.mark.parametrize("length", [99, 100, 101, 5000])
async def test_b138_a_spawning_event_tells_the_first_100_characters_of_the_prompt(
    length: int,
) -> None:
    prompt = ("é" * length)[:-1] + "."
    poet = AgentSpec(name="poet", description="Writes.", system_prompt="You write.")
    model = ScriptedModel([call("spawn_subagent", subagent="poet", prompt=prompt), "A.", "B."])
    agent, events = (
        Agent(model, capabilities=[UseSubagents(AgentRegistry([poet]))]),
        EventRecorder(),
    )
    agent.on_event(SubagentSpawning, events)
    await agent.run("Go")

    (spawning,) = events.of(SubagentSpawning)
    assert spawning.prompt == prompt[:100]
    assert model.requests[1].messages[-1].text == prompt

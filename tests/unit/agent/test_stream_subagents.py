"""A run's tap hears its subagents; ``stream()`` tells the run's own text and tools alone."""

from stepwell import Agent, AgentRegistry, AgentSpec, TextDelta, ToolStarted, UseSubagents
from stepwell.events import AgentEvent, AgentFinished, StreamEventReceived
from stepwell.testing import ScriptedModel, call


def agent() -> Agent:
    reader = AgentSpec(name="reader", description="Reads.", system_prompt="You read.")
    script = [
        call("spawn_subagent", subagent="reader", prompt="Read."),
        "child's words",
        "own words",
    ]
    return Agent(ScriptedModel(script), capabilities=[UseSubagents(AgentRegistry([reader]))])


async def test_the_stream_has_no_words_of_a_subagent() -> None:
    parts = [part async for part in agent().stream("go")]
    assert "".join(part.text for part in parts if isinstance(part, TextDelta)) == "own words"
    assert [part.tool for part in parts if isinstance(part, ToolStarted)] == ["spawn_subagent"]


async def test_a_tap_hears_the_run_and_its_subagents_and_no_other_run() -> None:
    heard: list[AgentEvent] = []
    spawning = agent()
    state = spawning.new_state("go")
    async for _ in spawning.loop.iterator(state, tap=heard.append):
        pass
    words = {
        event.agent_id == state.agent_id: "" for event in heard if isinstance(event, AgentFinished)
    }
    for event in heard:
        if isinstance(event, StreamEventReceived):
            words[event.agent_id == state.agent_id] += event.content
    assert words == {True: "own words", False: "child's words"}

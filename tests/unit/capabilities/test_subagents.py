"""Subagents: who can be spawned, what they see, what comes back, and what is told of them."""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stepwell import Agent, AgentState, AgentStatus, make_hook
from stepwell.capabilities.subagents import SubagentPolicy, UseSubagents
from stepwell.events import (
    AgentFinished,
    AgentStepStarted,
    EventBus,
    SubagentCompleted,
    SubagentSpawning,
)
from stepwell.messages import Usage
from stepwell.models import ModelRequest, TextDelta
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import Budget, ToolOutcome
from stepwell.testing import (
    DeterministicAgentDriver,
    EventRecorder,
    MockTool,
    ScenarioStep,
    ScriptedModel,
    call,
)

Turns = Sequence[Any] | Callable[[ModelRequest], Any]


def speaker(request: ModelRequest) -> str:
    return request.context.messages[-1].text


def by_agent(turns: Mapping[str, Turns], **parts: Any) -> ScriptedModel:
    """A model for several agents, known by their prompts; each says its turns in order."""

    def turn(request: ModelRequest) -> Any:
        own = turns[speaker(request)]
        if callable(own):
            return own(request)
        return own[sum(message.is_assistant() for message in request.messages)]

    return ScriptedModel(turn, **parts)


def spec(name: str = "critic", **parts: Any) -> AgentSpec:
    return AgentSpec(name=name, description=f"The {name}.", system_prompt=name, **parts)


def spawn(name: str = "critic", id: str = "s1", prompt: str = "Judge it") -> Any:
    return call("spawn_subagent", id=id, subagent=name, prompt=prompt)


def agent_of(
    turns: Mapping[str, Turns],
    *specs: AgentSpec,
    policy: SubagentPolicy | None = None,
    capabilities: Sequence[Any] = (),
    model: Mapping[str, Any] | None = None,
    **parts: Any,
) -> tuple[Agent, ScriptedModel]:
    scripted = by_agent({"main": [spawn(), "Done."], **turns}, **(model or {}))
    registry = AgentRegistry(specs or [spec()])
    given = [*capabilities, UseSubagents(registry, policy)]
    return Agent(scripted, system_prompt="main", capabilities=given, **parts), scripted


def result(state: AgentState, call_id: str = "s1") -> str:
    results = [m.tool_result for m in state.messages if m.tool_result is not None]
    return next(r.content for r in results if r.call_id == call_id)


async def test_b178_the_answer_of_the_child_is_the_result_of_the_call() -> None:
    agent, _ = agent_of({"critic": ["It is good."]})
    state = await agent.run("Go")

    assert (result(state), state.final_response) == ("It is good.", "Done.")
    execution = state.steps[0].step.tool_executions[0]
    assert (execution.value, execution.outcome) == ("It is good.", ToolOutcome.COMPLETED)


async def test_b178_neither_sees_the_conversation_of_the_other() -> None:
    look = MockTool.returning("look", "inner result")
    agent, model = agent_of({"critic": [call("look", id="k1"), "Verdict."]}, tools=[look])
    state = await agent.run("A private matter")

    of_child = [r for r in model.requests if speaker(r) == "critic"]
    seen = [m.text for r in of_child for m in (*r.context.messages, *r.messages)]
    assert "A private matter" not in seen
    assert [m.text for m in of_child[0].messages] == ["Judge it"]
    assert [m.text for m in state.messages] == ["A private matter", "", "Verdict.", "Done."]
    assert len(state.steps) == 2


async def test_metadata_of_the_parent_stays_with_it_but_for_the_active_skill() -> None:
    seen: list[Mapping[str, Any]] = []

    def look(context: Any) -> None:
        seen.append(dict(context.state.metadata))

    agent, _ = agent_of(
        {"critic": [call("look"), "Fine."]},
        tools=[MockTool.returning("look", "x")],
        hooks=[make_hook("before_tool", look)],
    )
    begun = agent.new_state("Go").with_metadata({"active_skill": {"name": "pdf"}, "own": 1})
    state = await agent.run(begun)

    assert seen == [{"active_skill": {"name": "pdf"}, "own": 1}, {"active_skill": {"name": "pdf"}}]
    assert state.metadata == {"active_skill": {"name": "pdf"}, "own": 1}


async def test_b176_an_unknown_name_is_a_failure_that_lists_the_known() -> None:
    agent, model = agent_of(
        {"main": [spawn("judge"), "Done."], "critic": []}, spec(), spec("writer")
    )
    state = await agent.run("Go")

    assert result(state) == "Error: there is no subagent 'judge'; available: critic, writer"
    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.FAILED
    assert len(model.requests) == 2
    assert not state.had_errors


async def test_an_empty_prompt_is_a_failure() -> None:
    agent, model = agent_of({"main": [spawn(prompt=" \n"), "Done."]})
    assert "prompt is empty" in result(await agent.run("Go"))
    assert len(model.requests) == 2


@pytest.mark.parametrize("silence", ["", "  \n"])
async def test_b179_a_child_without_an_answer_is_flagged(silence: str) -> None:
    agent, _ = agent_of({"critic": [silence]})
    state = await agent.run("Go")

    assert result(state) == "(The subagent gave no final response.)"
    assert state.status is AgentStatus.COMPLETED


async def test_a_long_answer_is_cut_and_says_so() -> None:
    agent, _ = agent_of({"critic": ["x" * 101]}, policy=SubagentPolicy(summary_max_chars=100))
    assert result(await agent.run("Go")) == "x" * 100 + "... [1 more character]"
    agent, _ = agent_of({"critic": ["x" * 100]}, policy=SubagentPolicy(summary_max_chars=100))
    assert result(await agent.run("Go")) == "x" * 100


async def test_b185_a_child_that_fails_is_a_failed_call_with_its_error() -> None:
    agent, _ = agent_of({"critic": lambda _: RuntimeError("the wire is cut")})
    state = await agent.run("Go")

    execution = state.steps[0].step.tool_executions[0]
    assert execution.outcome is ToolOutcome.FAILED
    assert "subagent 'critic' failed" in execution.text
    assert "the wire is cut" in execution.text
    assert execution.value == {"subagent": "critic", "steps": 1}
    assert (state.status, state.had_errors) == (AgentStatus.COMPLETED, False)


async def test_the_error_of_a_child_is_cut_as_well() -> None:
    agent, _ = agent_of(
        {"critic": lambda _: RuntimeError("y" * 500)}, policy=SubagentPolicy(summary_max_chars=50)
    )
    assert "more characters]" in result(await agent.run("Go"))


async def test_a_child_that_was_stopped_says_why() -> None:
    agent, _ = agent_of(
        {"critic": lambda _: [call("look")]},
        spec(budget=Budget(steps=2)),
        tools=[MockTool.returning("look", "x")],
    )
    state = await agent.run("Go")
    assert result(state) == "(Stopped before it was done: steps_limit.)"
    assert state.final_response == "Done."


# Depth


def nesting(depth: int) -> SubagentPolicy:
    return SubagentPolicy(max_depth=depth)


async def test_b177_at_the_bottom_no_child_starts() -> None:
    turns = {"critic": [spawn("writer", "s2"), "No luck."], "writer": ["Never."]}
    agent, model = agent_of(turns, spec(), spec("writer"), policy=nesting(1))
    state = await agent.run("Go")

    assert result(state) == "No luck."
    asked = next(r for r in model.requests if len(r.messages) == 3 and speaker(r) == "critic")
    assert asked.messages[-1].text.startswith("Error: the limit of 1 nested subagents")
    assert "writer" not in [speaker(r) for r in model.requests]


async def test_b189_grandchildren_work_down_to_the_limit() -> None:
    turns = {
        "a": [spawn("b", "s2"), "a done"],
        "b": [spawn("c", "s3"), "b done"],
        "c": [spawn("d", "s4"), "c done"],
        "main": [spawn("a"), "Done."],
        "d": ["never"],
    }
    agent, model = agent_of(turns, *(spec(name) for name in "abcd"), policy=nesting(3))
    events = EventRecorder()
    agent.wiretap(events)
    state = await agent.run("Go")

    assert result(state) == "a done"
    assert {speaker(r) for r in model.requests} == {"main", "a", "b", "c"}
    spawned = events.of(SubagentSpawning)
    assert [(e.name, e.depth) for e in spawned] == [("a", 0), ("b", 1), ("c", 2)]
    assert {e.max_depth for e in spawned} == {3}
    assert [e.name for e in events.of(SubagentCompleted)] == ["c", "b", "a"]
    assert state.usage.total_tokens == 15 * len(model.requests)


async def test_a_child_without_the_tool_spawns_nothing() -> None:
    turns = {"critic": [spawn("critic", "s2"), "ok"]}
    agent, model = agent_of(turns, spec(tools=()))
    await agent.run("Go")
    refused = next(r for r in model.requests if speaker(r) == "critic" and len(r.messages) == 3)
    assert "spawn_subagent" in refused.messages[-1].text
    assert refused.messages[-1].text.startswith("Error: ")
    assert refused.tools == ()


# Events


async def test_b180_spawning_and_completion_are_told_with_the_ids_of_both() -> None:
    agent, _ = agent_of({"critic": [call("look"), "Good."]}, tools=[MockTool.returning("look", 1)])
    events = EventRecorder()
    agent.wiretap(events)
    state = await agent.run("Go")

    (begun,), (ended,) = events.of(SubagentSpawning), events.of(SubagentCompleted)
    assert (begun.name, begun.prompt, begun.depth, begun.max_depth) == ("critic", "Judge it", 0, 3)
    assert (begun.source.agent_id, begun.call_id) == (state.agent_id, "s1")
    assert (ended.name, ended.depth, ended.max_depth, ended.call_id) == ("critic", 0, 3, "s1")
    assert (ended.status, ended.steps) == (AgentStatus.COMPLETED, 2)
    assert ended.usage == Usage(input_tokens=20, output_tokens=10)
    assert ended.child_agent_id == begun.child_agent_id != state.agent_id
    of_child = [e for e in events.events if e.source.agent_id == begun.child_agent_id]
    assert {e.source.parent_agent_id for e in of_child} == {state.agent_id}
    assert len({e.source.execution_id for e in of_child}) == 1
    assert [type(e) for e in of_child].count(AgentFinished) == 1
    assert sum(isinstance(e, AgentStepStarted) for e in of_child) == 2


async def test_another_bus_hears_the_children_too() -> None:

    agent, _ = agent_of({"critic": ["Good."]})
    old, new = EventRecorder(), EventRecorder()
    agent.wiretap(old)
    bus = EventBus()
    bus.wiretap(new)
    await agent.with_events(bus).run("Go")
    assert old.events == []
    assert len(new.of(AgentFinished)) == 2


async def test_the_stream_of_the_parent_has_no_word_of_the_child() -> None:
    agent, _ = agent_of({"critic": ["inner words"]})
    parts = [part async for part in agent.stream("Go")]

    text = "".join(part.text for part in parts if isinstance(part, TextDelta))
    assert text == "Done."
    assert type(parts[-1]).__name__ == "Final"


async def test_all_doors_give_the_same_run() -> None:
    def fresh() -> Agent:
        turns = {"critic": [call("look", id="k"), "Good."]}
        return agent_of(turns, tools=[MockTool.returning("look", 1)])[0]

    ran = await fresh().run("Go")
    *_, last = [state async for state in fresh().iterator("Go")]
    *_, final = [part async for part in fresh().stream("Go")]
    agent = fresh()
    stepped = agent.new_state("Go")
    while agent.has_next_step(stepped):
        stepped = await agent.next_step(stepped)

    states = [ran, last, final.state, stepped]  # type: ignore[union-attr]
    said = [[m.text for m in state.messages] for state in states]
    assert said == [said[0]] * 4
    assert [state.usage for state in states] == [ran.usage] * 4
    assert ran.usage.total_tokens == 60


def test_subagents_run_without_an_event_loop() -> None:
    agent, _ = agent_of({"critic": ["Good."]})
    assert result(agent.run_sync("Go")) == "Good."


async def test_fifty_children_in_one_response_all_answer() -> None:
    calls = [spawn(id=f"s{i}", prompt=f"Part {i}") for i in range(50)]
    agent, _ = agent_of({"main": [calls, "Done."], "critic": lambda r: f"re {r.messages[0].text}"})
    events = EventRecorder()
    agent.wiretap(events)
    state = await agent.run("Go")

    assert [result(state, f"s{i}") for i in range(50)] == [f"re Part {i}" for i in range(50)]
    assert len({e.child_agent_id for e in events.of(SubagentSpawning)}) == 50
    assert state.usage.total_tokens == 15 * 52


async def test_child_steps_of_the_deterministic_driver_are_used() -> None:
    look = MockTool.returning("look", "seen")
    driver = DeterministicAgentDriver.from_steps(
        ScenarioStep.tool_call("spawn_subagent", {"subagent": "critic", "prompt": "Judge"}),
        ScenarioStep.final("Done."),
        child_steps=(
            ScenarioStep.tool_call("look", usage=Usage(input_tokens=7)),
            ScenarioStep.final("Seen.", cost=0.5),
        ),
    )
    capability = UseSubagents(AgentRegistry([spec()]))
    state = await Agent(driver=driver, tools=[look], capabilities=[capability]).run("Go")

    assert (state.messages[2].text, state.final_response) == ("Seen.", "Done.")
    assert (len(look.calls), state.usage.total_tokens, state.cost) == (1, 7, 0.5)


async def test_the_tool_lists_the_agents_for_the_model() -> None:
    agent, model = agent_of({"critic": ["x"]}, spec(), spec("writer"))
    await agent.run("Go")
    offered = next(t for t in model.requests[0].tools if t.name == "spawn_subagent")
    assert "- critic: The critic.\n- writer: The writer." in offered.description
    assert set(offered.parameters["properties"]) == {"subagent", "prompt"}


async def test_skills_are_read_in_a_thread_of_their_own() -> None:
    class Library:
        read_in: threading.Thread | None = None

        def get(self, name: str) -> Any:
            self.read_in = threading.current_thread()
            return SimpleNamespace(body=f"About {name}.")

    library = Library()
    model = by_agent({"main": [spawn(), "Done."], "critic": ["Fine."]})
    subagents = UseSubagents(AgentRegistry([spec(skills=("git",))]), skills=library)

    await Agent(model, system_prompt="main", capabilities=[subagents]).run("Go")

    assert model.requests[1].context.messages[0].text == "About git."
    assert library.read_in not in (None, threading.current_thread())

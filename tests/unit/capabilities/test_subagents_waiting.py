"""Children that wait for a person: the parent waits with them, and both go on with the answer."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import asdict
from pydantic import SecretStr

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    Approval,
    InputRequired,
    StepwellError,
    ToolContext,
    make_hook,
    tool,
)
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.subagents import UseSubagents
from stepwell.capabilities.user_input import UseUserInput
from stepwell.events import SubagentCompleted, SubagentSpawning, ToolCallBlocked
from stepwell.hooks import HookContext
from stepwell.models import ModelRequest
from stepwell.scope import RunScope
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.state import PendingKind
from stepwell.state.execution import InFlight
from stepwell.testing import EventRecorder, MockTool, ScriptedModel, call
from tests.answers import answer_call


def speaker(request: ModelRequest) -> str:
    return request.context.messages[-1].text


def by_agent(turns: Mapping[str, Sequence[Any]]) -> ScriptedModel:
    def turn(request: ModelRequest) -> Any:
        own = turns[speaker(request)]
        return own[sum(message.is_assistant() for message in request.messages)]

    return ScriptedModel(turn, cost=0.25)


def spawn(name: str, id: str = "s1") -> Any:
    return call("spawn_subagent", id=id, subagent=name, prompt=f"Do it, {id}")


def agent_of(
    turns: Mapping[str, Sequence[Any]], *capabilities: Any, **parts: Any
) -> tuple[Agent, ScriptedModel]:
    model = by_agent({"main": [spawn("worker"), "Done."], **turns})
    specs = [
        AgentSpec(name=name, description=name, system_prompt=name)
        for name in ("worker", "manager", "boss")
    ]
    given = [UseSubagents(AgentRegistry(specs)), *capabilities]
    return Agent(model, system_prompt="main", capabilities=given, **parts), model


def deleting(
    turns: Mapping[str, Sequence[Any]] | None = None, **parts: Any
) -> tuple[Agent, MockTool, ScriptedModel]:
    delete = MockTool("delete", handler=lambda path: f"deleted {path}")
    given = turns or {"worker": [call("delete", id="d1", path="a"), "Cleaned."]}
    agent, model = agent_of(given, UseApprovals("delete"), tools=[delete], **parts)
    return agent, delete, model


def result(state: AgentState, call_id: str = "s1") -> str:
    results = [m.tool_result for m in state.messages if m.tool_result is not None]
    return next(r.content for r in results if r.call_id == call_id)


def heard_by(name: str, model: ScriptedModel) -> list[str]:
    """The results of tools that this agent saw, in its last request."""
    last = [r for r in model.requests if speaker(r) == name][-1]
    return [m.text for m in last.messages if m.is_tool()]


async def test_b188_what_the_parent_blocks_is_blocked_in_its_children() -> None:
    def refuse(context: HookContext) -> HookContext | None:
        assert context.call is not None
        return context.block("not here") if context.call.name == "delete" else None

    delete = MockTool.returning("delete", "gone")
    turns = {
        "main": [spawn("manager"), "Done."],
        "manager": [spawn("worker", "s2"), "ok"],
        "worker": [call("delete", path="a"), "I may not."],
    }
    agent, model = agent_of(turns, tools=[delete], hooks=[make_hook("before_tool", refuse)])
    events = EventRecorder()
    agent.wiretap(events)
    await agent.run("Go")

    assert delete.calls == []
    assert heard_by("worker", model) == ["Error: Blocked: not here"]
    assert [e.reason for e in events.of(ToolCallBlocked)] == ["not here"]


async def test_hooks_of_other_moments_stay_with_the_parent() -> None:
    moments: list[str] = []

    def seen(context: HookContext) -> None:
        moments.append(f"{context.trigger} {context.state.parent_agent_id is not None}")

    look = MockTool.returning("look", "x")
    agent, _ = agent_of(
        {"worker": [call("look"), "ok"]},
        tools=[look],
        hooks=[make_hook(["before_tool", "after_tool", "after_step", "on_stop"], seen)],
    )
    await agent.run("Go")
    assert [m for m in moments if m.endswith("True")] == ["before_tool True"]


async def test_a_hook_that_is_inherited_goes_with_the_child_whole() -> None:
    steps: list[str | None] = []
    hook = make_hook(
        "after_step", lambda context: steps.append(context.state.parent_agent_id), inherited=True
    )
    agent, _ = agent_of({"worker": ["ok"]}, hooks=[hook])
    state = await agent.run("Go")
    assert steps == [state.agent_id, None, None]


async def test_b188_the_parent_waits_with_the_child_and_says_who_asks() -> None:
    agent, delete, _ = deleting()
    events = EventRecorder()
    agent.wiretap(events)
    state = await agent.run("Go")

    assert (delete.calls, state.status) == ([], AgentStatus.PAUSED)
    (asked,) = state.pending
    assert asked.prompt == 'worker: May delete run with {"path":"a"}?'
    assert (asked.kind, asked.call_id, asked.tool_name) == (
        PendingKind.APPROVAL,
        "s1",
        "spawn_subagent",
    )
    assert asked.details == {
        "tool": "delete",
        "arguments": {"path": "a"},
        "subagent": "worker",
        "asked_by": "delete",
    }
    assert [e.status for e in events.of(SubagentCompleted)] == [AgentStatus.PAUSED]


@pytest.mark.parametrize(
    ("answer", "calls", "heard"),
    [
        (True, [{"path": "a"}], "deleted a"),
        ({"approved": True}, [{"path": "a"}], "deleted a"),
        (Approval.denied("keep it"), [], "Error: Blocked: a person denied this call: keep it"),
        (False, [], "Error: Blocked: a person denied this call"),
        (
            Approval.edited({"path": "b"}),
            [{"path": "b"}],
            '(A person changed the arguments to {"path":"b"})\ndeleted b',
        ),
    ],
)
async def test_b188_the_answer_reaches_the_call_of_the_child(
    answer: Any, calls: list[Any], heard: str
) -> None:
    agent, delete, model = deleting()
    state = await agent.run("Go")
    state = await agent.run(answer_call(state, "s1", answer))

    assert (delete.calls, heard_by("worker", model)) == (calls, [heard])
    assert (result(state), state.final_response) == ("Cleaned.", "Done.")
    assert [m.text for m in state.messages] == ["Go", "", "Cleaned.", "Done."]


async def test_a_wrong_answer_is_refused_when_it_is_given() -> None:
    agent, _, _ = deleting()
    state = await agent.run("Go")
    with pytest.raises(StepwellError, match="does not say whether the call may run"):
        answer_call(state, "s1", "perhaps")


async def test_what_was_spent_is_counted_once_over_the_pause() -> None:
    agent, _, model = deleting()
    paused = await agent.run("Go")
    assert (paused.usage.total_tokens, paused.cost) == (30, 0.5)
    state = await agent.run(answer_call(paused, "s1", True))
    assert state.usage.total_tokens == 15 * len(model.requests) == 60
    assert state.cost == 1.0


async def test_the_child_goes_on_as_itself() -> None:
    agent, _, _ = deleting()
    events = EventRecorder()
    agent.wiretap(events)
    state = await agent.run("Go")
    await agent.run(answer_call(state, "s1", True))

    assert len({e.child_agent_id for e in events.of(SubagentSpawning)}) == 1
    completed = events.of(SubagentCompleted)
    assert [(e.status, e.steps) for e in completed] == [
        (AgentStatus.PAUSED, 1),
        (AgentStatus.COMPLETED, 3),
    ]
    assert len({e.source.execution_id for e in events.events}) == 2


async def test_another_agent_of_the_same_parts_takes_up_the_paused_state() -> None:
    first, _, _ = deleting()
    second, delete, _ = deleting()
    state = await first.run("Go")
    state = await second.run(answer_call(state, "s1", True))
    assert (state.final_response, delete.calls) == ("Done.", [{"path": "a"}])


async def test_a_grandchild_waits_as_well() -> None:
    turns = {
        "main": [spawn("manager"), "Done."],
        "manager": [spawn("worker", "s2"), "Managed."],
        "worker": [call("delete", id="d1", path="a"), "Cleaned."],
    }
    agent, delete, model = deleting(turns)
    paused = await agent.run("Go")

    (asked,) = paused.pending
    assert asked.prompt == 'manager: worker: May delete run with {"path":"a"}?'
    assert (asked.details["subagent"], asked.details["asked_by"]) == ("worker", "delete")
    state = await agent.run(answer_call(paused, "s1", Approval.edited({"path": "b"})))
    assert delete.calls == [{"path": "b"}]
    assert (heard_by("manager", model), result(state)) == (["Cleaned."], "Managed.")
    assert state.usage.total_tokens == 15 * len(model.requests)
    assert state.cost == pytest.approx(0.25 * len(model.requests))


async def test_several_children_wait_side_by_side() -> None:
    turns = {
        "main": [[spawn("worker", f"s{i}") for i in range(3)], "Done."],
        "worker": [call("delete", id="d1", path="a"), "Cleaned."],
    }
    agent, delete, model = deleting(turns)
    paused = await agent.run("Go")

    assert [p.call_id for p in paused.pending] == ["s0", "s1", "s2"]
    half = answer_call(answer_call(paused, "s1", Approval.denied("no")), "s0", True)
    assert half.status is AgentStatus.PAUSED
    state = await agent.run(answer_call(half, "s2", True))
    assert len(delete.calls) == 2
    assert (state.final_response, state.usage.total_tokens) == ("Done.", 15 * len(model.requests))


async def test_a_child_that_is_done_is_not_run_again_when_another_goes_on() -> None:
    turns = {
        "main": [[spawn("worker", "s1"), spawn("manager", "s2")], "Done."],
        "manager": ["Managed."],
        "worker": [call("delete", id="d1", path="a"), "Cleaned."],
    }
    agent, _, model = deleting(turns)
    state = await agent.run("Go")
    state = await agent.run(answer_call(state, "s1", True))
    assert (result(state, "s1"), result(state, "s2")) == ("Cleaned.", "Managed.")
    assert [speaker(r) for r in model.requests].count("manager") == 1


async def test_the_questions_of_one_child_are_asked_one_after_another() -> None:
    both = [call("delete", id="d1", path="a"), call("delete", id="d2", path="b")]
    agent, delete, model = deleting({"worker": [both, call("delete", id="d3", path="c"), "ok"]})
    events = EventRecorder()
    state = await agent.run("Go")
    agent.wiretap(events)

    state = await agent.run(answer_call(state, "s1", True))
    assert delete.calls == []
    assert [p.prompt for p in state.pending] == ['worker: May delete run with {"path":"b"}?']
    assert events.of(SubagentSpawning) == []
    state = await agent.run(answer_call(state, "s1", Approval.denied()))
    assert delete.calls == [{"path": "a"}]
    assert [p.prompt for p in state.pending] == ['worker: May delete run with {"path":"c"}?']
    state = await agent.run(answer_call(state, "s1", True))
    assert delete.calls == [{"path": "a"}, {"path": "c"}]
    assert state.final_response == "Done."
    assert state.usage.total_tokens == 15 * len(model.requests) == 75


async def test_spawning_itself_can_need_approval() -> None:
    model = by_agent({"main": [spawn("worker"), "Done."], "worker": ["Worked."]})
    specs = [AgentSpec(name="worker", description="w", system_prompt="worker")]
    agent = Agent(
        model,
        system_prompt="main",
        capabilities=[UseSubagents(AgentRegistry(specs)), UseApprovals("spawn_subagent")],
    )
    state = await agent.run("Go")
    assert len(model.requests) == 1
    approved = await agent.run(answer_call(state, "s1", True))
    assert (approved.status, result(approved)) == (AgentStatus.COMPLETED, "Worked.")
    denied = await agent.run(answer_call(state, "s1", False))
    assert "denied" in result(denied)


async def test_an_approved_child_can_ask_itself() -> None:
    delete = MockTool("delete", handler=lambda path: f"deleted {path}")
    turns = {"worker": [call("delete", id="d1", path="a"), "Cleaned."]}
    approvals = UseApprovals("spawn_subagent", "delete")
    agent, _ = agent_of(turns, approvals, tools=[delete])
    state = await agent.run("Go")
    assert state.pending[0].prompt.startswith("May spawn_subagent run")
    state = await agent.run(answer_call(state, "s1", True))
    assert state.pending[0].prompt == 'worker: May delete run with {"path":"a"}?'
    state = await agent.run(answer_call(state, "s1", True))
    assert (result(state), len(delete.calls)) == ("Cleaned.", 1)


async def test_a_child_asks_the_user() -> None:
    turns = {"worker": [call("user_input", question="Which?", options=["a", "b"]), "Took it."]}
    agent, model = agent_of(turns, UseUserInput())
    state = await agent.run("Go")

    (asked,) = state.pending
    assert (asked.prompt, asked.kind) == ("worker: Which?", PendingKind.QUESTION)
    assert asked.details == {"options": ["a", "b"], "subagent": "worker", "asked_by": "user_input"}
    state = await agent.run(answer_call(state, "s1", "b"))
    assert heard_by("worker", model) == ["b"]
    assert (result(state), state.final_response) == ("Took it.", "Done.")


async def test_a_child_that_is_paused_without_a_question_is_told_as_stopped() -> None:
    def pause(context: HookContext) -> HookContext | None:
        if context.state.parent_agent_id is None:
            return None
        return context.stop("wait", reason="input_required")

    look = MockTool.returning("look", "x")
    hooks = [make_hook("before_tool", pause)]
    agent, _ = agent_of({"worker": [call("look"), "ok"]}, tools=[look], hooks=hooks)
    state = await agent.run("Go")
    assert result(state) == "(Stopped before it was done: input_required.)"
    assert state.status is AgentStatus.COMPLETED


def parts_of(value: Any) -> list[Any]:
    """Everything inside a value."""
    found = [value]
    if isinstance(value, Struct):
        value = asdict(value)
    if isinstance(value, Mapping):
        inner: Sequence[Any] = list(value.values())
    elif isinstance(value, list | tuple) or type(value).__name__ == "History":
        inner = list(value)
    else:
        inner = []
    return [*found, *(part for item in inner for part in parts_of(item))]


async def test_what_is_kept_of_a_waiting_child_is_data_only() -> None:
    turns = {
        "main": [spawn("manager"), "Done."],
        "manager": [spawn("worker", "s2"), "ok"],
        "worker": [call("delete", id="d1", path="a"), "ok"],
    }
    agent, _, _ = deleting(turns)
    paused = await agent.run("Go")
    for state in (paused, answer_call(paused, "s1", True)):
        inside = parts_of(state)
        assert sum(isinstance(part, AgentState) for part in inside) == 3
        assert not [p for p in inside if isinstance(p, RunScope | InFlight | Agent) or callable(p)]


async def test_a_finished_run_keeps_no_state_of_its_children() -> None:
    agent, _, _ = deleting()
    paused = await agent.run("Go")
    state = await agent.run(answer_call(paused, "s1", True))
    assert [part for part in parts_of(state) if isinstance(part, AgentState)] == [state]


async def test_secret_arguments_in_a_child_are_kept_nowhere() -> None:
    canary = "canary-5up3r"
    given: list[str] = []

    @tool
    def login(password: SecretStr) -> str:
        """Log in.

        Args:
            password: The password.
        """
        given.append(password.get_secret_value())
        return f"in with {password.get_secret_value()}"

    turns = {"worker": [call("login", id="l1", password=canary), "In."]}
    agent, model = agent_of(turns, UseApprovals("login"), tools=[login])
    events = EventRecorder()
    agent.wiretap(events)
    paused = await agent.run("Go")
    assert canary not in repr(paused)
    edited = answer_call(paused, "s1", Approval.edited({"password": canary}))
    state = await agent.run(edited)

    assert given == [canary]
    assert state.final_response == "Done."
    assert canary not in repr(state) + repr(events.events) + repr(model.requests)


async def test_a_tool_of_the_child_can_ask_again_with_what_it_kept() -> None:
    @tool
    def interview(context: ToolContext) -> Any:
        """Ask twice."""
        heard = [] if context.resumed is None else [*context.resumed.kept, context.resumed.answer]
        if len(heard) == 2:
            return " and ".join(heard)
        return InputRequired(prompt=f"Question {len(heard)}?", resumes=True, kept=heard)

    agent, model = agent_of({"worker": [call("interview", id="i1"), "ok"]}, tools=[interview])
    state = await agent.run("Go")
    state = await agent.run(answer_call(state, "s1", "one"))
    assert state.pending[0].prompt == "worker: Question 1?"
    state = await agent.run(answer_call(state, "s1", "two"))
    assert (heard_by("worker", model), state.final_response) == (["one and two"], "Done.")


async def test_a_spec_that_is_gone_ends_the_waiting_child() -> None:
    agent, delete, model = deleting()
    paused = await agent.run("Go")
    others = AgentRegistry([AgentSpec(name="other", description="o", system_prompt="other")])
    capabilities: list[Any] = [UseSubagents(others), UseApprovals("delete")]
    later = Agent(model, system_prompt="main", tools=[delete], capabilities=capabilities)
    state = await later.run(answer_call(paused, "s1", True))
    assert "there is no subagent 'worker'; available: other" in result(state)
    assert delete.calls == []

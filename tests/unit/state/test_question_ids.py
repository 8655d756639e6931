"""Every question has an id of its own, and an answer holds for exactly that question, once."""

import pytest
from msgspec.structs import replace

from stepwell import (
    Agent,
    AgentRegistry,
    AgentSpec,
    AgentState,
    AgentStatus,
    StepwellError,
    UseApprovals,
    UseSubagents,
)
from stepwell.journal.status import ExecutionStatus
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.narration import pending_data
from stepwell.sessions.records import Execution
from stepwell.state import Pending, PendingKind, Question
from stepwell.testing import FakeClock, MockTool, ScriptedModel, call

SERIALIZER = AgentStateSerializer()


def deleting(*calls: object) -> tuple[Agent, MockTool]:
    delete = MockTool("delete", handler=lambda path: f"deleted {path}")
    model = ScriptedModel([*calls, "Done."])
    return Agent(model, tools=[delete], capabilities=[UseApprovals("delete")]), delete


async def test_the_approval_of_one_call_is_none_of_a_later_one_with_the_same_id() -> None:
    first = call("delete", id="c1", path="harmless.txt")
    agent, delete = deleting(first, call("delete", id="c1", path="/"), first)
    state, seen = await agent.run("Clean up"), list[Question]()
    for path in ("harmless.txt", "/", "harmless.txt"):
        [asked] = state.pending
        assert asked.details["arguments"] == {"path": path}
        for old in seen:
            with pytest.raises(StepwellError, match="nothing waits for an answer"):
                state.with_answer(old, True)
            with pytest.raises(StepwellError, match="nothing waits for an answer"):
                state.with_answer(old.id, True)
        seen.append(asked)
        state = await agent.run(state.with_answer(asked.id, True))

    assert len({asked.id for asked in seen}) == 3
    assert [it["path"] for it in delete.calls] == ["harmless.txt", "/", "harmless.txt"]
    assert state.status is AgentStatus.COMPLETED


async def test_the_questions_of_a_subagent_share_a_call_and_no_id() -> None:
    delete = MockTool("delete", handler=lambda path: f"deleted {path}")
    turns = [
        call("spawn_subagent", id="s1", subagent="cleaner", prompt="Clean"),
        call("delete", id="c1", path="a"),
        call("delete", id="c1", path="/"),
        "Cleaned.",
        "Done.",
    ]
    spec = AgentSpec(name="cleaner", description="Cleans.", system_prompt="Clean.")
    agent = Agent(
        ScriptedModel(turns),
        tools=[delete],
        capabilities=[UseSubagents(AgentRegistry([spec])), UseApprovals("delete")],
    )
    first = await agent.run("Clean up")
    second = await agent.run(first.with_answer(first.pending[0], True))

    assert [p.call_id for p in (*first.pending, *second.pending)] == ["s1", "s1"]
    assert first.pending[0].id != second.pending[0].id
    with pytest.raises(StepwellError, match="nothing waits for an answer"):
        second.with_answer(first.pending[0], True)
    assert delete.calls == [{"path": "a"}]


async def test_an_id_is_the_same_in_every_process_and_for_a_url() -> None:
    agent, _ = deleting(call("delete", id="c" * 5000, path="ä/😀", big=2**70, part=0.1))
    state = await agent.run("Go")
    loaded = SERIALIZER.from_json(SERIALIZER.to_json(state))

    assert [p.id for p in loaded.pending] == [p.id for p in state.pending]
    assert loaded == state
    [asked] = state.pending
    assert asked.id.removeprefix("q_").isalnum()
    assert len(asked.id) == 34
    assert loaded.with_answer(asked.id, True).pending == ()


def test_details_may_have_any_key_that_a_state_can_hold() -> None:
    def asked(details: dict[object, object]) -> Question:
        pending = Pending(kind=PendingKind.QUESTION, prompt="Which?", details={"choices": details})
        return Question.of(pending, execution_id="e", step=1)

    ids = [asked({("a", 1): "x", "b": "y"}).id, asked({1: "x"}).id, asked({"1": "x"}).id]
    assert len(set(ids)) == 3
    assert asked({"b": "y", ("a", 1): "x"}).id == ids[0], "the order of keys is not part of it"


def other_execution(state: AgentState) -> AgentState:
    assert state.execution is not None
    return replace(state, execution=replace(state.execution, id="another"))


async def test_an_answer_to_another_execution_is_refused() -> None:
    agent, _ = deleting(call("delete", id="c1", path="a"))
    state = await agent.run("Go")

    with pytest.raises(StepwellError, match="nothing waits for an answer"):
        other_execution(state).with_answer(state.pending[0], True)


async def test_budget_is_asked_for_anew_after_every_grant() -> None:
    model = ScriptedModel(lambda request: call("look"))
    look = MockTool.returning("look", "seen")
    agent = Agent(model, tools=[look], max_steps=1, at_limit="pause")
    again = await agent.run("Hi")
    ids = set[str]()
    for _ in range(3):
        [asked] = again.pending
        ids.add(asked.id)
        with pytest.raises(StepwellError, match="with_budget_granted"):
            again.with_answer(asked, True)
        again = await agent.run(again.with_budget_granted(tokens=1))

    assert (len(ids), len(look.calls)) == (3, 1)


async def test_a_pause_that_an_older_version_stored_can_be_answered() -> None:
    agent, delete = deleting(call("delete", id="c1", path="a"))
    state = await agent.run("Go")
    stored = SERIALIZER.to_json(state)
    assert b'"q_' not in stored  # ids are not stored, so older versions wrote the same
    told = [{k: v for k, v in it.items() if k != "question_id"} for it in pending_data(state)]
    assert state.execution is not None
    row = Execution(
        id=state.execution.id,
        tenant_id="t",
        agent_type="a",
        definition_hash="h",
        created_at=FakeClock().now(),
        updated_at=FakeClock().now(),
        status=ExecutionStatus.PAUSED,
        step_count=state.step_count,
        pending=tuple(told),
    )
    [asked] = row.questions
    loaded = SERIALIZER.from_json(stored)
    await agent.run(loaded.with_answer(asked["question_id"], True))

    assert delete.calls == [{"path": "a"}]

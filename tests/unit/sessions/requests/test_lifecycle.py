"""What answers and grants make of an execution, decided without a database."""

from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.agent import Agent
from stepwell.capabilities.user_input import UseUserInput
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.errors import ConflictError, QuestionChangedError, RefusedError
from stepwell.sessions.narration import pending_data
from stepwell.sessions.records import Execution
from stepwell.sessions.requests.answer import decide_answer
from stepwell.sessions.requests.grant import BudgetGrant, decide_grant
from stepwell.sessions.requests.resume import ResumedExecution
from stepwell.state import AgentState, PendingKind
from stepwell.testing import FakeClock, ScriptedModel, SequentialIds, call
from tests.answers import answer_call

CLOCK = FakeClock()
PENDING, PAUSED = ExecutionStatus.PENDING, ExecutionStatus.PAUSED


def asking(**options: Any) -> Agent:
    """An agent that asks, and then asks twice at once."""
    turns = [
        call("user_input", id="c1", question="Where?"),
        [
            call("user_input", id="c2", question="When?"),
            call("user_input", id="c3", question="Who?"),
        ],
        "Fine.",
    ]
    return Agent(
        ScriptedModel(turns), capabilities=[UseUserInput()], new_id=SequentialIds(), **options
    )


def execution_of(state: AgentState, status: ExecutionStatus = PAUSED, **fields: Any) -> Execution:
    """The row of a state."""
    assert state.execution is not None
    return Execution(
        id=state.execution.id,
        tenant_id="t",
        agent_type="asking",
        definition_hash="old",
        created_at=CLOCK.now(),
        updated_at=CLOCK.now(),
        status=status,
        pending=pending_data(state),
        **fields,
    )


async def test_an_answer_is_put_into_the_state() -> None:
    state = await asking().run("Go")
    taken: ResumedExecution = decide_answer(state.pending[0].id, "Oslo")(execution_of(state), state)
    assert (taken.execution.status, taken.execution.pending) == (PENDING, ())
    assert taken.state is not None
    assert taken.state.messages[-1].text == "Oslo"
    assert taken.text == "Answer received, execution queued"


async def test_an_answer_to_an_earlier_question_returns_what_is_asked_now() -> None:
    agent = asking()
    state = await agent.run("Go")
    old = state.pending[0].id
    state = await agent.run(answer_call(state, "c1", "Oslo"))
    for named in (old, "c2", None):
        with pytest.raises(QuestionChangedError, match=r"When\?\), q_\w+ \(.*Who") as caught:
            decide_answer(named, "Oslo")(execution_of(state), state)
        assert caught.value.code == "question_changed"
        assert [it["question_id"] for it in caught.value.pending] == [p.id for p in state.pending]
    when, who = state.pending
    with pytest.raises(QuestionChangedError, match="not that of call 'c2'"):
        decide_answer(who.id, "Bob", call_id="c2")(execution_of(state), state)
    assert decide_answer(when.id, "Now", call_id="c2")(execution_of(state), state)
    half = decide_answer(who.id, "Bob")(execution_of(state), state)
    assert half.execution.status is PAUSED
    assert [it["call_id"] for it in half.execution.pending] == ["c2"]


@pytest.mark.parametrize("status", [it for it in ExecutionStatus if it is not PAUSED])
async def test_only_a_paused_execution_is_answered(status: ExecutionStatus) -> None:
    state = await asking().run("Go")
    with pytest.raises(ConflictError) as caught:
        decide_answer(state.pending[0].id, "Oslo")(execution_of(state, status), state)
    assert caught.value.code == "not_waiting"


@pytest.mark.parametrize("answer", [object(), {"a": {1, 2}}, "half \ud800", 2**70])
async def test_an_answer_must_be_data_that_can_be_stored(answer: Any) -> None:
    state = await asking().run("Go")
    with pytest.raises(RefusedError) as caught:
        decide_answer(state.pending[0].id, answer)(execution_of(state), state)
    assert caught.value.code == "bad_answer"


async def test_a_grant_lets_a_run_go_on_that_waits_for_budget() -> None:
    agent = asking(max_steps=1, at_limit="pause")
    agents = AgentDirectory({"asking": agent})
    state = answer_call(await agent.run("Go"), "c1", "Oslo")
    state = await agent.run(state)
    assert [it.kind for it in state.pending] == [PendingKind.BUDGET]
    nothing = decide_grant(BudgetGrant(), agents, accept_change=False)
    with pytest.raises(ConflictError, match="more budget"):
        nothing(execution_of(state), state)
    asked = state.pending[0].id
    for named in (None, "q_0"):
        unseen = decide_grant(BudgetGrant(steps=3), agents, question_id=named, accept_change=False)
        with pytest.raises(QuestionChangedError) as caught:
            unseen(execution_of(state), state)
        assert [it["question_id"] for it in caught.value.pending] == [asked]
    with pytest.raises(RefusedError, match="/resume"):
        decide_answer(asked, "yes")(execution_of(state), state)
    more = decide_grant(BudgetGrant(steps=3), agents, question_id=asked, accept_change=False)
    taken = more(execution_of(state), state)
    assert taken.execution.status is PENDING
    assert taken.state is not None
    assert taken.state.execution is not None
    assert taken.state.execution.granted.steps == 3


async def test_a_grant_to_a_run_that_waits_for_an_answer_leaves_it_waiting() -> None:
    agent = asking()
    agents = AgentDirectory({"asking": agent})
    state = await agent.run("Go")
    with pytest.raises(ConflictError, match="answer to c1") as caught:
        decide_grant(BudgetGrant(), agents, accept_change=False)(execution_of(state), state)
    assert caught.value.code == "not_resumable"
    taken = decide_grant(BudgetGrant(cost=1.0), agents, accept_change=False)(
        execution_of(state), state
    )
    assert taken.execution.status is PAUSED
    for wrong in (BudgetGrant(steps=-1), BudgetGrant(seconds=float("inf"))):
        with pytest.raises(RefusedError):
            decide_grant(wrong, agents, accept_change=False)(execution_of(state), state)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (ExecutionStatus.PENDING, "queued already"),
        (ExecutionStatus.RUNNING, "is running"),
        (ExecutionStatus.COMPLETED, "is over"),
        (ExecutionStatus.CANCELLED, "is over"),
        (ExecutionStatus.FAILED, "is over"),
    ],
)
async def test_what_was_not_set_aside_says_why_it_is_not_resumed(
    status: ExecutionStatus, why: str
) -> None:
    agent = asking()
    state = await agent.run("Go")
    resume = decide_grant(
        BudgetGrant(steps=1), AgentDirectory({"asking": agent}), accept_change=True
    )
    with pytest.raises(ConflictError, match=why) as caught:
        resume(execution_of(state, status), state)
    assert caught.value.code == "not_resumable"


async def test_what_was_set_aside_begins_anew_with_a_clean_row() -> None:
    agent = asking()
    agents = AgentDirectory({"asking": agent})
    state = answer_call(await agent.run("Go"), "c1", "Oslo")
    aside = execution_of(
        state,
        ExecutionStatus.FAILED,
        crashes=3,
        error_message="Set aside",
        stop_reason="error",
        completed_at=CLOCK.now(),
        metadata={"set_aside": "crashes", "other": 1},
    )
    taken = decide_grant(BudgetGrant(), agents, accept_change=False)(aside, state)
    assert taken.state is None
    assert taken.execution == replace(
        aside,
        status=PENDING,
        crashes=0,
        error_message=None,
        stop_reason=None,
        completed_at=None,
        metadata={"other": 1},
    )
    changed = replace(
        aside, status=ExecutionStatus.STOPPED, metadata={"set_aside": "definition_changed"}
    )
    taken = decide_grant(BudgetGrant(steps=2), agents, accept_change=True)(changed, state)
    assert taken.execution.definition_hash == agents.get("asking").definition_hash
    assert taken.state is not None
    gone = replace(aside, agent_type="gone")
    with pytest.raises(ConflictError) as caught:
        decide_grant(BudgetGrant(), agents, accept_change=False)(gone, state)
    assert caught.value.code == "agent_gone"

"""What a worker keeps in hand of a run, and the chain of snapshots that a run leaves."""

from datetime import UTC, datetime

from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.attempt.runner import RunControl
from stepwell.sessions.records import Execution, Snapshot
from stepwell.sessions.snapshot_chain import SnapshotChain
from stepwell.state import AgentState
from stepwell.testing import SequentialIds

AT = datetime(2026, 1, 1, tzinfo=UTC)
EXECUTION = Execution(
    id="e", tenant_id="t", agent_type="x", definition_hash="", created_at=AT, updated_at=AT
)


def test_only_the_first_reason_to_give_up_counts_for_who_asks_later() -> None:
    control, first, second = RunControl(), RuntimeError("1"), RuntimeError("2")
    heard: list[BaseException] = []
    control.abandon(first)
    control.abandon(second)
    control.bind(heard.append)
    assert heard == [first]
    assert control.abandoned_by is first


def test_a_control_has_a_cancellation_of_its_own() -> None:
    assert RunControl().cancellation is not RunControl().cancellation
    assert not RunControl().hands_back


def chained(states: list[AgentState], growth: float) -> list[Snapshot]:
    chain, ids, made = SnapshotChain(growth), SequentialIds(), list[Snapshot]()
    for state in states:
        snapshot = chain.next(EXECUTION, state, id=ids(), at=AT, is_final=False)
        chain.mark_stored(snapshot, state)
        made.append(snapshot)
    return made


def test_what_only_adds_is_whole_once() -> None:
    states = [AgentState.empty(agent_id="a", at=AT)]
    for number in range(200):
        states.append(states[-1].with_user_message(f"{number} " + "x" * 100))
    made = chained(states, 4.0)
    assert [snapshot.is_whole for snapshot in made] == [True] + [False] * 200
    assert [snapshot.position for snapshot in made] == list(range(201))
    assert {snapshot.chain_id for snapshot in made} == {made[0].id}
    whole, *increments = [snapshot.state_json for snapshot in made]
    assert AgentStateSerializer().from_increments(whole, increments) == states[-1]


def test_what_is_written_anew_each_time_begins_a_new_chain_now_and_then() -> None:
    states = [AgentState.empty(agent_id="a", at=AT)]
    for number in range(40):
        states.append(states[-1].with_metadata({"plan": f"{number} " + "y" * 1000}))
    made = chained(states, 4.0)
    wholes = [place for place, snapshot in enumerate(made) if snapshot.is_whole]
    assert 3 <= len(wholes) <= 10
    last = wholes[-1]
    documents = [snapshot.state_json for snapshot in made[last:]]
    assert AgentStateSerializer().from_increments(documents[0], documents[1:]) == states[-1]
    assert [snapshot.chain_id for snapshot in made[last:]] == [made[last].id] * (41 - last)

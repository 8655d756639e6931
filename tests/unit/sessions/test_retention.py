"""Which executions keep their states, and what becomes of the others."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import ConfigurationError
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.errors import NotThereError
from stepwell.sessions.records import Execution, Snapshot
from stepwell.sessions.retention import RetentionPolicy, new_heads, older_executions
from stepwell.sessions.views.removed_snapshots import (
    StatesRemovedError,
    has_no_states_any_more,
    require_states,
    without_states,
)
from stepwell.testing import FakeClock

NOW = FakeClock().now()


def execution(number: int, parent: int | None = None) -> Execution:
    """One that is over, the ones with higher numbers later."""
    return Execution(
        id=f"e{number}",
        tenant_id="t",
        agent_type="a",
        definition_hash="",
        created_at=NOW + timedelta(seconds=number),
        updated_at=NOW,
        session_id="s",
        status=ExecutionStatus.COMPLETED,
        parent_execution_id=None if parent is None else f"e{parent}",
    )


def ids(executions: list[Execution]) -> list[str]:
    """Their ids."""
    return [it.id for it in executions]


def test_the_newest_keep_their_states_with_their_subagents() -> None:
    finished = [
        execution(1),
        execution(2, parent=1),
        execution(3),
        execution(4, parent=3),
        execution(5, parent=4),
        execution(6),
    ]
    assert ids(older_executions(finished, 2, None)) == ["e1", "e2"]
    assert ids(older_executions(finished, 1, None)) == ["e1", "e2", "e3", "e4", "e5"]
    assert ids(older_executions(finished, 9, None)) == []


def test_what_a_session_goes_on_from_is_always_kept() -> None:
    finished = [execution(1), execution(2), execution(3)]
    assert ids(older_executions(finished, 1, "e1")) == ["e2"]


def snapshot(id: str, chain: str, position: int) -> Snapshot:
    """One without its state."""
    return Snapshot(
        id=id,
        tenant_id="t",
        agent_execution_id="e",
        chain_id=chain,
        position=position,
        step_number=0,
        state_json="",
        created_at=NOW,
    )


def test_a_snapshot_whose_predecessor_goes_begins_a_chain() -> None:
    chain = [snapshot(f"a{n}", "a0", n) for n in range(6)]
    alone = snapshot("b0", "b0", 0)
    assert new_heads([*chain, alone]) == []
    assert new_heads([*chain[2:], alone]) == ["a2"]
    assert new_heads([chain[0], chain[2], chain[3], chain[5]]) == ["a2", "a5"]
    assert new_heads([]) == []


def test_an_execution_that_lost_its_states_says_so() -> None:
    before = execution(1)
    require_states(before)
    after = without_states(before, NOW)
    assert has_no_states_any_more(after)
    with pytest.raises(StatesRemovedError, match="execution e1 were removed by retention") as why:
        require_states(after)
    assert why.value.code == "states_removed"
    assert isinstance(why.value, NotThereError)


@given(st.integers(1, 8), st.integers(1, 8))
def test_so_many_are_kept_as_the_policy_says(count: int, keep: int) -> None:
    finished = [execution(number) for number in range(count)]
    older = older_executions(finished, keep, f"e{count - 1}")
    assert len(older) == max(0, count - keep)
    assert ids(older) == ids(finished[: len(older)])


@pytest.mark.parametrize("name", ["keep_executions", "events_days", "sessions_days"])
def test_a_limit_is_above_zero(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        RetentionPolicy(**{name: 0})
    RetentionPolicy(**{name: 1})

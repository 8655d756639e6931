"""Which executions keep their steps."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import ConfigurationError
from stepwell.sessions.records import Execution, ExecutionStatus, Session
from stepwell.sessions.retention import RetentionPolicy, older_executions
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


def session(last: str | None = None) -> Session:
    """A session."""
    return Session(
        id="s",
        tenant_id="t",
        user_id="u",
        agent_type="a",
        created_at=NOW,
        updated_at=NOW,
        last_execution_id=last,
    )


def ids(executions: list[Execution]) -> list[str]:
    """Their ids."""
    return [it.id for it in executions]


def test_the_newest_keep_their_steps_with_their_subagents() -> None:
    finished = [
        execution(1),
        execution(2, parent=1),
        execution(3),
        execution(4, parent=3),
        execution(5, parent=4),
        execution(6),
    ]
    assert ids(older_executions(session(), finished, 2)) == ["e1", "e2"]
    assert ids(older_executions(session(), finished, 1)) == ["e1", "e2", "e3", "e4", "e5"]
    assert ids(older_executions(session(), finished, 9)) == []


def test_the_last_of_a_session_is_always_kept() -> None:
    finished = [execution(1), execution(2), execution(3)]
    assert ids(older_executions(session("e1"), finished, 1)) == ["e2"]


@given(st.integers(1, 8), st.integers(1, 8))
def test_so_many_are_kept_as_the_policy_says(count: int, keep: int) -> None:
    finished = [execution(number) for number in range(count)]
    older = older_executions(session(f"e{count - 1}"), finished, keep)
    assert len(older) == max(0, count - keep)
    assert ids(older) == ids(finished[: len(older)])


@pytest.mark.parametrize("name", ["keep_executions", "events_days", "sessions_days"])
def test_a_limit_is_above_zero(name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        RetentionPolicy(**{name: 0})
    RetentionPolicy(**{name: 1})

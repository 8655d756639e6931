"""States for criteria to look at, made by the public transitions."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from stepwell import AgentState, ContinuationDecision, ContinuationEvaluation
from stepwell.continuation import resolve
from stepwell.state import AgentStep, StepExecution

AT = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
GOING_ON = resolve(
    [
        ContinuationEvaluation(
            criterion="Test", decision=ContinuationDecision.REQUEST, reason="more to do"
        )
    ]
)

StateAfter = Callable[..., AgentState]


@pytest.fixture
def state_after() -> StateAfter:
    """Makes the state of an execution that has taken these steps."""

    def make(*steps: AgentStep, seconds: float = 0.0) -> AgentState:
        state = AgentState.empty(agent_id="agent", at=AT).with_execution_started("run", AT)
        for number, step in enumerate(steps, start=1):
            state = state.with_step_recorded(
                StepExecution(
                    number=number,
                    step=step,
                    outcome=GOING_ON,
                    started_at=AT,
                    completed_at=AT,
                    duration_seconds=seconds,
                )
            )
        return state

    return make

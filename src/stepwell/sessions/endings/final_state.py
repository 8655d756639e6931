"""The final state of an execution whose run does not store one: it knows every call that began."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.continuation import ContinuationOutcome, ContinueRequest, resolve
from stepwell.errors import SerializationError
from stepwell.sessions.attempt.takeovers import stopped_attempts
from stepwell.sessions.endings.end import End, EndDeps
from stepwell.sessions.errors import NotThereError
from stepwell.sessions.first_state import (
    first_state,
    load_session_state,
    messages_to_answer,
    user_message_ids,
)
from stepwell.sessions.ids import derived_id
from stepwell.sessions.ledger.interrupted_step import with_interrupted_step
from stepwell.sessions.ledger.open_step import KnownStep
from stepwell.sessions.narration import Narrator, with_usage
from stepwell.sessions.occurrence import Note
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution
from stepwell.sessions.snapshot_chain import SnapshotChain
from stepwell.state import AgentState, ToolOutcome

GOES_ON_LATER = ContinueRequest(source="AppServer", message="a person may take it up again")


class FinalState(Struct, frozen=True):
    """What storing it came to."""

    row: Execution
    """With the counts and the snapshot of the state."""
    seen: frozenset[str] = frozenset()
    """The messages of users that it has."""
    notes: tuple[Note, ...] = ()
    """The text for people about calls whose outcome is unknown."""


async def store_final_state(
    tx: Transaction, execution: Execution, end: End, deps: EndDeps, at: datetime
) -> FinalState:
    """Store the state that an execution ends with; none if it was never claimed, or if what is
    stored can't be read."""
    if execution.last_snapshot_id is None and execution.attempt == 0:
        return FinalState(execution)
    chain = SnapshotChain(deps.settings.snapshot_growth)
    outcome = resolve([GOES_ON_LATER.as_evaluation()]) if end.is_resumable else end.outcome
    try:
        stored, before = await _load(tx, execution, chain, at)
        intent = await tx.intent(execution.id)
        known = KnownStep.as_far_as_readable(intent, before.step_number)
        stopped = stopped_attempts(execution)
        state = with_interrupted_step(before, known, outcome, at, stopped=stopped)
        row = execution if state is before else with_usage(execution, state)
        notes = () if state is before else unknown_outcome_notes(row, state)
        seen = user_message_ids(state)
        if not end.is_resumable:
            state = end_state(state, outcome, deps.clock)
        if state is stored:
            return FinalState(row, seen)
        id = derived_id(execution.id, "ended", execution.attempt, end.status, "snapshot")
        snapshot = chain.next(execution, state, id=id, at=at, is_final=True)
    except (SerializationError, NotThereError):
        return FinalState(execution)
    await tx.add_snapshot(snapshot)
    return FinalState(replace(row, last_snapshot_id=snapshot.id), seen, notes)


async def _load(
    tx: Transaction, execution: Execution, chain: SnapshotChain, at: datetime
) -> tuple[AgentState | None, AgentState]:
    """The newest state that it stored, and the one to go on from: one that crashed or broke in its
    first step stored none, and still the session must not lose its messages."""
    if execution.last_snapshot_id is not None:
        stored = await chain.load(tx, execution.last_snapshot_id)
        return stored, stored
    known = await load_session_state(tx, execution, chain)
    sent = await messages_to_answer(tx, execution)
    return None, first_state(execution, known, sent, at)


def end_state(state: AgentState, outcome: ContinuationOutcome, clock: Clock) -> AgentState:
    """A state that a run was going to go on from, ended; what it waited for is not answered."""
    return state.with_outcome(outcome, clock).with_run_left()


def unknown_outcome_notes(row: Execution, state: AgentState) -> tuple[Note, ...]:
    """The text for people about the calls of the newest step whose outcome is unknown."""
    narrator, step = Narrator(row, state.step_count), state.current_step
    executions = () if step is None else step.tool_executions
    return tuple(narrator.came_to(it) for it in executions if it.outcome is ToolOutcome.UNKNOWN)

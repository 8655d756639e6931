"""Stored executions as people and programs read them: states, steps, and the whole trace.

Called by the routes and by whoever changes a stored state. Never writes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import to_builtins

from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.hints import only_words, stop_of
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.reading_steps import message_as_data, step_as_data
from stepwell.sessions.records import Execution, SessionMessage, Snapshot
from stepwell.sessions.removed_snapshots import (
    has_no_states_any_more,
    require_states,
    states_removed_text,
)
from stepwell.state import AgentState

_SERIALIZER = AgentStateSerializer()
PAGE = 500
DEEPEST = 20
"""Subagents of subagents that a trace follows."""


class Reader:
    """Reads what a store keeps of executions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def state_of(self, snapshot_id: str) -> AgentState:
        """The state that a snapshot holds, rebuilt from its chain."""

        async def work(transaction: Transaction) -> Sequence[str]:
            snapshot = await transaction.snapshot(snapshot_id)
            if snapshot is None:
                raise NotThereError("snapshot", snapshot_id)
            return await transaction.chain(snapshot)

        whole, *increments = await self._store.read(work)
        return _SERIALIZER.from_increments(whole, increments)

    async def snapshot_json(self, snapshot_id: str) -> dict[str, Any]:
        """A snapshot as whole JSON, however it is stored."""
        return _SERIALIZER.serialize(await self.state_of(snapshot_id))

    async def state_at(self, execution_id: str, step_number: int | None = None) -> AgentState:
        """The newest state of an execution, or the newest before the step after that one. Raises
        ``StatesRemovedError`` if retention has deleted them."""
        snapshots = await self._store.read(lambda tx: _snapshots(tx, execution_id))
        fitting = snapshots
        if step_number is not None:
            fitting = [it for it in snapshots if it.step_number == step_number]
        if not fitting:
            known = sorted({it.step_number for it in snapshots})
            after = "" if step_number is None else f" after step {step_number}"
            raise RefusedError(
                f"execution {execution_id} has no stored state{after}; stored after steps: "
                f"{', '.join(map(str, known)) or '(none)'}",
                code="step_not_stored",
            )
        return await self.state_of(fitting[-1].id)

    async def steps(self, execution_id: str) -> list[dict[str, Any]]:
        """Every step of an execution with its tools, usage, times and the decision after it.
        Raises ``StatesRemovedError`` if retention has deleted them."""
        execution, state = await self._newest(execution_id)
        require_states(execution)
        return _steps(execution, state)

    async def trace(self, execution_id: str) -> dict[str, Any]:
        """All of it: the execution, why it stands where it does, steps, subagents, messages. The
        steps are missing if retention has deleted the states."""
        execution, state = await self._newest(execution_id)

        async def work(transaction: Transaction) -> tuple[list[Any], list[Any], int]:
            children = await _subagents(transaction, execution_id, DEEPEST)
            session_id = execution.session_id
            if session_id is None:
                return children, [], 0
            messages = await messages_that(
                transaction, session_id, lambda it: it.agent_execution_id == execution_id
            )
            oldest, newest = await transaction.event_range(session_id)
            return children, [message_as_data(it) for it in messages], newest - oldest + 1

        subagents, messages, event_count = await self._store.read(work)
        stop = {**_stop(execution, state), "status": execution.status.value}
        return {
            "execution": to_builtins(execution),
            "explanation": stop["text"],
            "stop": stop,
            "decision": execution.decision,
            "steps": _steps(execution, state),
            "subagents": subagents,
            "messages": messages,
            "event_count": event_count,
        }

    async def _newest(self, execution_id: str) -> tuple[Execution, AgentState | None]:
        async def work(transaction: Transaction) -> tuple[Execution, Sequence[Snapshot]]:
            execution = await transaction.execution(execution_id)
            if execution is None:
                raise NotThereError("execution", execution_id)
            return execution, await transaction.snapshots(execution_id)

        execution, snapshots = await self._store.read(work)
        if not snapshots:
            return execution, None
        return execution, await self.state_of(snapshots[-1].id)


async def _snapshots(transaction: Transaction, execution_id: str) -> Sequence[Snapshot]:
    snapshots = await transaction.snapshots(execution_id)
    if not snapshots:
        execution = await transaction.execution(execution_id)
        if execution is None:
            raise NotThereError("execution", execution_id)
        require_states(execution)
    return snapshots


def _steps(execution: Execution, state: AgentState | None) -> list[dict[str, Any]]:
    if state is None or state.execution is None or state.execution.id != execution.id:
        return []  # a fork has a snapshot before its first step: the state that it begins with
    return [step_as_data(recorded) for recorded in state.execution.steps]


def _stop(execution: Execution, state: AgentState | None) -> dict[str, Any]:
    """Why it stands where it does. What ended outside of the loop, as after crashes, left its words
    in the row, and a state that knows nothing of it."""
    if has_no_states_any_more(execution):
        why = "" if execution.stop_reason is None else f" ({execution.stop_reason})"
        text = f"The execution is {execution.status}{why}; {states_removed_text(execution)}."
        return {**only_words(text), "reason": execution.stop_reason}
    has_it = state is not None and state.execution and state.execution.id == execution.id
    if state is not None and has_it:
        is_the_loops = str(state.status) == str(execution.status)
        if is_the_loops or not execution.error_message:
            return stop_of(state)
    words = f"The execution is {execution.status}; no step of it is stored."
    return {**only_words(execution.error_message or words), "reason": execution.stop_reason}


async def _subagents(
    transaction: Transaction, execution_id: str, depth: int
) -> list[dict[str, Any]]:
    if not depth:
        return []
    return [
        {
            **to_builtins(child),
            "subagents": await _subagents(transaction, child.id, depth - 1),
        }
        for child in await transaction.executions(parent_execution_id=execution_id, limit=1000)
    ]


async def messages_that(
    transaction: Transaction, session_id: str, fits: Callable[[SessionMessage], bool]
) -> list[SessionMessage]:
    """The messages of a session that fit, in order; only these are held in memory."""
    found: list[SessionMessage] = []
    before = None
    while page := await transaction.messages(session_id, before=before, limit=PAGE):
        found += [message for message in reversed(page) if fits(message)]
        before = (page[0].created_at, page[0].id)
        if len(page) < PAGE:
            break
    return found[::-1]

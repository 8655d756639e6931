"""The transactions of a run: its start, each step, a pause, a hand-over, its end. Each changes the
row, stores the state and logs what was told, or does nothing. Called by the runner.
"""

import asyncio
import logging
from functools import partial
from typing import Any

from msgspec.structs import replace

from stepwell.continuation import StopReason
from stepwell.errors import SerializationError
from stepwell.sessions.cancelling import cancelled
from stepwell.sessions.directory import RegisteredAgent
from stepwell.sessions.ending import Ended, Means, end_at_once, unknown_outcomes
from stepwell.sessions.finishing import end_subagents, finish, point_to_newest
from stepwell.sessions.hints import explained
from stepwell.sessions.log import Told, append
from stepwell.sessions.ports import Jobs, Transaction
from stepwell.sessions.records import (
    EventType,
    Execution,
    ExecutionStatus,
    Snapshot,
)
from stepwell.sessions.recovery import SetAside
from stepwell.sessions.running import Held, Running
from stepwell.sessions.takeovers import stopped_attempts, takeover_of, takeover_text
from stepwell.sessions.telling import LONGEST_ERROR, counted, decided, output_of, told_pending
from stepwell.sessions.unstored import with_unstored_step
from stepwell.state import AgentState

logger = logging.getLogger("stepwell.sessions")

HANDED_OVER = "Its worker shuts down; another one goes on"


class Commits:
    """Writes what a run came to, at its boundaries."""

    def __init__(self, running: Running, jobs: Jobs, agent: RegisteredAgent | None) -> None:
        self._running = running
        self._jobs = jobs
        self._agent = agent
        self._means = Means(jobs=jobs, clock=running.clock, settings=running.settings)

    async def start(self, state: AgentState, *, is_new: bool) -> None:
        """It begins, or goes on; what an earlier attempt told is not told again."""
        running, agent, at = self._running, self._agent, self._running.clock.now()
        claimed = running.execution
        snapshot = await self._snapshot(state) if is_new else None
        note = running.narrator.note
        running.say(note(EventType.EXECUTION_STARTED, "Execution started", at))
        if (takeover := takeover_of(claimed)) is not None:
            running.say(
                note(
                    EventType.EXECUTION_STARTED,
                    takeover_text(takeover),
                    at,
                    parts=("taken over", claimed.attempt),
                    metadata={"takeover": takeover},
                )
            )
        has_changed = agent is not None and claimed.definition_hash != agent.definition_hash
        if agent is not None and has_changed and claimed.last_snapshot_id is not None:
            running.say(
                note(
                    EventType.EXECUTION_STARTED,
                    f"The definition of agent {agent.name!r} changed since this execution began; "
                    "it goes on with the new one.",
                    at,
                    parts=("changed", agent.definition_hash),
                    metadata={"definition_changed": True},
                )
            )
        running.log.begin()

        async def change(tx: Transaction, held: Held) -> None:
            row = _begun(running.row(held), agent)
            row = replace(row, started_at=row.started_at or at)
            cut_off = await end_subagents(tx, row, but_paused=True) if claimed.attempt > 1 else []
            if not running.settings.broadcast.auto_status_tracking:
                cut_off = []
            await self._save(tx, row, snapshot)
            if held.session is not None:
                events = [*cut_off, *held.told.events]
                await append(tx, held.session, Told(held.told.messages, events))

        await running.commit("start", change, mark=None if snapshot is None else snapshot.id)
        if snapshot is not None:
            running.snapshots.stored(snapshot, state)

    async def step(self, state: AgentState, *, hands_over: bool = False) -> None:
        """A step is done and the run goes on, here or with another worker."""
        running = self._running
        snapshot = await self._snapshot(state)
        running.say_more(state)
        if hands_over:
            parts = ("handed over", running.execution.attempt)
            at = running.clock.now()
            running.say(
                running.narrator.note(EventType.EXECUTION_QUEUED, HANDED_OVER, at, parts=parts)
            )

        async def change(tx: Transaction, held: Held) -> None:
            row = replace(counted(running.row(held), state), crashes=0)
            if hands_over:
                row = replace(row, status=ExecutionStatus.PENDING, worker_id=None, lease_until=None)
            await self._save(tx, row, snapshot)
            await tx.settle(row.id, state.step_count)
            if held.session is not None:
                await append(tx, held.session, held.told)
            if hands_over:
                await self._jobs.enqueue(tx, row.id)

        await running.commit("step", change, held=True, mark=snapshot.id, lets_go=hands_over)
        running.snapshots.stored(snapshot, state)
        running.response = None

    async def pause(self, state: AgentState) -> ExecutionStatus:
        """It waits for a person; nothing of it stays in memory. If somebody wanted its end
        meanwhile, nobody would hear of that any more, so it ends."""
        running, status = self._running, ExecutionStatus.PAUSED
        snapshot = await self._snapshot(state)
        running.say_more(state)
        running.say(running.narrator.paused(state, running.clock.now()))

        async def change(tx: Transaction, held: Held) -> None:
            nonlocal status
            row = replace(
                decided(counted(running.row(held), state), state.stop),
                status=ExecutionStatus.PAUSED,
                pending=told_pending(state),
                crashes=0,
                worker_id=None,
                lease_until=None,
            )
            row = await self._save(tx, row, snapshot)
            await tx.settle(row.id, state.step_count)
            if held.session is not None:
                await append(tx, held.session, held.told)
            if row.cancel_requested is not None:
                status = ExecutionStatus.CANCELLED
                await end_at_once(tx, row, cancelled(row.cancel_requested), self._means)
            elif held.session is not None:
                await point_to_newest(tx, held.session, row)

        await running.commit("pause", change, held=True, mark=snapshot.id, lets_go=True)
        return status

    async def finish(self, state: AgentState) -> ExecutionStatus:
        """Its end, as the run itself decided it."""
        running, at = self._running, self._running.clock.now()
        status = ExecutionStatus.after(state.status)
        state = await self._with_unstored(state)
        snapshot = await self._snapshot(state, is_final=True)
        running.say_more(state)
        running.say(*running.narrator.ended(state, status, at))

        async def change(tx: Transaction, held: Held) -> None:
            row = running.row(held)
            row = replace(
                decided(counted(row, state), state.stop),
                status=status,
                output=output_of(state),
                error_message=_error(state) if status is ExecutionStatus.FAILED else None,
                pending=(),
                crashes=0,
                completed_at=at,
                last_snapshot_id=snapshot.id,
                metadata=running.with_told_status(row.metadata),
            )
            await tx.add_snapshot(snapshot)
            tells = running.settings.broadcast.auto_status_tracking
            await finish(
                tx,
                self._jobs,
                row,
                held.session,
                held.told,
                unseen=[sent for sent in running.steering if sent.id not in running.seen],
                tells_statuses=tells,
            )

        await running.commit("finish", change, held=True, mark=snapshot.id, lets_go=True)
        if status is ExecutionStatus.FAILED:
            _log_failure(running.execution, _error(state))
        return status

    async def set_aside(self, aside: SetAside) -> ExecutionStatus:
        """An end that no run decided; a person can take it up again."""
        status = ExecutionStatus.FAILED if aside.is_failure else ExecutionStatus.STOPPED
        return await self._ended_as(
            Ended(
                status=status,
                stop_reason=aside.stop_reason,
                words=aside.text,
                text=aside.text,
                set_aside=aside.why,
                is_resumable=aside.is_resumable,
            )
        )

    async def cancel(self, words: str) -> ExecutionStatus:
        """It was to end before this attempt began."""
        return await self._ended_as(cancelled(words))

    async def _ended_as(self, ended: Ended) -> ExecutionStatus:
        running, status = self._running, ended.status
        await running.log.drop_held()

        async def change(tx: Transaction, held: Held) -> None:
            nonlocal status
            row = running.row(held)
            row = replace(row, metadata=running.with_told_status(row.metadata))
            if held.session is not None:
                await append(tx, held.session, held.told)
            wish = row.cancel_requested
            row = await end_at_once(
                tx, row, ended if wish is None else cancelled(wish), self._means
            )
            status = row.status

        await running.commit("finish", change, held=True, mark="ended", lets_go=True)
        if status is ExecutionStatus.FAILED:
            _log_failure(running.execution, ended.words)
        return status

    async def _with_unstored(self, state: AgentState) -> AgentState:
        """The state with the calls of a step that began and did not become one: its end was
        decided before the step was taken again, or within it."""
        running, number = self._running, state.step_number
        if running.open_step != number or state.stop is None:
            return state
        id, at = running.execution.id, running.clock.now()
        ledger = await running.read(lambda tx: tx.ledger(id, number))
        state = with_unstored_step(
            state, ledger, state.stop, at, stopped=stopped_attempts(running.execution)
        )
        running.say(*unknown_outcomes(running.execution, state))
        return state

    async def _snapshot(self, state: AgentState, *, is_final: bool = False) -> Snapshot:
        running = self._running
        make = partial(
            running.snapshots.next,
            running.execution,
            state,
            id=running.new_id(),
            at=running.clock.now(),
            is_final=is_final,
        )
        return await asyncio.to_thread(make) if running.snapshots.is_large(state) else make()

    async def _save(self, tx: Transaction, row: Execution, snapshot: Snapshot | None) -> Execution:
        row = replace(row, metadata=self._running.with_told_status(row.metadata))
        if snapshot is not None:
            await tx.add_snapshot(snapshot)
            row = replace(row, last_snapshot_id=snapshot.id)
        await tx.save_execution(row)
        return row


def unstorable(error: SerializationError, what: str) -> SetAside:
    """A state that can't be kept, or one that can't be read any more."""
    return SetAside(
        why="state",
        is_failure=True,
        is_resumable=False,
        stop_reason=StopReason.ERROR,
        text=f"The state of the execution can't be {what}: {error}",
    )


def _begun(row: Execution, agent: RegisteredAgent | None) -> Execution:
    metadata: dict[str, Any] = {k: v for k, v in row.metadata.items() if k != "set_aside"}
    if agent is None:
        return row
    if row.last_snapshot_id is not None and row.definition_hash != agent.definition_hash:
        change = {
            "from": row.definition_hash,
            "to": agent.definition_hash,
            "step": row.step_count + 1,
        }
        metadata["definition_changes"] = [*metadata.get("definition_changes", ()), change]
    return replace(
        row,
        status=ExecutionStatus.RUNNING,
        definition_hash=agent.definition_hash,
        agent_config=agent.config,
        metadata=metadata,
        pending=(),
        decision=None,
        stop_reason=None,
        error_message=None,
        completed_at=None,
    )


def _log_failure(execution: Execution, why: str) -> None:
    """One line, however long the reason is."""
    line = " ".join(why.split())[:LONGEST_ERROR]
    logger.warning("execution %s (session %s) failed: %s", execution.id, execution.session_id, line)


def _error(state: AgentState) -> str:
    step = state.current_step
    errors = () if step is None else step.errors
    return "; ".join(error.text for error in errors) or explained(state)

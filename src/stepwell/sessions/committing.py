"""The transactions of a run: its start, each step, a pause, a hand-over, its end. Each changes the
row, stores the state and logs what was told, or does nothing. Called by the runner.
"""

from typing import Any

from msgspec.structs import replace

from stepwell.broadcasting.envelope import BroadcastStatus
from stepwell.continuation import StopReason
from stepwell.errors import SerializationError
from stepwell.sessions.directory import RegisteredAgent
from stepwell.sessions.finishing import end_subagents, finish
from stepwell.sessions.ids import derived_id
from stepwell.sessions.log import Told, append, message_event
from stepwell.sessions.ports import Jobs, Transaction
from stepwell.sessions.queueing import later_than, queued_execution, queued_message
from stepwell.sessions.records import (
    EventType,
    Execution,
    ExecutionStatus,
    Session,
    Snapshot,
)
from stepwell.sessions.recovery import SetAside
from stepwell.sessions.running import Running
from stepwell.sessions.telling import output_of, pending_data, token_details
from stepwell.state import AgentState

HANDED_OVER = "Its worker shuts down; another one goes on"


class Commits:
    """Writes what a run came to, at its boundaries."""

    def __init__(self, running: Running, jobs: Jobs, agent: RegisteredAgent | None) -> None:
        self._running = running
        self._jobs = jobs
        self._agent = agent

    async def start(self, state: AgentState, *, is_new: bool) -> None:
        """It begins, or goes on; what an earlier attempt told is not told again."""
        running, agent, at = self._running, self._agent, self._running.clock.now()
        claimed = running.execution
        snapshot = self._snapshot(state) if is_new else None
        note = running.narrator.note
        running.say(note(EventType.EXECUTION_STARTED, "Execution started", at))
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

        async def change(tx: Transaction, session: Session | None, told: Told) -> None:
            row = _begun(await running.row(tx), agent)
            row = replace(row, started_at=row.started_at or at)
            if claimed.attempt > 1:
                await end_subagents(tx, row, but_paused=True)
            await self._save(tx, row, snapshot)
            if session is not None:
                await append(tx, session, told)

        await running.commit("start", change, mark=None if snapshot is None else snapshot.id)
        if snapshot is not None:
            running.snapshots.stored(snapshot, state)

    async def step(self, state: AgentState, *, hands_over: bool = False) -> None:
        """A step is done and the run goes on, here or with another worker."""
        running = self._running
        snapshot = self._snapshot(state)
        if hands_over:
            parts = ("handed over", running.execution.attempt)
            at = running.clock.now()
            running.say(
                running.narrator.note(EventType.EXECUTION_QUEUED, HANDED_OVER, at, parts=parts)
            )

        async def change(tx: Transaction, session: Session | None, told: Told) -> None:
            row = replace(_counted(await running.row(tx), state), crashes=0)
            if hands_over:
                row = replace(row, status=ExecutionStatus.PENDING, worker_id=None, lease_until=None)
            await self._save(tx, row, snapshot)
            await tx.settle(row.id, state.step_count)
            if session is not None:
                await append(tx, session, told)
            if hands_over:
                await self._jobs.enqueue(tx, row.id)

        await running.commit("step", change, held=True, mark=snapshot.id)
        running.snapshots.stored(snapshot, state)
        running.response = None

    async def pause(self, state: AgentState) -> ExecutionStatus:
        """It waits for a person; nothing of it stays in memory."""
        running = self._running
        snapshot = self._snapshot(state)
        running.say(running.narrator.paused(state, running.clock.now()))

        async def change(tx: Transaction, session: Session | None, told: Told) -> None:
            row = replace(
                _decided(_counted(await running.row(tx), state), state),
                status=ExecutionStatus.PAUSED,
                pending=tuple(pending_data(state, n) for n in range(len(state.pending))),
                crashes=0,
                worker_id=None,
                lease_until=None,
            )
            await self._save(tx, row, snapshot)
            await tx.settle(row.id, state.step_count)
            if session is not None:
                await append(tx, session, told)
                latest = {"last_execution_id": row.id, "last_snapshot_id": snapshot.id}
                await tx.save_session(replace(session, updated_at=row.updated_at, **latest))

        await running.commit("pause", change, held=True, mark=snapshot.id)
        return ExecutionStatus.PAUSED

    async def finish(self, state: AgentState) -> ExecutionStatus:
        """Its end, as the run itself decided it."""
        running, at = self._running, self._running.clock.now()
        status = ExecutionStatus.after(state.status)
        snapshot = self._snapshot(state, is_final=True)
        running.say(*running.narrator.ended(state, status, at))

        async def change(tx: Transaction, session: Session | None, told: Told) -> None:
            row = replace(
                _decided(_counted(await running.row(tx), state), state),
                status=status,
                output=output_of(state),
                error_message=_error(state) if status is ExecutionStatus.FAILED else None,
                pending=(),
                crashes=0,
                completed_at=at,
                last_snapshot_id=snapshot.id,
                metadata=running.with_told_status((await running.row(tx)).metadata),
            )
            await tx.add_snapshot(snapshot)
            await tx.settle(row.id, state.step_number)
            if session is not None:
                told = await self._with_unseen(tx, session, state, told)
            await finish(tx, self._jobs, row, told.messages, told.events)

        await running.commit("finish", change, held=True, mark=snapshot.id)
        return status

    async def set_aside(self, aside: SetAside) -> ExecutionStatus:
        """An end that no run decided; a person can take it up again."""
        running, at = self._running, self._running.clock.now()
        status = ExecutionStatus.FAILED if aside.is_failure else ExecutionStatus.STOPPED
        metadata = {"set_aside": aside.why, "stop_reason": str(aside.stop_reason)}
        await running.log.drop_held()
        running.say(running.narrator.ended_with(status, aside.text, at, metadata))
        running.log.end(BroadcastStatus(status.value), aside.stop_reason, aside.text)

        async def change(tx: Transaction, session: Session | None, told: Told) -> None:
            del session
            row = await running.row(tx)
            row = replace(
                row,
                status=status,
                error_message=aside.text,
                stop_reason=str(aside.stop_reason),
                completed_at=at,
                metadata={**running.with_told_status(row.metadata), "set_aside": aside.why},
            )
            await finish(tx, self._jobs, row, told.messages, told.events)

        await running.commit("finish", change, held=True)
        return status

    def _snapshot(self, state: AgentState, *, is_final: bool = False) -> Snapshot:
        running = self._running
        return running.snapshots.next(
            running.execution,
            state,
            id=running.new_id(),
            at=running.clock.now(),
            is_final=is_final,
        )

    async def _save(self, tx: Transaction, row: Execution, snapshot: Snapshot | None) -> None:
        metadata = self._running.with_told_status(row.metadata)
        row = replace(row, metadata=metadata)
        if snapshot is not None:
            await tx.add_snapshot(snapshot)
            row = replace(row, last_snapshot_id=snapshot.id)
        await tx.save_execution(row)

    async def _with_unseen(
        self, tx: Transaction, session: Session, state: AgentState, told: Told
    ) -> Told:
        """Messages that came too late to be seen get an execution of their own."""
        running, agent = self._running, self._agent
        sent = await tx.steering_messages(running.execution.id)
        unseen = [message for message in sent if message.id not in running.seen]
        if not unseen or agent is None:
            return told
        at = later_than(session, running.clock.now())
        execution = queued_execution(
            session,
            agent,
            id=derived_id(state.agent_id, "unseen", *(message.id for message in unseen)),
            user_id=running.execution.user_id or session.user_id,
            at=at,
            message_ids=[message.id for message in unseen],
        )
        await tx.add_execution(execution)
        queued = queued_message(execution, session, at)
        event = message_event(queued, EventType.EXECUTION_QUEUED)
        return Told([*told.messages, queued], [*told.events, event])


def unstorable(error: SerializationError, what: str) -> SetAside:
    """A state that can't be kept, or one that can't be read any more."""
    return SetAside(
        why="state",
        is_failure=True,
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


def _counted(row: Execution, state: AgentState) -> Execution:
    return replace(
        row,
        step_count=state.step_count,
        token_usage=state.usage.total_tokens,
        token_details=token_details(state.usage),
        cost=state.cost,
    )


def _decided(row: Execution, state: AgentState) -> Execution:
    stop = state.stop
    if stop is None:
        return row
    reason = None if stop.stop_reason is None else str(stop.stop_reason)
    return replace(row, stop_reason=reason, decision=stop.to_dict())


def _error(state: AgentState) -> str:
    step = state.current_step
    errors = () if step is None else step.errors
    return "; ".join(error.text for error in errors) or state.explain()

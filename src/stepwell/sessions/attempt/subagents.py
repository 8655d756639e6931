"""The subagents of a running execution, as executions of their own: a row while they run, with a
whole snapshot when they begin and once they ended or wait for a person. Each snapshot points to the
newest of its own parent.

Called by whoever runs a subagent, through the scope of the run that started it.
"""

from collections.abc import Callable

from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.continuation import AgentStatus
from stepwell.errors import SerializationError
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.journal_buffer import JournalBuffer
from stepwell.sessions.attempt.writer import Work, Writer
from stepwell.sessions.ids import derived_id
from stepwell.sessions.narration import AGENT_ID, output_of, pending_data, with_decision, with_usage
from stepwell.sessions.occurrence import Occurrence
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, Snapshot
from stepwell.sessions.settled_seq import FIRST_SEQ
from stepwell.sessions.snapshot_chain import whole_snapshot
from stepwell.state import AgentState


class SubagentRun:
    """One run of a subagent inside a call of its parent."""

    def __init__(
        self,
        root: Execution,
        writer: Writer,
        journal: JournalBuffer,
        clock: Clock,
        *,
        parent_id: str,
        parent_snapshot: Callable[[], str | None],
        name: str,
        call_id: str,
    ) -> None:
        self._root = root
        self._writer = writer
        self._journal = journal
        self._clock = clock
        self._parent_id = parent_id
        self._parent_snapshot = parent_snapshot
        self._name = name
        self._call_id = call_id
        self._execution_id = ""
        self._newest_snapshot: str | None = None

    def for_subagent(self, *, name: str, call_id: str) -> "SubagentRun":
        """Return what the run of its own subagent is given."""
        return SubagentRun(
            self._root,
            self._writer,
            self._journal,
            self._clock,
            parent_id=self._execution_id,
            parent_snapshot=lambda: self._newest_snapshot,
            name=name,
            call_id=call_id,
        )

    async def begin(self, state: AgentState) -> None:
        """Add its row, or mark the row running again if it waited for a person."""
        if self._writer.flush is not None:
            await self._writer.flush()  # its snapshots point to its parent's
        row = self._row(state)
        self._execution_id = row.id
        self._journal.add_execution(row.id)
        snapshot = self._snapshot(row, state)
        if snapshot is not None:
            row = replace(row, last_snapshot_id=snapshot.id)

        async def work(tx: Transaction) -> None:
            await tx.fence(self._root)
            known = await tx.execution(row.id)
            self._newest_snapshot = (known or row).last_snapshot_id
            if known is None:
                await tx.add_execution(row)
                if snapshot is not None:
                    await tx.add_snapshot(snapshot)
            else:
                running = replace(known, status=ExecutionStatus.RUNNING, pending=())
                await tx.save_execution(replace(running, updated_at=row.updated_at))

        async with self._writer as store:
            await store.write(work, name="subagent.begin")

    async def end(self, state: AgentState) -> None:
        """Save its row and its state, together with what happened: an end that is stored is in the
        journal."""
        row = _with_result(self._row(state), state)
        row = replace(row, completed_at=row.updated_at if row.status.is_terminal else None)
        snapshot = self._snapshot(row, state)
        async with self._writer as store:
            work = self._save_work(row, snapshot, self._journal.take())
            await store.write(work, name="subagent.end")

    def _save_work(
        self, row: Execution, snapshot: Snapshot | None, happened: list[Occurrence]
    ) -> Work[None]:
        async def work(tx: Transaction) -> None:
            session_id = self._root.session_id
            session = None if session_id is None else await tx.session(session_id, lock=True)
            await tx.fence(self._root)
            known = await tx.execution(row.id)
            has_committed = known is not None and known.updated_at == row.updated_at
            if session is not None and not has_committed:
                await tx.append(session, happened)
            if known is None or has_committed:
                return
            kept = {
                name: getattr(known, name)
                for name in ("created_at", "started_at", "attempt", "input", "last_snapshot_id")
            }
            if snapshot is not None and known.last_snapshot_id != snapshot.id:
                await tx.add_snapshot(snapshot)
                kept["last_snapshot_id"] = snapshot.id
            await tx.save_execution(replace(row, **kept))

        return work

    def _snapshot(self, row: Execution, state: AgentState) -> Snapshot | None:
        id = derived_id(row.id, "snapshot", state.step_count, row.status)
        try:
            whole = whole_snapshot(row, state, id=id, at=row.updated_at)
        except SerializationError:  # its parent's call has the result all the same
            return None
        return replace(
            whole, parent_snapshot_id=self._parent_snapshot(), is_final=row.status.is_terminal
        )

    def _row(self, state: AgentState) -> Execution:
        root, at = self._root, self._clock.now()
        prompt = next((message.text for message in state.messages if message.is_user()), "")
        first_seq = {key: root.metadata[key] for key in (FIRST_SEQ,) if key in root.metadata}
        return Execution(
            id="" if state.execution is None else state.execution.id,
            tenant_id=root.tenant_id,
            session_id=root.session_id,
            user_id=root.user_id,
            parent_execution_id=self._parent_id,
            agent_type=self._name,
            definition_hash=root.definition_hash,
            status=ExecutionStatus.RUNNING,
            agent_config={"subagent": self._name, "of": root.agent_type},
            input={"prompt": prompt},
            metadata={AGENT_ID: state.agent_id, "parent_tool_call_id": self._call_id, **first_seq},
            created_at=at,
            updated_at=at,
            started_at=at,
        )


def _with_result(row: Execution, state: AgentState) -> Execution:
    status = ExecutionStatus.of(state.status)
    is_done = state.status is AgentStatus.COMPLETED
    return replace(
        with_decision(with_usage(row, state), state.stop),
        status=status,
        output=output_of(state),
        pending=pending_data(state),
        error_message=None if is_done or not status.is_terminal else state.explain(),
    )

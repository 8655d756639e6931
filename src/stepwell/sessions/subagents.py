"""The subagents of a running execution, as executions of their own: a row while they run, with a
whole snapshot when they begin and once they ended or wait for a person. Each snapshot points to the
newest of its own parent. Hooks, inherited by every subagent.
"""

from msgspec.structs import replace

from stepwell.continuation import AgentStatus
from stepwell.errors import SerializationError
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.sessions.ids import derived_id
from stepwell.sessions.log import append
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, ExecutionStatus, Snapshot
from stepwell.sessions.running import Held, Running, running_above
from stepwell.sessions.settled import FIRST_SEQ
from stepwell.sessions.snapshotting import whole_snapshot
from stepwell.sessions.telling import AGENT_ID, counted, decided, output_of, told_pending
from stepwell.state import AgentState

LAST = -1_000_000
"""Behind all other hooks, so that what they leave is what is stored."""


def subagent_hooks() -> tuple[Hook, ...]:
    """What the plan of a session's agent is given."""
    begun, ended = HookTrigger.BEFORE_EXECUTION, HookTrigger.AFTER_EXECUTION
    return (
        make_hook(begun, _begun, priority=LAST, name="subagent rows", inherited=True),
        make_hook(ended, _ended, priority=LAST, name="subagent rows", inherited=True),
    )


async def _begun(context: HookContext) -> None:
    running = running_above(context.state)
    if running is None or context.state.execution is None:
        return
    row = _row(running, context.state)
    running.execution_ids[context.state.agent_id] = row.id
    running.log.add_execution(row.id)
    snapshot = _snapshot(running, row, context.state)
    if snapshot is not None:
        row = replace(row, last_snapshot_id=snapshot.id)

    async def note(tx: Transaction, held: Held) -> None:
        known = await tx.execution(row.id)
        _note_snapshot(running, known or row)
        if known is None:
            await tx.add_execution(row)
            if snapshot is not None:
                await tx.add_snapshot(snapshot)
        else:  # it waited for a person, and goes on
            running_again = replace(known, status=ExecutionStatus.RUNNING, pending=())
            await tx.save_execution(replace(running_again, updated_at=row.updated_at))
        if held.session is not None:
            await append(tx, held.session, held.told)

    await running.commit("child.begin", note)


async def _ended(context: HookContext) -> None:
    state = context.state
    running = running_above(state)
    if running is None or state.execution is None:
        return
    at = running.clock.now()
    row = _with_result(_row(running, state), state)
    row = replace(row, completed_at=at if row.status.is_over else None)
    snapshot = _snapshot(running, row, state)

    async def note(tx: Transaction, held: Held) -> None:
        known = await tx.execution(row.id)
        if known is None:
            return
        kept = {
            name: getattr(known, name)
            for name in ("created_at", "started_at", "attempt", "input", "last_snapshot_id")
        }
        if snapshot is not None and known.last_snapshot_id != snapshot.id:
            await tx.add_snapshot(snapshot)
            kept["last_snapshot_id"] = snapshot.id
        ended = replace(row, **kept)
        _note_snapshot(running, ended)
        await tx.save_execution(ended)
        if held.session is not None:
            await append(tx, held.session, held.told)

    await running.commit("child.end", note)


def _snapshot(running: Running, row: Execution, state: AgentState) -> Snapshot | None:
    id = derived_id(row.id, "snapshot", state.step_count, row.status)
    try:
        whole = whole_snapshot(row, state, id=id, at=row.updated_at)
    except SerializationError:  # its parent's call has the result all the same
        return None
    parent = running.snapshots.newest_id
    if row.parent_execution_id != running.execution.id:
        parent = running.newest_snapshots.get(row.parent_execution_id or "")
    return replace(whole, parent_snapshot_id=parent, is_final=row.status.is_over)


def _note_snapshot(running: Running, row: Execution) -> None:
    if row.last_snapshot_id is not None:
        running.newest_snapshots[row.id] = row.last_snapshot_id


def _row(running: Running, state: AgentState) -> Execution:
    root, at = running.execution, running.clock.now()
    parent = running.execution_ids.get(state.parent_agent_id or "", root.id)
    prompt = next((message.text for message in state.messages if message.is_user()), "")
    spawned = running.spawned.get(state.agent_id)
    name = "subagent" if spawned is None else spawned.name
    call = {} if spawned is None else {"parent_tool_call_id": spawned.call_id}
    return Execution(
        id="" if state.execution is None else state.execution.id,
        tenant_id=root.tenant_id,
        session_id=root.session_id,
        user_id=root.user_id,
        parent_execution_id=parent,
        agent_type=name,
        definition_hash=root.definition_hash,
        status=ExecutionStatus.RUNNING,
        agent_config={"subagent": name, "of": root.agent_type},
        input={"prompt": prompt},
        metadata={AGENT_ID: state.agent_id, **call, **_first_seq(root)},
        created_at=at,
        updated_at=at,
        started_at=at,
    )


def _first_seq(root: Execution) -> dict[str, int]:
    """Nothing is told of a subagent before its root begins; when exactly, nobody has noted."""
    return {name: root.metadata[name] for name in (FIRST_SEQ,) if name in root.metadata}


def _with_result(row: Execution, state: AgentState) -> Execution:
    status = ExecutionStatus.after(state.status)
    is_done = state.status is AgentStatus.COMPLETED
    return replace(
        decided(counted(row, state), state.stop),
        status=status,
        output=output_of(state),
        pending=told_pending(state),
        error_message=None if is_done or not status.is_over else state.explain(),
    )

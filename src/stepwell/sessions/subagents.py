"""The subagents of a running execution, as executions of their own: a row while they run, with a
whole snapshot once they ended or wait for a person. Hooks, inherited by every subagent.
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

    async def note(tx: Transaction, held: Held) -> None:
        known = await tx.execution(row.id)
        if known is None:
            await tx.add_execution(row)
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
    row = replace(row, last_snapshot_id=None if snapshot is None else snapshot.id)

    async def note(tx: Transaction, held: Held) -> None:
        known = await tx.execution(row.id)
        if known is None:
            return
        begun = {"created_at": known.created_at, "started_at": known.started_at}
        if snapshot is not None and known.last_snapshot_id != snapshot.id:
            await tx.add_snapshot(snapshot)
        await tx.save_execution(replace(row, attempt=known.attempt, input=known.input, **begun))
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
    return replace(whole, parent_snapshot_id=parent, is_final=row.status.is_over)


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

"""The snapshots that a running execution leaves: each is an increment on the one before, and costs
what a step added. A chain starts with a full state. It restarts when it is many times the size of
its state, or where an execution ends or pauses, if that costs no more than what was added since.
"""

import asyncio
from datetime import datetime

from msgspec.structs import replace

from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.errors import NotThereError
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import Execution, Snapshot
from stepwell.state import AgentState

_SERIALIZER = AgentStateSerializer()
LARGEST_WHOLE = 256_000
"""Characters up to which the end of an execution is stored whole; people read no longer ones."""
_SMALL = 64_000
"""Characters of documents that are read within a millisecond."""
_LARGE = 1_000_000
"""Characters of a state, roughly: some milliseconds to encode."""


class SnapshotChain:
    """Knows the newest stored state. Costs what a step added, not what came before."""

    def __init__(self, growth: float) -> None:
        self._growth = growth
        self._newest: Snapshot | None = None
        self._state: AgentState | None = None
        self._sizes = (0, 0)
        self._whole_size = 0
        self._is_newest = True

    @property
    def newest_id(self) -> str | None:
        """The newest stored snapshot."""
        return None if self._newest is None else self._newest.id

    async def load(self, tx: Transaction, snapshot_id: str) -> AgentState:
        """The state of that snapshot, which the next one follows."""
        snapshot = await tx.snapshot(snapshot_id)
        if snapshot is None:
            raise NotThereError("snapshot", snapshot_id)
        whole, *increments = await tx.chain(snapshot)
        self._sizes = (len(whole), sum(map(len, increments)))
        if sum(self._sizes) < _SMALL:
            self._state = _SERIALIZER.from_increments(whole, increments)
        else:  # beside the loop
            self._state = await asyncio.to_thread(_SERIALIZER.from_increments, whole, increments)
        self._newest = snapshot
        self._whole_size = len(whole)
        # An execution that was set aside and is resumed: others have gone on from here meanwhile.
        self._is_newest = await tx.is_end_of_chain(snapshot)
        return self._state

    async def has_its_place(self, tx: Transaction) -> bool:
        """Whether the newest one is where it was loaded: retention may since have made a chain of
        its own of it, and what follows it must follow there."""
        if self._newest is None:
            return True
        now = await tx.snapshot(self._newest.id)
        place = (self._newest.chain_id, self._newest.position)
        return now is not None and (now.chain_id, now.position) == place

    def is_large(self, state: AgentState) -> bool:
        """Whether to write that state takes so long that it is done beside the loop."""
        step = state.current_step
        new = 0 if step is None else sum(len(it.text) for it in step.tool_executions)
        return sum(self._sizes) + new >= _LARGE

    def next(
        self,
        execution: Execution,
        state: AgentState,
        *,
        id: str,
        at: datetime,
        is_final: bool,
        is_pause: bool = False,
    ) -> Snapshot:
        """The snapshot of that state, not stored yet; raises ``SerializationError``."""
        newest, before = self._newest, self._state
        if newest is None or before is None or not self._is_newest or self._has_outgrown(state):
            chain_id, position, document = id, 0, _SERIALIZER.to_json(state)
        else:
            chain_id, position = newest.chain_id, newest.position + 1
            document = _SERIALIZER.increment_to_json(before, state)
            if (is_final or is_pause) and self._has_doubled(len(document)):
                chain_id, position, document = id, 0, _SERIALIZER.to_json(state)
        return Snapshot(
            id=id,
            tenant_id=execution.tenant_id,
            agent_execution_id=execution.id,
            chain_id=chain_id,
            position=position,
            step_number=state.step_count,
            state_json=document.decode(),
            created_at=at,
            is_final=is_final,
            agent_id=state.agent_id,
            agent_name=execution.agent_type,
        )

    def _has_doubled(self, added: int) -> bool:
        """Whether the increments since the last whole document are as long as it is. So whole ones
        cost at most twice what the increments do, however many executions a session has."""
        whole, increments = self._sizes
        return whole <= increments + added <= LARGEST_WHOLE - whole

    def _has_outgrown(self, state: AgentState) -> bool:
        """Whether the chain is so many times the size of the state that it holds. What only adds
        never is; what is written in each step, such as metadata, comes to it. Looked at each
        time the chain has grown by that factor, so that the cost per step stays the same."""
        chain = sum(self._sizes)
        if chain <= self._growth * self._whole_size:
            return False
        self._whole_size = len(_SERIALIZER.to_json(state).decode())
        return chain > self._growth * self._whole_size

    def mark_stored(self, snapshot: Snapshot, state: AgentState) -> None:
        """It is committed; the next one follows it."""
        size = len(snapshot.state_json)
        whole, increments = self._sizes
        self._sizes = (size, 0) if snapshot.is_whole else (whole, increments + size)
        if snapshot.is_whole:
            self._whole_size = size
        self._newest, self._state = replace(snapshot, state_json=""), state
        self._is_newest = True


def whole_snapshot(execution: Execution, state: AgentState, *, id: str, at: datetime) -> Snapshot:
    """A snapshot that stands alone, such as a subagent's."""
    return SnapshotChain(growth=1.0).next(execution, state, id=id, at=at, is_final=True)

"""A stored execution as a replay looks things up in it, and how it is read: each document once."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from stepwell.continuation import AgentStatus, ContinuationOutcome, StopSignal
from stepwell.messages import Message
from stepwell.replay.votes import OmittedHooks, outside_signals
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.ports import Store
from stepwell.sessions.records import Execution, Snapshot
from stepwell.state import AgentState, Pending, StepExecution, ToolExecution

_SERIALIZER = AgentStateSerializer()


async def load(store: Store, execution: Execution, snapshots: Sequence[Snapshot]) -> "ReplaySource":
    """All that is stored of it; there is a snapshot at least."""
    paused: dict[int, AgentState] = {}
    resumed: dict[int, AgentState] = {}
    metadata: dict[int, Mapping[str, Any]] = {}
    began: AgentState | None = None
    state: AgentState | None = None
    async for number, state in _states(store, snapshots):
        if began is None:
            began = state
            continue
        if state.status is AgentStatus.PAUSED:
            paused.setdefault(number, state)
        elif number in paused:
            resumed[number] = state
        metadata.setdefault(number, state.metadata)
    if began is None or state is None:
        raise ValueError("there is no snapshot to load")
    if began.execution is not None and began.execution.id != execution.id:  # a fork
        began = replace(began, execution=replace(began.execution, id=execution.id))
    return ReplaySource(began, state, paused, resumed, metadata)


async def _states(
    store: Store, snapshots: Sequence[Snapshot]
) -> AsyncIterator[tuple[int, AgentState]]:
    """The state of each snapshot with the number of its last step; one read per chain."""
    for _, group in groupby(snapshots, key=lambda snapshot: snapshot.chain_id):
        chain = list(group)
        last = chain[-1]
        whole, *increments = await store.read(lambda tx, last=last: tx.chain(last))
        numbers = {snapshot.position: snapshot.step_number for snapshot in chain}
        for position, state in enumerate(_SERIALIZER.each_of_increments(whole, increments)):
            if position in numbers:
                yield numbers[position], state


class ReplaySource:
    """A stored execution, as the parts below look things up in it."""

    def __init__(
        self,
        began: AgentState,
        final: AgentState,
        paused: Mapping[int, AgentState],
        resumed: dict[int, AgentState],
        metadata: Mapping[int, Mapping[str, Any]],
    ) -> None:
        self.began = began
        self.final = final
        self.paused = paused
        """The states in which it waited for a person, by the number of their last step."""
        self.resumed = resumed
        """Those with the answer, by the same number."""
        self.metadata = metadata
        """What it knew behind each step, as far as that is stored."""
        self.left_out = OmittedHooks(names=set(), claimed=())
        self.steps = [self._as_it_was(step) for step in final.steps]
        self._said = _messages_before(final.messages, self.steps, began)

    def _as_it_was(self, step: StepExecution) -> StepExecution:
        """An answer rewrites the step that asked; this is the step before that."""
        state = self.paused.get(step.number)
        return step if state is None else state.steps[step.number - 1]

    def step(self, number: int) -> StepExecution | None:
        """The step of that number, if it is stored."""
        return self.steps[number - 1] if 1 <= number <= len(self.steps) else None

    def call(self, number: int, call_id: str) -> ToolExecution | None:
        """What a call of a step came to."""
        step = self.step(number)
        ran = () if step is None else step.step.tool_executions
        return next((each for each in ran if each.call.id == call_id), None)

    def pending(self, number: int, call_id: str) -> Pending | None:
        """What a call of a step asked a person."""
        state = self.paused.get(number)
        asked = () if state is None else state.pending
        return next((each for each in asked if each.call_id == call_id), None)

    def messages_before(self, number: int) -> Sequence[Message]:
        """What users said while it ran, seen by that step first."""
        return self._said.get(number, ())

    def end_from_outside(self) -> list[StopSignal]:
        """The stop signals from outside the agent after its last step."""
        return outside_signals(self.final.outcome, self.left_out)

    def elapsed_seconds(self, number: int) -> tuple[float, float]:
        """Seconds since the run was entered, when the step began and when it was decided on."""
        step = self.step(number)
        if step is not None:
            took, current = step.duration_seconds, _current(step.outcome)
            if current is not None:
                return max(0.0, current - took), current
            before = sum(each.duration_seconds for each in self.steps[: number - 1])
            return before, before + took
        last = self.elapsed_seconds(len(self.steps))[1] if self.steps else 0.0
        ended = _current(self.final.outcome) or last
        # What cut a step off came after it had begun; otherwise it was not begun at all.
        return (last if self.end_from_outside() else ended), ended


def _current(outcome: ContinuationOutcome | None) -> float | None:
    """How long the run had taken by the vote on its time, if there was one."""
    vote = None if outcome is None else outcome.evaluation_for("ExecutionTimeLimit")
    current = None if vote is None else vote.context.get("current")
    return float(current) if isinstance(current, int | float) else None


def _messages_before(
    messages: Iterable[Message], steps: Sequence[StepExecution], began: AgentState
) -> dict[int, list[Message]]:
    known = {message.id for message in began.messages}
    first = {step.step.messages[0].id: step.number for step in steps if step.step.messages}
    said: dict[int, list[Message]] = {}
    waiting: list[Message] = []
    for message in messages:
        if message.is_user() and message.id not in known:
            waiting.append(message)
        elif message.id in first and waiting:
            said[first[message.id]], waiting = waiting, []
    return said

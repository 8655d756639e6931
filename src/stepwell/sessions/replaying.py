"""A stored execution run again, without models and tools, to see whether it would be decided alike.

The agent's criteria, hooks and limits are the real ones; what the model said, what tools gave and
the times are the stored ones. Subagents are calls of tools here: what they did inside is not
replayed. Where a person answered, the replay goes on from the state with that answer.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepwell.agent import Agent
from stepwell.continuation import AgentStatus, ContinuationOutcome
from stepwell.drivers import Driver
from stepwell.events import EventBus
from stepwell.models import Model
from stepwell.sessions.directory import AgentDirectory, RegisteredAgent
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.reading import Reader
from stepwell.sessions.records import Execution, Snapshot
from stepwell.sessions.removed_snapshots import require_states
from stepwell.sessions.replay_parts import (
    ASK_MODELS,
    ReplayClock,
    ReplayLedger,
    Stored,
    StoredDriver,
    StoredModel,
    replay_hooks,
    show_start,
)
from stepwell.state import AgentState, StepExecution
from stepwell.tools import Tools


class ReplayedStep(Struct, frozen=True, kw_only=True):
    """A step that was decided on again."""

    number: int
    was: ContinuationOutcome
    now: ContinuationOutcome
    differences: tuple[str, ...] = ()
    """In words; empty if all is the same."""


class Replay(Struct, frozen=True, kw_only=True):
    """What came of a replay."""

    execution_id: str
    agent_type: str
    steps: tuple[ReplayedStep, ...]
    differences: tuple[str, ...] = ()
    """Of the end, and of what happened in no single step."""
    notes: tuple[str, ...] = ()
    """What was not replayed, or stood in for something."""
    definition_changed: bool = False

    @property
    def is_same(self) -> bool:
        """Whether every decision is the one that was made then."""
        return not self.differences and not any(step.differences for step in self.steps)


async def replayed(store: Store, agents: AgentDirectory, execution_id: str) -> Replay:
    """Replay a stored execution; raises ``NotThereError``, ``AgentNotFoundError``, and
    ``RefusedError`` if too little of it is stored."""
    execution, snapshots = await store.read(lambda tx: _rows(tx, execution_id))
    agent = agents.get(execution.agent_type)
    replaying = await _loaded(store, execution, snapshots, agent)
    return await replaying.run()


async def _rows(tx: Transaction, execution_id: str) -> tuple[Execution, Sequence[Snapshot]]:
    execution = await tx.execution(execution_id)
    if execution is None:
        raise NotThereError("execution", execution_id)
    if execution.parent_execution_id is not None:
        raise RefusedError(
            f"execution {execution_id} is that of a subagent, of which only the end is stored; "
            f"replay {execution.parent_execution_id}, which it belongs to",
            code="subagent",
        )
    snapshots = await tx.snapshots(execution_id)
    if not snapshots:
        require_states(execution)
        raise RefusedError(
            f"execution {execution_id} is {execution.status}, and no state of it is stored",
            code="nothing_stored",
        )
    return execution, snapshots


async def _loaded(
    store: Store, execution: Execution, snapshots: Sequence[Snapshot], agent: RegisteredAgent
) -> "_Replaying":
    reader = Reader(store)
    began = await reader.state_of(snapshots[0].id)
    if began.execution is not None and began.execution.id != execution.id:  # a fork
        began = replace(began, execution=replace(began.execution, id=execution.id))
    final = await reader.state_of(snapshots[-1].id)
    paused: dict[int, AgentState] = {}
    resumed: dict[int, AgentState] = {}
    metadata: dict[int, dict[str, Any]] = {}
    before = began
    for snapshot in _worth_reading(snapshots, all_of_them=began.metadata != final.metadata):
        state = await reader.state_of(snapshot.id)
        number = snapshot.step_number
        if state.status is AgentStatus.PAUSED:
            paused.setdefault(number, state)
        elif number in paused:
            resumed[number] = state
        metadata[number] = {
            key: value for key, value in state.metadata.items() if before.metadata.get(key) != value
        }
        before = state
    stored = Stored(final, paused, began)
    stored.metadata = metadata
    return _Replaying(execution, agent, stored, began, resumed)


def _worth_reading(snapshots: Sequence[Snapshot], *, all_of_them: bool) -> Sequence[Snapshot]:
    """Those in which somebody may have waited for a person: a step that is stored twice, or last.
    All of them if tools noted something, which must be known step by step."""
    if all_of_them:
        return snapshots[1:]
    times = Counter(snapshot.step_number for snapshot in snapshots)
    return [it for it in snapshots[1:] if times[it.step_number] > 1 or it is snapshots[-1]]


class _Replaying:
    """One replay under way."""

    def __init__(
        self,
        execution: Execution,
        agent: RegisteredAgent,
        stored: Stored,
        began: AgentState,
        resumed: dict[int, AgentState],
    ) -> None:
        self._execution = execution
        self._registered = agent
        self._stored = stored
        self._began = began
        self._resumed = resumed
        self._clock = ReplayClock(began.updated_at)
        self._model = StoredModel(stored, self._clock, str(agent.config["model"]))
        self._ledger = ReplayLedger(stored)
        self._steps: list[ReplayedStep] = []
        self._notes: list[str] = []
        self._agent = self._prepared()

    def _prepared(self) -> Agent:
        plan = self._registered.agent.plan
        left_out = sorted({hook.name for hook in plan.hooks} & set(ASK_MODELS))
        for name in left_out:
            self._notes.append(f"{name} asks a model, so it was left out; its votes are as stored")
        model: Model | None = self._model
        driver: Driver | None = None
        if plan.driver is not None:
            model, driver = None, StoredDriver(self._stored, self._model)
            self._notes.append(
                f"the steps of its {type(plan.driver).__name__} are taken as stored, so hooks "
                "around the model and tools did not run"
            )
        own = replay_hooks(self._stored, self._clock, self._model, self._ledger)
        replaying = replace(
            plan,
            model=model,
            llm_preset=None,
            driver=driver,
            ledger=self._ledger,
            clock=self._clock,
            events=EventBus(),
            hooks=(*(hook for hook in plan.hooks if hook.name not in left_out), *own),
        )
        self._ledger.tools = Tools(plan.tools)
        return Agent.from_plan(replaying)

    async def run(self) -> Replay:
        """From the first stored state to the last stored step."""
        if self._began.steps:
            self._notes.append(f"it begins behind step {len(self._began.steps)}")
        reached = await self._segment(self._began)
        while (
            reached.status is AgentStatus.PAUSED
            and (answered := self._resumed.pop(reached.step_count, None)) is not None
        ):
            self._notes.append(
                f"behind step {reached.step_count} a person answered; it goes on from the stored "
                "state with the answer"
            )
            reached = await self._segment(answered)
        self._note_subagents()
        has_changed = self._execution.definition_hash != self._registered.definition_hash
        return Replay(
            execution_id=self._execution.id,
            agent_type=self._execution.agent_type,
            steps=tuple(self._steps),
            differences=tuple(self._end_differences(reached)),
            notes=tuple(self._notes),
            definition_changed=has_changed,
        )

    async def _segment(self, state: AgentState) -> AgentState:
        """Run until it ends, waits, or all that is stored is replayed."""
        known = state.step_count
        states = self._agent.loop.iterator(state)
        try:
            async for reached in states:
                for step in reached.steps[known:]:
                    self._compare(step)
                known, state = len(reached.steps), reached
                if known >= len(self._stored.steps) and not self._stored.final.stop:
                    break  # it is running still, or its worker died: no end is stored
                show_start(self._stored, self._clock, known + 1)
        finally:
            await states.aclose()
        return state

    def _compare(self, step: StepExecution) -> None:
        was = self._stored.step(step.number)
        if was is None:
            return
        differences = [
            *_tool_differences(was, step),
            *outcome_differences(was.outcome, step.outcome),
        ]
        self._steps.append(
            ReplayedStep(
                number=step.number,
                was=was.outcome,
                now=step.outcome,
                differences=tuple(differences),
            )
        )

    def _end_differences(self, reached: AgentState) -> list[str]:
        final, differences = self._stored.final, list(self._ledger.unknown)
        stored, made = len(self._stored.steps), len(reached.steps)
        if self._model.has_run_out or made > stored:
            differences.append(f"it goes on behind step {stored}, where it ended then")
        elif made < stored:
            why = "" if reached.stop is None else f" ({reached.stop.stop_reason})"
            differences.append(
                f"it ends behind step {made}{why}, and went on to step {stored} then"
            )
        elif final.stop is not None and reached.outcome is not None:
            last = self._stored.steps[-1].outcome if self._stored.steps else None
            if final.outcome is not None and final.outcome != last:
                differences += outcome_differences(final.outcome, reached.outcome)
        told = {"pending", "running", str(final.status)}
        if str(self._execution.status) not in told:
            self._notes.append(
                f"it is {self._execution.status} since: that was decided outside of its loop"
            )
        return differences

    def _note_subagents(self) -> None:
        tools = {ran.call.name for step in self._stored.steps for ran in step.step.tool_executions}
        if "spawn_subagent" in tools:
            self._notes.append("what subagents did inside was not replayed, only what they gave")


def outcome_differences(was: ContinuationOutcome, now: ContinuationOutcome) -> list[str]:
    """In words what two outcomes differ in: the end, who decided, each vote."""
    differences: list[str] = []
    if was.stop_reason != now.stop_reason:
        differences.append(f"it {_end(now)}, and it {_end(was, past=True)} then")
    elif was.resolved_by != now.resolved_by or was.decision != now.decision:
        differences.append(
            f"decided by {now.resolved_by} ({now.decision}), by {was.resolved_by} "
            f"({was.decision}) then"
        )
    before, after = _votes(was), _votes(now)
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        if other is None:
            differences.append(f"{name} has no vote, and said {one} then")
        elif one is None:
            differences.append(f"{name} says {other}, and had no vote then")
        else:
            differences.append(f"{name} says {other}, and said {one} then")
    return differences


def _end(outcome: ContinuationOutcome, *, past: bool = False) -> str:
    if outcome.stop_reason is None:
        return "went on" if past else "goes on"
    return f"{'stopped' if past else 'stops'} ({outcome.stop_reason})"


def _votes(outcome: ContinuationOutcome) -> dict[str, str]:
    votes: dict[str, list[str]] = {}
    for vote in outcome.evaluations:
        votes.setdefault(vote.criterion, []).append(str(vote.decision))
    return {name: ", ".join(sorted(said)) for name, said in votes.items()}


def _tool_differences(was: StepExecution, now: StepExecution) -> list[str]:
    before = {ran.call.id: ran for ran in was.step.tool_executions}
    return [
        f"{ran.call.name} is {ran.outcome}, and was {before[ran.call.id].outcome} then"
        for ran in now.step.tool_executions
        if ran.call.id in before and ran.outcome is not before[ran.call.id].outcome
    ]

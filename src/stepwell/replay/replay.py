"""A stored execution run again, without models and tools, to see whether it would be decided alike.

The agent's criteria, hooks and limits are the real ones; what the model said, what tools gave and
the times are the stored ones. Subagents are calls of tools here: what they did inside is not
replayed. Where a person answered, the replay goes on from the state with that answer.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepwell.agent import Agent
from stepwell.continuation import AgentStatus, ContinuationOutcome
from stepwell.drivers import Driver
from stepwell.events import EventBus
from stepwell.loop import AtLimit
from stepwell.models import Model
from stepwell.replay.differences import outcome_differences, tool_differences
from stepwell.replay.hooks import ReplayedHooks
from stepwell.replay.metadata import MetadataOfTools
from stepwell.replay.parts import (
    ReplayClock,
    ReplayLedger,
    StoredDriver,
    StoredModel,
    replay_hooks,
    show_start,
)
from stepwell.replay.stored_execution import ReplaySource, load
from stepwell.run_context import RunContext, SessionInfo
from stepwell.sessions.directory import (
    AgentDirectory,
    RegisteredAgent,
    has_other_definition,
)
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.principal import principal_of
from stepwell.sessions.records import Execution, Snapshot
from stepwell.sessions.views.removed_snapshots import require_states
from stepwell.state import AgentState, StepExecution


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


async def replay_execution(store: Store, agents: AgentDirectory, execution_id: str) -> Replay:
    """Replay a stored execution; raises ``NotThereError``, ``AgentNotFoundError``, and
    ``RefusedError`` if too little of it is stored."""
    execution, snapshots = await store.read(lambda tx: _rows(tx, execution_id))
    agent = agents.get(execution.agent_type)
    return await _Replaying(execution, agent, await load(store, execution, snapshots)).run()


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


class _Replaying:
    """One replay under way."""

    def __init__(
        self,
        execution: Execution,
        agent: RegisteredAgent,
        stored: ReplaySource,
    ) -> None:
        self._execution = execution
        self._registered = agent
        self._stored = stored
        session_id = execution.session_id
        self._context = RunContext[Any](
            principal=principal_of(execution),
            session=None if session_id is None else SessionInfo(id=session_id),
        )
        self._clock = ReplayClock(stored.began.updated_at)
        self._model = StoredModel(stored, self._clock, str(agent.config["model"]))
        self._metadata = MetadataOfTools(stored)
        self._plan = agent.agent_for(self._context).plan
        self._hooks = ReplayedHooks(self._plan, stored, self._metadata)
        self._ledger = ReplayLedger(stored, self._metadata)
        self._steps: list[ReplayedStep] = []
        self._notes: list[str] = []
        self._agent = self._prepare()

    def _prepare(self) -> Agent:
        plan = self._plan
        model: Model | None = self._model
        driver: Driver | None = None
        if plan.driver is not None:
            model, driver = None, StoredDriver(self._stored, self._model, self._metadata)
            self._notes.append(
                f"the steps of its {type(plan.driver).__name__} are taken as stored, so hooks "
                "around the model and tools did not run"
            )
        own = replay_hooks(self._stored, self._clock, self._model, self._metadata)
        replaying = replace(
            plan,
            model=model,
            llm_preset=None,
            driver=driver,
            ledger=self._ledger,
            clock=self._clock,
            events=EventBus(),
            hooks=(*self._hooks.hooks(), *own),
            at_limit=AtLimit.STOP if plan.at_limit == AtLimit.RAISE else plan.at_limit,
        )
        return Agent.from_plan(replaying)

    async def run(self) -> Replay:
        """From the first stored state to the last stored step."""
        began, resumed = self._stored.began, self._stored.resumed
        if began.steps:
            self._notes.append(f"it begins behind step {len(began.steps)}")
        reached = await self._segment(began)
        while (
            reached.status is AgentStatus.PAUSED
            and (answered := resumed.pop(reached.step_count, None)) is not None
        ):
            self._notes.append(
                f"behind step {reached.step_count} a person answered; it goes on from the stored "
                "state with the answer"
            )
            reached = await self._segment(answered)
        self._note_subagents()
        self._notes += self._hooks.notes()
        has_changed = has_other_definition(
            self._execution.definition_hash, self._registered.definition_hash
        )
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
        states = self._agent.loop.iterator(state, context=self._context)
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
            *tool_differences(was, step),
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
        expected = {"pending", "running", str(final.status)}
        if str(self._execution.status) not in expected:
            self._notes.append(
                f"it is {self._execution.status} since: that was decided outside of its loop"
            )
        return differences

    def _note_subagents(self) -> None:
        tools = {ran.call.name for step in self._stored.steps for ran in step.step.tool_executions}
        if "spawn_subagent" in tools:
            self._notes.append("what subagents did inside was not replayed, only what they gave")

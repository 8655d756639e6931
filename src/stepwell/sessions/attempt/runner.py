"""Runs a claimed execution: loads its state, iterates the agent's loop, and commits at every step
boundary. Called by a worker, which holds the lease; what a boundary commits is in ``attempt``.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.continuation import AgentStatus, Cancellation
from stepwell.errors import SerializationError
from stepwell.ids import IdFactory, RunIds, new_id, running_as
from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.attempt.attempt import Attempt, AttemptDeps
from stepwell.sessions.attempt.boundaries import Boundaries
from stepwell.sessions.attempt.inbox import Inbox
from stepwell.sessions.attempt.journal_buffer import JournalBuffer
from stepwell.sessions.attempt.live_text import LiveText
from stepwell.sessions.attempt.start import has_changed
from stepwell.sessions.attempt.writer import Writer
from stepwell.sessions.directory import AgentDirectory, RegisteredAgent
from stepwell.sessions.endings.end import (
    End,
    cancelled_end,
    set_aside_by_change,
    set_aside_by_crashes,
    set_aside_by_state,
)
from stepwell.sessions.first_state import (
    first_state,
    messages_to_answer,
    user_message_ids,
    with_messages,
)
from stepwell.sessions.ledger.open_step import NOTHING_KNOWN, KnownStep, OpenStep, calls_begun
from stepwell.sessions.narration import Narrator
from stepwell.sessions.ports import Jobs, Store, Transaction
from stepwell.sessions.records import PASSED_ON, Execution, Session, SessionMessage, StepIntent
from stepwell.sessions.run_contexts import RunContexts
from stepwell.sessions.settings import SessionSettings, WhenChanged
from stepwell.sessions.snapshot_chain import SnapshotChain
from stepwell.state import AgentState

STANDARD = SessionSettings()
NO_DEPS = RunContexts()


class RunControl:
    """What a worker keeps in hand of a run: to cancel it, to have it back, to give it up."""

    def __init__(self, cancellation: Cancellation | None = None) -> None:
        self.cancellation = cancellation or Cancellation()
        self.hands_back = False
        """Whether the run is to end at the next step boundary."""
        self.abandoned_by: BaseException | None = None
        self._on_abandoned: Callable[[BaseException], None] | None = None

    def hand_back(self) -> None:
        """Leave it to another worker, at the next step boundary."""
        self.hands_back = True

    def abandon(self, why: BaseException) -> None:
        """Stop at once and write nothing: the lease is lost, or the process ends."""
        if self.abandoned_by is None:
            self.abandoned_by = why
        if self._on_abandoned is not None:
            self._on_abandoned(why)

    def bind(self, on_abandoned: Callable[[BaseException], None]) -> None:
        """For the runner: what gives the run up."""
        self._on_abandoned = on_abandoned
        if self.abandoned_by is not None:
            on_abandoned(self.abandoned_by)


class _Loaded(Struct, frozen=True, eq=False):
    state: AgentState | None
    sent: Sequence[SessionMessage]
    intent: StepIntent | None
    is_own: bool
    """The state is one that this execution stored itself."""
    session: Session | None


class Runner:
    """Runs executions, as many at once as its callers like."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        agents: AgentDirectory,
        *,
        settings: SessionSettings = STANDARD,
        contexts: RunContexts = NO_DEPS,
        clock: Clock | None = None,
        new_id: IdFactory = new_id,
    ) -> None:
        self._store = store
        self._contexts = contexts
        self._agents = agents
        self._settings = settings
        self._deps = AttemptDeps(
            jobs=jobs, settings=settings, clock=clock or SystemClock(), new_id=new_id
        )
        self._live_text = LiveText(store, self._deps.clock)

    @property
    def agents(self) -> Collection[str]:
        """The agent types that it has."""
        return self._agents.names

    async def run(self, execution: Execution, control: RunControl) -> ExecutionStatus:
        """Run a freshly claimed execution until it ends, pauses or is handed back.

        Returns the status that its row was left in. Raises ``LostLeaseError`` if another worker
        has it, ``AgentNotFoundError``, and whatever kept it from being written; then it is left
        for takeover.
        """
        attempt = self._attempt(execution, control.cancellation)
        with running_as(attempt.ids):
            run = asyncio.create_task(self._run(attempt, control))
            attempt.writer.bind(run)
            control.bind(attempt.writer.abandon)
            try:
                await asyncio.wait([run])
            finally:
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
                await self._live_text.end_run(execution.id)
            if attempt.writer.failure is not None:
                raise attempt.writer.failure
            return run.result()

    def _attempt(self, execution: Execution, cancellation: Cancellation) -> Attempt:
        settings = self._settings
        ids = RunIds(execution.id, execution.session_id, execution.attempt)
        narrator, open_step = Narrator(execution), OpenStep()
        return Attempt(
            deps=self._deps,
            execution=execution,
            ids=ids,
            writer=Writer(self._store, settings.heartbeat_seconds),
            journal=JournalBuffer(
                execution,
                settings.broadcast,
                ids=ids,
                narrator=narrator,
                open_step=open_step,
                clock=self._deps.clock,
                live_text=self._live_text,
            ),
            narrator=narrator,
            inbox=Inbox(execution.id, cancellation),
            snapshots=SnapshotChain(settings.snapshot_growth),
            known_step=NOTHING_KNOWN,
            open_step=open_step,
        )

    async def _run(self, attempt: Attempt, control: RunControl) -> ExecutionStatus:
        execution = attempt.execution
        if execution.cancel_requested is not None:
            return await Boundaries(attempt, None).end(cancelled_end(execution.cancel_requested))
        agent = self._agents.get(execution.agent_type)
        end = await self._end_before_it_runs(attempt, agent)
        if end is not None:
            return await Boundaries(attempt, agent).end(end)
        try:
            attempt, state, is_new, found = await self._load(attempt)
        except SerializationError as error:
            return await Boundaries(attempt, agent).end(set_aside_by_state(error, "read"))
        boundaries = Boundaries(attempt, agent)
        await boundaries.start(state, is_new=is_new)
        flushing = asyncio.create_task(boundaries.flush_in_long_steps())
        try:
            async with self._contexts.open(execution, found.session, found.sent) as context:
                loop = agent.agent_for(context).loop
                loop.tools.check_context(context)
                states = loop.iterator(
                    state,
                    cancellation=control.cancellation,
                    tap=attempt.journal,
                    attempt=attempt,
                    context=context,
                )
                return await _store_steps(states, boundaries, control)
        except SerializationError as error:
            return await boundaries.end(set_aside_by_state(error, "stored"))
        finally:
            flushing.cancel()

    # Whether it runs at all

    async def _end_before_it_runs(self, attempt: Attempt, agent: RegisteredAgent) -> End | None:
        """Why it is set aside instead; None if it may run."""
        execution, settings = attempt.execution, self._settings
        if execution.crashes >= settings.max_crashes:
            async with attempt.writer as store:
                intent = await store.read(lambda tx: tx.intent(execution.id))
            return set_aside_by_crashes(execution, calls_begun(intent, execution.step_count + 1))
        if settings.when_changed is WhenChanged.STOP and has_changed(execution, agent):
            return set_aside_by_change(execution)
        return None

    # Where it begins

    async def _load(self, attempt: Attempt) -> tuple[Attempt, AgentState, bool, _Loaded]:
        """The attempt with what an earlier one left, the state to go on from, whether that state is
        not stored yet, and what was found. Raises ``SerializationError``."""
        execution, at = attempt.execution, attempt.clock.now()

        async def look(tx: Transaction) -> _Loaded | SerializationError:
            try:
                return await _find(tx, attempt)
            except SerializationError as error:  # a value: no fault of the database
                return error

        async with attempt.writer as store:
            found = await store.read(look)
        if isinstance(found, SerializationError):
            raise found
        state, is_new = found.state, False
        if state is None or state.execution is None or not found.is_own or state.is_finished:
            state, is_new = first_state(execution, state, found.sent, at), True
        else:
            if state.execution.id != execution.id:
                # A fork: the same steps, and from here on another execution.
                state = replace(state, execution=replace(state.execution, id=execution.id))
            state = with_messages(state, found.sent)
            is_new = state is not found.state
        passed_on: Sequence[str] = execution.metadata.get(PASSED_ON, ())
        own = sum(sent.agent_execution_id == execution.id for sent in found.sent)
        attempt.inbox.begin({*user_message_ids(state), *passed_on}, own)
        known_step = KnownStep.of(found.intent, state.step_number)
        attempt.open_step.resume(known_step)
        return replace(attempt, known_step=known_step), state, is_new, found


async def _find(tx: Transaction, attempt: Attempt) -> _Loaded:
    execution, own = attempt.execution, attempt.execution.last_snapshot_id
    session = None if execution.session_id is None else await tx.session(execution.session_id)
    newest = own or (session and session.last_snapshot_id)
    state = None if newest is None else await attempt.snapshots.load(tx, newest)
    sent = await messages_to_answer(tx, execution)
    intent = await tx.intent(execution.id) if execution.attempt > 1 else None
    return _Loaded(state, sent, intent, own is not None, session)


async def _store_steps(
    states: AsyncGenerator[AgentState, None], boundaries: Boundaries, control: RunControl
) -> ExecutionStatus:
    """Run the loop, with a transaction after each step."""
    try:
        async for reached in states:
            if reached.status is AgentStatus.PAUSED:
                return await boundaries.pause(reached)
            if reached.status is not AgentStatus.IN_PROGRESS:
                return await boundaries.finish(reached)
            if control.hands_back:
                await boundaries.hand_over(reached)
                return ExecutionStatus.PENDING
            await boundaries.step(reached)
    finally:
        await states.aclose()
    raise RuntimeError("the loop ended without a result")

"""Runs a claimed execution: loads its state, iterates the agent's loop, and commits at every step
boundary. Called by a worker, which holds the lease; what a step commits is in ``committing``.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.continuation import AgentStatus, Cancellation
from stepwell.errors import SerializationError
from stepwell.ids import IdFactory, new_id, running_as
from stepwell.sessions.committing import Commits, unstorable
from stepwell.sessions.directory import AgentDirectory, RegisteredAgent
from stepwell.sessions.finishing import PASSED_ON
from stepwell.sessions.live_text import LiveText
from stepwell.sessions.ports import Jobs, Store, Transaction
from stepwell.sessions.records import CallStatus, Execution, ExecutionStatus, SessionMessage
from stepwell.sessions.recovery import (
    Recovered,
    SetAside,
    set_aside_by_change,
    set_aside_by_crashes,
)
from stepwell.sessions.running import Running
from stepwell.sessions.settings import SessionSettings, WhenChanged
from stepwell.sessions.steering import as_message
from stepwell.state import AgentState

STANDARD = SessionSettings()


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
    is_own: bool
    """The state is one that this execution stored itself."""


class Runner:
    """Runs executions, as many at once as its callers like."""

    def __init__(
        self,
        store: Store,
        jobs: Jobs,
        agents: AgentDirectory,
        *,
        settings: SessionSettings = STANDARD,
        clock: Clock | None = None,
        new_id: IdFactory = new_id,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._agents = agents
        self._settings = settings
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._live_text = LiveText(store, self._clock)

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
        running = Running(
            self._store,
            execution,
            settings=self._settings,
            clock=self._clock,
            new_id=self._new_id,
            live_text=self._live_text,
        )
        running.cancellation = control.cancellation
        with running_as(running.ids):
            return await self._seen_through(running, control)

    async def _seen_through(self, running: Running, control: RunControl) -> ExecutionStatus:
        task = running.task = asyncio.create_task(self._worked(running, control))
        control.bind(running.abandon)
        logging = asyncio.create_task(running.log_now_and_then())
        try:
            await asyncio.wait([task])
        finally:
            logging.cancel()
            task.cancel()
            await asyncio.gather(task, logging, return_exceptions=True)
            await running.settled()
            await self._live_text.end_run(running.execution.id)
        if running.failure is not None:
            raise running.failure
        return task.result()

    async def _worked(self, running: Running, control: RunControl) -> ExecutionStatus:
        running.become_current()
        execution = running.execution
        if execution.cancel_requested is not None:
            return await Commits(running, self._jobs, None).cancel(execution.cancel_requested)
        agent = self._agents.get(execution.agent_type)
        commits = Commits(running, self._jobs, agent)
        aside = await self._why_aside(running, agent)
        if aside is not None:
            return await commits.set_aside(aside)
        try:
            state, is_new = await self._begun(running)
        except SerializationError as error:
            return await commits.set_aside(unstorable(error, "read"))
        await commits.start(state, is_new=is_new)
        try:
            return await _iterated(agent, state, commits, control, running)
        except SerializationError as error:
            return await commits.set_aside(unstorable(error, "stored"))

    # Whether it is taken up

    async def _why_aside(self, running: Running, agent: RegisteredAgent) -> SetAside | None:
        execution = running.execution
        if execution.crashes >= self._settings.max_crashes:
            number = execution.step_count + 1
            _, calls = await running.read(lambda tx: tx.ledger(execution.id, number))
            begun = [call.tool_name for call in calls if call.status is CallStatus.STARTED]
            return set_aside_by_crashes(execution, tuple(begun))
        has_changed = execution.definition_hash != agent.definition_hash
        has_begun = execution.last_snapshot_id is not None
        if has_changed and has_begun and self._settings.when_changed is WhenChanged.STOP:
            return set_aside_by_change(execution)
        return None

    # Where it begins

    async def _begun(self, running: Running) -> tuple[AgentState, bool]:
        """The state to go on from, and whether it is one that is not stored yet."""
        execution, at = running.execution, running.clock.now()

        async def look(tx: Transaction) -> _Loaded | SerializationError:
            try:
                return await self._found(tx, running)
            except SerializationError as error:  # a value: told as it is, not taken for a crash
                return error

        found = await running.read(look)
        if isinstance(found, SerializationError):
            raise found
        state = found.state or AgentState.empty(agent_id=running.agent_id, at=at)
        goes_on = found.is_own and state.execution is not None and not state.is_finished
        known = {message.id for message in state.messages if message.is_user()}
        is_new = not goes_on
        if goes_on and state.execution is not None and state.execution.id != execution.id:
            # A fork: the same steps, and from here on another execution.
            state = replace(state, execution=replace(state.execution, id=execution.id))
            is_new = True
        unsaid = [as_message(sent) for sent in found.sent if sent.id not in known]
        if unsaid:
            state, is_new = state.with_message(*unsaid), True
        if not goes_on:
            state = state.with_execution_started(execution.id, at)
        passed_on: Sequence[str] = execution.metadata.get(PASSED_ON, ())
        running.seen = known | {message.id for message in unsaid} | set(passed_on)
        running.execution_ids[state.agent_id] = execution.id
        return state, is_new

    async def _found(self, tx: Transaction, running: Running) -> _Loaded:
        execution = running.execution
        own, source = execution.last_snapshot_id, execution.last_snapshot_id
        session_id = execution.session_id
        if own is None and session_id is not None:
            session = await tx.session(session_id)
            source = None if session is None else session.last_snapshot_id
        state = None if source is None else await running.snapshots.load(tx, source)
        ids: Sequence[str] = execution.input.get("message_ids", ())
        found = [sent for id in ids if (sent := await tx.message(id)) is not None]
        running.heard = sum(sent.agent_execution_id == execution.id for sent in found)
        if execution.attempt > 1 and own is not None and state is not None:
            turn, calls = await tx.ledger(execution.id, state.step_number)
            running.recovered = Recovered.of(state.step_number, turn, calls)
            running.open_step = state.step_number if calls else 0
        return _Loaded(state, found, own is not None)


async def _iterated(
    agent: RegisteredAgent,
    state: AgentState,
    commits: Commits,
    control: RunControl,
    running: Running,
) -> ExecutionStatus:
    """The loop, with a transaction after each step."""
    states = agent.agent.loop.iterator(state, cancellation=control.cancellation, tap=running.hear)
    try:
        async for reached in states:
            if reached.status is AgentStatus.PAUSED:
                return await commits.pause(reached)
            if reached.status is not AgentStatus.IN_PROGRESS:
                return await commits.finish(reached)
            hands_over = control.hands_back
            await commits.step(reached, hands_over=hands_over)
            if hands_over:
                return ExecutionStatus.PENDING
    finally:
        await states.aclose()
    raise RuntimeError("the loop ended without a result")

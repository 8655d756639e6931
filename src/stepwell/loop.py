"""The loop: one explained step after the other, state in, state out.

    before-execution hooks
    repeat  before-step checkpoint (limits, cancellation) and hooks
            driver.use_tools(state)                         one model turn and its tools
            after-step hooks, votes, record                 the decision stays in the state
    on-stop and after-execution hooks, one terminal event

Whatever a driver, hook or criterion raises ends up as data in the state; only a cancellation of
the surrounding task passes through.
"""

import logging
from collections.abc import AsyncIterator, Callable
from enum import StrEnum

from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.continuation import (
    AgentStatus,
    AgentStop,
    Cancellation,
    ContinuationDecision,
    ContinuationEvaluation,
    ContinuationOutcome,
    StopReason,
    StopSignal,
    resolve,
)
from stepwell.criteria import (
    ContinuationCriteria,
    Criterion,
    CumulativeExecutionTimeLimit,
    ExecutionTimeLimit,
    cast_vote,
    criterion_name,
)
from stepwell.drivers import Driver, is_wrapping_up
from stepwell.errors import DriverError, ErrorType, HookError, LimitReachedError, described
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentFailed,
    AgentFinished,
    AgentStateUpdated,
    AgentStepCompleted,
    AgentStepStarted,
    ContinuationEvaluated,
    Emitter,
    EventBus,
    EventSource,
    TokenUsageReported,
)
from stepwell.hooks import HookContext, HookStack, HookTrigger
from stepwell.ids import IdFactory, new_id
from stepwell.scope import RunScope
from stepwell.state import (
    UNLIMITED,
    AgentState,
    AgentStep,
    Budget,
    ErrorInfo,
    Pending,
    PendingKind,
    StepExecution,
)

logger = logging.getLogger("stepwell.loop")

WRAP_UP_SECONDS = 30.0
"""How long the last step after a time limit may take."""

Tap = Callable[[AgentEvent], None]


class AtLimit(StrEnum):
    """What happens when a limit on steps, tokens, time or cost is reached."""

    STOP = "stop"
    WRAP_UP = "wrap_up"
    PAUSE = "pause"
    RAISE = "raise"


class AgentLoop:
    """Runs a driver under criteria and hooks. Holds no state of a run; runs may overlap."""

    def __init__(
        self,
        driver: Driver,
        criteria: ContinuationCriteria,
        *,
        hooks: HookStack | None = None,
        events: EventBus | None = None,
        clock: Clock | None = None,
        new_id: IdFactory = new_id,
        at_limit: AtLimit = AtLimit.STOP,
        budget: Budget = UNLIMITED,
        tool_names: tuple[str, ...] = (),
    ) -> None:
        self.events = events or EventBus()
        self._driver = driver
        self._criteria = criteria
        self._hooks = hooks or HookStack()
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._at_limit = at_limit
        self._budget = budget
        self._tool_names = tool_names
        self._time_limits = tuple(
            c
            for c in criteria.criteria
            if isinstance(c, ExecutionTimeLimit | CumulativeExecutionTimeLimit)
        )

    def has_next_step(self, state: AgentState) -> bool:
        """Whether ``next_step`` has something to do: the execution is not over and not paused."""
        return state.status is AgentStatus.IN_PROGRESS

    async def next_step(
        self, state: AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """The state after one more step, or after the decision not to take one."""
        enters = state.is_finished or not _is_entered(state)
        if enters:
            state = self._entered(state)
        scope = self._scope(state, cancellation)
        try:
            if enters:
                state = await self._begun(state, scope)
            state = await self._advanced(state, scope, first=enters)
            await scope.emitter.drain()
        finally:
            scope.close()
        self._raise_at_limit(state)
        return state

    async def iterator(
        self,
        state: AgentState,
        *,
        cancellation: Cancellation | None = None,
        tap: Tap | None = None,
    ) -> AsyncIterator[AgentState]:
        """The state after each step; the last one is the result of the run."""
        state = self._entered(state)
        scope = self._scope(state, cancellation, tap)
        first = True
        try:
            state = await self._begun(state, scope)
            while True:
                state = await self._advanced(state, scope, first=first)
                if state.status is not AgentStatus.IN_PROGRESS:
                    break
                yield state
                first = False
            await scope.emitter.drain()
        finally:
            scope.close()
        yield state
        self._raise_at_limit(state)

    async def final_step(
        self, state: AgentState, *, cancellation: Cancellation | None = None
    ) -> AgentState:
        """The result of the run: the last state of the iterator."""
        final = state
        async for reached in self.iterator(state, cancellation=cancellation):
            final = reached
        return final

    # Entering a run

    def _entered(self, state: AgentState) -> AgentState:
        if state.execution is None or state.is_finished:
            state = state.with_execution_started(self._new_id(), self._clock.now())
        return state.with_run_entered(self._clock.monotonic())

    def _scope(
        self, state: AgentState, cancellation: Cancellation | None, tap: Tap | None = None
    ) -> RunScope:
        source = EventSource(
            agent_id=state.agent_id,
            parent_agent_id=state.parent_agent_id,
            execution_id="" if state.execution is None else state.execution.id,
        )
        taps = () if tap is None else (tap,)
        scope = RunScope(Emitter(self.events, source, self._clock, taps), cancellation)
        if self._time_limits:
            left = min(limit.allowed(state) - limit.current(state) for limit in self._time_limits)
            scope.set_deadline(left)
        return scope

    async def _begun(self, state: AgentState, scope: RunScope) -> AgentState:
        scope.emitter.emit(
            AgentExecutionStarted,
            message_count=len(state.messages),
            available_tools=self._tool_names,
            resumed=bool(state.steps),
        )
        for waits_for in state.pending:
            if waits_for.call_id is not None:
                state = state.with_signal(_still_waiting(waits_for))
        return await self._hooked(HookTrigger.BEFORE_EXECUTION, state)

    # One step

    async def _advanced(self, state: AgentState, scope: RunScope, *, first: bool) -> AgentState:
        """One iteration: a step and its decision, or the decision to take none."""
        if state.outcome is not None and state.outcome.delay_seconds:
            await self._waited_out(state.outcome.delay_seconds, state, scope)
        state, outcome = self._checked(state, scope, first=first)
        if outcome is not None:
            return await self._stopped(state, scope, outcome)
        started = self._clock.monotonic()
        state = state.with_step_started(self._clock.now(), started, scope, self._budget)
        if scope.emitter.is_heard:
            scope.emitter.emit(
                AgentStepStarted,
                step_number=state.step_number,
                message_count=len(state.messages),
                available_tools=self._tool_names,
            )
        state = await self._hooked(HookTrigger.BEFORE_STEP, state)
        outcome = self._evaluated(state) if state.signals else None
        if outcome is not None and not outcome.should_continue:
            return await self._stopped(state, scope, outcome)
        state, fault = await self._driven(state)
        if state.execution is None or state.execution.unrecorded_step is None:
            return await self._stopped(state, scope, self._evaluated(state))
        state = await self._hooked(HookTrigger.AFTER_STEP, state)
        state = state.with_step_timed(self._clock.monotonic() - started)
        return await self._recorded(state, scope, fault)

    async def _waited_out(self, seconds: float, state: AgentState, scope: RunScope) -> None:
        """Wait as long as the last decision asked, unless that time has passed already."""
        passed = (self._clock.now() - state.updated_at).total_seconds()
        if seconds > passed:
            with scope.guard():
                await self._clock.sleep(seconds - passed)

    def _checked(
        self, state: AgentState, scope: RunScope, *, first: bool
    ) -> tuple[AgentState, ContinuationOutcome | None]:
        """The checkpoint before a step: an outcome if the run stops here, so that nothing is paid
        for after a limit or a cancellation."""
        wraps_up = is_wrapping_up(state)
        if wraps_up:
            scope.allow_seconds(WRAP_UP_SECONDS)
        if scope.signal is not None:
            state = state.with_signal(scope.signal)
        if not (first or state.signals or self._criteria.limit_is_reached(state)):
            return state, None
        if wraps_up and not state.signals:
            return state, None
        outcome = self._evaluated(state)
        if outcome.should_continue:
            return state, None
        if self._may_wrap_up(state, outcome) and state.steps:
            return self._checked(state.with_wrap_up(), scope, first=False)
        return state, outcome

    async def _driven(self, state: AgentState) -> tuple[AgentState, Exception | None]:
        """The driver's step. What it raises becomes a step, or a signal if it asked to stop."""
        try:
            driven = await self._driver.use_tools(state)
            if driven.execution is None or driven.execution.unrecorded_step is None:
                raise DriverError(
                    f"{type(self._driver).__name__}.use_tools returned a state without a step; "
                    "return state.with_current_step(step)"
                )
        except AgentStop as stop:
            kept = stop.state if isinstance(stop.state, AgentState) else state
            source = stop.signal.source or type(self._driver).__name__
            return kept.with_signal(replace(stop.signal, source=source)), None
        except HookError as error:
            return _failed_by_hook(state.with_current_step(AgentStep.failed(error)), error), error
        except Exception as error:  # a step's faults end up in the state, whatever they are
            logger.info("the driver raised %s", described(error), exc_info=error)
            return state.with_current_step(AgentStep.failed(error)), error
        return driven, None

    async def _recorded(
        self, state: AgentState, scope: RunScope, fault: Exception | None
    ) -> AgentState:
        """Votes on the step in flight; the step and the decision become history."""
        step = state.current_step
        in_flight = None if state.execution is None else state.execution.in_flight
        if step is None or in_flight is None:
            raise DriverError("an after-step hook lost the step; change the state it was given")
        self._tell_step(state, scope, step, in_flight.duration_seconds)
        if step.has_errors:
            state = await self._hooked(
                HookTrigger.ON_ERROR, state, error=step.errors[0], exception=fault
            )
        outcome = self._evaluated(state)
        if self._may_wrap_up(state, outcome):
            state, outcome = state.with_wrap_up(), _one_more_step(outcome)
        if not outcome.should_continue:
            state, outcome = await self._stop_confirmed(state, outcome)
        state = state.with_step_recorded(
            StepExecution(
                number=state.step_count,
                step=state.current_step or step,
                outcome=outcome,
                started_at=in_flight.started_at,
                completed_at=self._clock.now(),
                duration_seconds=in_flight.duration_seconds,
            )
        )
        if not outcome.should_continue:
            return await self._ended(state, scope, fault)
        self._tell_decision(state, scope, outcome)
        return state

    # Deciding

    def _evaluated(self, state: AgentState) -> ContinuationOutcome:
        try:
            return self._criteria.evaluate(state)
        except Exception:  # noqa: BLE001 - find out which criterion raised, and hear the others all the same
            votes = [_vote_or_fault(criterion, state) for criterion in self._criteria.criteria]
            return self._criteria.resolve(state, votes)

    async def _stop_confirmed(
        self, state: AgentState, outcome: ContinuationOutcome
    ) -> tuple[AgentState, ContinuationOutcome]:
        """On-stop hooks may add signals or ask for a step; then the votes are counted again."""
        if not self._hooks.has(HookTrigger.ON_STOP):
            return state, outcome
        state = await self._hooked(HookTrigger.ON_STOP, state)
        return state, self._evaluated(state)

    def _may_wrap_up(self, state: AgentState, outcome: ContinuationOutcome) -> bool:
        return (
            self._at_limit is AtLimit.WRAP_UP
            and _is_at_limit(outcome)
            and not is_wrapping_up(state)
        )

    # Ending a run

    async def _stopped(
        self, state: AgentState, scope: RunScope, outcome: ContinuationOutcome
    ) -> AgentState:
        """A stop without a recorded step."""
        state, outcome = await self._stop_confirmed(state, outcome)
        if outcome.should_continue:  # an on-stop hook asked for a step
            return await self._advanced(
                state.with_outcome(outcome, self._clock), scope, first=False
            )
        return await self._ended(state.with_outcome(outcome, self._clock), scope, None)

    async def _ended(
        self, state: AgentState, scope: RunScope, fault: Exception | None
    ) -> AgentState:
        """After-execution hooks, the final status, and the terminal event."""
        state = await self._hooked(HookTrigger.AFTER_EXECUTION, state)
        outcome = state.outcome
        if outcome is None:
            raise DriverError("an after-execution hook lost the outcome of the run")
        if state.signals:
            votes = (*outcome.evaluations, *(signal.as_evaluation() for signal in state.signals))
            outcome = resolve(votes)
            state = state.with_outcome(outcome, self._clock)
        if self._at_limit is AtLimit.PAUSE and _is_at_limit(outcome):
            state = state.with_pause(_budget_question(outcome))
        started = state.execution.entered_monotonic if state.execution else None
        state = state.with_run_left()
        self._tell_decision(state, scope, outcome)
        if state.status is AgentStatus.FAILED:
            _tell_failure(state, scope, outcome, fault)
        scope.emitter.emit(
            AgentFinished,
            status=state.status,
            stop_reason=outcome.stop_reason,
            outcome=outcome,
            total_steps=state.step_count,
            total_usage=state.usage,
            duration_ms=(self._clock.monotonic() - (started or 0.0)) * 1000,
        )
        return state

    def _raise_at_limit(self, state: AgentState) -> None:
        if self._at_limit is AtLimit.RAISE and state.stop and _is_at_limit(state.stop):
            raise LimitReachedError(state.stop.explain(), state)

    # Hooks and events

    async def _hooked(
        self,
        trigger: HookTrigger,
        state: AgentState,
        *,
        error: ErrorInfo | None = None,
        exception: BaseException | None = None,
    ) -> AgentState:
        """The state the hooks return; one that raises becomes a vote to stop."""
        if not self._hooks.has(trigger):
            return state
        context = HookContext(trigger=trigger, state=state, error=error, exception=exception)
        try:
            return (await self._hooks.run(context)).state
        except AgentStop as stop:
            return state.with_signal(replace(stop.signal, source=stop.signal.source or "hook"))
        except HookError as failure:
            return _failed_by_hook(state, failure)

    def _tell_step(
        self, state: AgentState, scope: RunScope, step: AgentStep, seconds: float
    ) -> None:
        if not scope.emitter.is_heard:
            return
        errors = step.errors
        scope.emitter.emit(
            AgentStepCompleted,
            step_number=state.step_count,
            has_tool_calls=step.has_tool_calls,
            error_count=len(errors),
            errors=tuple(error.text for error in errors),
            usage=step.usage,
            finish_reason=step.finish_reason,
            duration_ms=seconds * 1000,
        )
        if step.usage:
            scope.emitter.emit(
                TokenUsageReported, operation="step", usage=step.usage, total=state.usage
            )

    def _tell_decision(
        self, state: AgentState, scope: RunScope, outcome: ContinuationOutcome
    ) -> None:
        if not scope.emitter.is_heard:
            return
        scope.emitter.emit(ContinuationEvaluated, step_number=state.step_count, outcome=outcome)
        scope.emitter.emit(AgentStateUpdated, status=state.status, step_count=state.step_count)


def _is_entered(state: AgentState) -> bool:
    return state.execution is not None and state.execution.entered_monotonic is not None


def _is_at_limit(outcome: ContinuationOutcome) -> bool:
    return outcome.stop_reason is not None and outcome.stop_reason.is_limit


def _still_waiting(pending: Pending) -> StopSignal:
    return StopSignal(
        reason=StopReason.INPUT_REQUIRED,
        message=pending.prompt,
        source=pending.tool_name or str(pending.kind),
        context={"call_id": pending.call_id},
    )


def _budget_question(outcome: ContinuationOutcome) -> Pending:
    return Pending(
        kind=PendingKind.BUDGET,
        prompt=f"{outcome.stop_reason} was reached; grant more with "
        "state.with_budget_granted(...) and run the state again",
        details={"stop_reason": outcome.stop_reason},
    )


def _one_more_step(outcome: ContinuationOutcome) -> ContinuationOutcome:
    """The same votes, with the limits made way for one last step without tools."""
    votes = [
        replace(
            vote,
            decision=ContinuationDecision.ALLOW,
            reason=f"{vote.reason}; one last step without tools is left",
            stop_reason=None,
        )
        if vote.stop_reason is not None and vote.stop_reason.is_limit
        else vote
        for vote in outcome.evaluations
    ]
    votes.append(
        ContinuationEvaluation(
            criterion="AtLimit",
            decision=ContinuationDecision.REQUEST,
            reason=f"{outcome.stop_reason} was reached; the model may wrap up without tools",
        )
    )
    return resolve(votes)


def _failed_by_hook(state: AgentState, error: HookError) -> AgentState:
    """A hook raised: the run fails, and the step in flight, if any, shows the error."""
    logger.info("%s", error, exc_info=error)
    in_flight = None if state.execution is None else state.execution.in_flight
    if in_flight is not None and in_flight.step is not None and not in_flight.step.failures:
        info = ErrorInfo.from_exception(error, ErrorType.UNKNOWN)
        state = state.with_step_amended(replace(in_flight.step, failures=(info,)))
    return state.with_signal(
        StopSignal(reason=StopReason.ERROR, message=str(error), source=error.hook)
    )


def _vote_or_fault(criterion: Criterion, state: AgentState) -> ContinuationEvaluation:
    try:
        return cast_vote(criterion, state)
    except Exception as error:  # a criterion that raises must end the run, not the program
        logger.info("criterion %s raised", criterion_name(criterion), exc_info=error)
        return ContinuationEvaluation(
            criterion=criterion_name(criterion),
            decision=ContinuationDecision.FORBID,
            reason=f"the criterion raised {described(error)}",
            stop_reason=StopReason.ERROR,
            hint="correct the criterion; it must return a vote for every state.",
        )


def _tell_failure(
    state: AgentState, scope: RunScope, outcome: ContinuationOutcome, fault: Exception | None
) -> None:
    step = state.current_step
    first = step.errors[0] if step is not None and step.errors else None
    decisive = outcome.resolving_evaluation
    cause = fault.__cause__ if isinstance(fault, HookError) and fault.__cause__ else fault
    scope.emitter.emit(
        AgentFailed,
        status=state.status,
        steps_completed=state.step_count,
        exception_type=type(cause).__name__ if cause else first.exception if first else "",
        error=first.text if first else decisive.reason if decisive else str(outcome.stop_reason),
        exception=cause,
    )

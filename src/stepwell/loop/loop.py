"""The loop: one explained step after the other, state in, state out.

    before-execution hooks
    repeat  before-step checkpoint (limits, cancellation) and hooks
            driver.use_tools(state)                         one model turn and its tools
            after-step hooks, votes, record                 the decision stays in the state
    on-stop and after-execution hooks, one terminal event

Whatever a driver, hook or criterion raises ends up as data in the state; only a cancellation of
the surrounding task passes through.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.continuation import (
    AgentStatus,
    AgentStop,
    Cancellation,
    ContinuationOutcome,
    ContinueRequest,
    resolve,
)
from stepwell.criteria import ContinuationCriteria
from stepwell.drivers import Driver, ReActDriver, ToolCallingDriver, is_wrapping_up
from stepwell.errors import DriverError, HookError, LimitReachedError, describe
from stepwell.events import Emitter, EventBus, EventSource, Tap
from stepwell.foreign import CANCEL_GRACE, contained
from stepwell.hooks import HookContext, HookStack, HookTrigger
from stepwell.ids import IdFactory, new_id
from stepwell.loop.answered_calls import run_answered_calls
from stepwell.loop.deadline import Deadline
from stepwell.loop.delay import wait_out_delay
from stepwell.loop.driver_call import call_driver
from stepwell.loop.run_events import (
    emit_cut_off,
    emit_decision,
    emit_end,
    emit_execution_started,
    emit_failure,
    emit_step,
    emit_step_started,
)
from stepwell.loop.votes import (
    AtLimit,
    budget_question,
    failed_by_hook,
    goes_on,
    is_at_limit,
    one_more_step,
    sound_step,
    still_waiting,
    vote_or_fault,
)
from stepwell.run_context import NO_CONTEXT, RunContext
from stepwell.scope import RunAttempt, RunScope
from stepwell.state import UNLIMITED, AgentState, AgentStep, Budget, ErrorInfo, StepExecution
from stepwell.state.given_state import state_of
from stepwell.tools import ToolExecutor, Tools

logger = logging.getLogger("stepwell.loop")

WRAP_UP_SECONDS = 30.0
"""How long the last step after a time limit may take."""


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
        executor: ToolExecutor | None = None,
        cancel_grace: float = CANCEL_GRACE,
        model_retries: int = 0,
    ) -> None:
        self.events = events or EventBus()
        self._driver = driver
        self._is_own_driver = type(driver) in (ToolCallingDriver, ReActDriver)
        self._criteria = criteria
        self._hooks = hooks or HookStack()
        self._has_before_step = self._hooks.has(HookTrigger.BEFORE_STEP)
        self._has_after_step = self._hooks.has(HookTrigger.AFTER_STEP)
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._at_limit = at_limit
        self._budget = budget
        self._cancel_grace = cancel_grace
        self._model_retries = model_retries
        # A driver may have tools of its own, which the agent does not know.
        self._executor: ToolExecutor | None = getattr(driver, "executor", None) or executor
        self._tool_names = () if executor is None else executor.tools.names
        self.tools = Tools() if self._executor is None else self._executor.tools
        self._deadline = Deadline(criteria)

    def has_next_step(self, state: AgentState) -> bool:
        """Whether ``next_step`` has something to do: the execution is not over and not paused."""
        return state.status is AgentStatus.IN_PROGRESS

    async def next_step(
        self,
        state: AgentState,
        *,
        cancellation: Cancellation | None = None,
        context: RunContext[Any] = NO_CONTEXT,
    ) -> AgentState:
        """The state after one more step, or after the decision not to take one."""
        enters = state.execution is None or not state.execution.is_under_way
        if enters:
            state = self._enter(state, context)
        scope = self._scope(state, cancellation)
        try:
            if enters:
                state = await self._begin(state, scope)
            # The state comes from outside, so all limits are checked.
            state = await self._step(state, scope, first=True)
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
        attempt: RunAttempt | None = None,
        context: RunContext[Any] = NO_CONTEXT,
    ) -> AsyncGenerator[AgentState, None]:
        """The state after each step, at last the result. For ``attempt`` see ``RunScope``."""
        state = self._enter(state, context)
        scope = self._scope(state, cancellation, tap, attempt)
        first, is_over = True, False
        try:
            state = await self._begin(state, scope)
            while True:
                state = await self._step(state, scope, first=first)
                if state.status is not AgentStatus.IN_PROGRESS:
                    break
                yield state
                first = False
            is_over = True
            await scope.emitter.drain()
        except asyncio.CancelledError:  # the surrounding task's: there will be no other end
            if not is_over:
                emit_cut_off(state, scope)
            raise
        finally:
            scope.close()
        yield state
        self._raise_at_limit(state)

    async def final_step(
        self,
        state: AgentState,
        *,
        cancellation: Cancellation | None = None,
        context: RunContext[Any] = NO_CONTEXT,
    ) -> AgentState:
        """The result of the run: the last state of the iterator."""
        final = state
        async for reached in self.iterator(state, cancellation=cancellation, context=context):
            final = reached
        return final

    # Entering a run

    def _enter(self, state: AgentState, context: RunContext[Any]) -> AgentState:
        if state.execution is None or state.is_finished:
            state = state.with_execution_started(self._new_id(), self._clock.now())
        return state.with_run_entered(self._clock.monotonic(), context)

    def _scope(
        self,
        state: AgentState,
        cancellation: Cancellation | None,
        tap: Tap | None = None,
        attempt: RunAttempt | None = None,
    ) -> RunScope:
        source = EventSource(
            agent_id=state.agent_id,
            parent_agent_id=state.parent_agent_id,
            execution_id="" if state.execution is None else state.execution.id,
        )
        scope = RunScope(
            Emitter(self.events, source, self._clock, tap),
            cancellation,
            cancel_grace=self._cancel_grace,
            model_retries=self._model_retries,
            attempt=attempt,
        )
        if (left := self._deadline.seconds_left(state)) is not None:
            scope.set_deadline(left)
        return scope

    async def _begin(self, state: AgentState, scope: RunScope) -> AgentState:
        emit_execution_started(state, scope, self._tool_names)
        state = state.with_budget_questions_dropped()
        for waits_for in state.pending:
            state = state.with_signal(still_waiting(waits_for))
        last = state.outcome
        if last is not None and not last.should_continue and last.has_requests:
            asked = ContinueRequest(source="AgentLoop", message="the last step was to go on")
            state = state.with_continue_request(asked)
        return await self._run_hooks(HookTrigger.BEFORE_EXECUTION, state, scope)

    # One step

    async def _step(self, state: AgentState, scope: RunScope, *, first: bool) -> AgentState:
        """One iteration: a step and its decision, or the decision to take none."""
        execution = state.execution
        if execution is not None and execution.outcome and execution.outcome.delay_seconds:
            await wait_out_delay(execution.outcome.delay_seconds, state, scope)
        if first or self._may_be_over(state, scope):
            state, stop = await self._check_limits(state, scope)
            if stop is not None:
                return await self._end_without_step(state, scope, stop)
        started = self._clock.monotonic()
        state = state.with_step_started(self._clock.now(), started, scope, self._budget)
        if scope.emitter.is_heard:
            emit_step_started(state, scope, self._tool_names)
        if self._has_before_step:
            before, state = state, await self._run_hooks(HookTrigger.BEFORE_STEP, state, scope)
            if state is not before or self._may_be_over(state, scope):
                state, stop = await self._vote(state)
                if stop is not None:
                    return await self._end_without_step(state, scope, stop)
        state, fault = await self._call_driver(state, scope)
        execution = state.execution
        if execution is None or execution.in_flight is None or execution.in_flight.step is None:
            return await self._end_cut_step(state, scope)
        if self._has_after_step:
            state = await self._run_hooks(HookTrigger.AFTER_STEP, state, scope)
        state = state.with_step_timed(self._clock.monotonic() - started)
        return await self._record(state, scope, fault)

    async def _check_limits(
        self, state: AgentState, scope: RunScope
    ) -> tuple[AgentState, ContinuationOutcome | None]:
        """The checkpoint before a step, so that nothing is paid for after a limit or a
        cancellation."""
        if is_wrapping_up(state):
            scope.allow_seconds(WRAP_UP_SECONDS)
        if scope.signal is not None:
            state = state.with_signal(scope.signal)
        state, stop = await self._vote(state)
        if stop is None and is_wrapping_up(state):
            scope.allow_seconds(WRAP_UP_SECONDS)
        return state, stop

    async def _vote(self, state: AgentState) -> tuple[AgentState, ContinuationOutcome | None]:
        """The votes before a step: the outcome if the run stops, None if the step is taken.

        A step that wraps up is past the limits; only signals can stop it.
        """
        if is_wrapping_up(state) and not state.signals:
            return state.with_votes_counted(), None
        outcome = self._evaluate(state)
        if not goes_on(state, outcome):
            state, outcome = await self._decide(state, outcome)
            if not goes_on(state, outcome):
                return state, outcome
        return state.with_votes_counted(), None

    def _may_be_over(self, state: AgentState, scope: RunScope) -> bool:
        """Whether the votes have to be counted again since the last step: a quick look."""
        if scope.signal is not None or self._criteria.has_own:
            return True
        if (execution := state.execution) and (execution.signals or execution.wrapping_up):
            return True
        try:
            return self._criteria.is_limit_reached(state)
        except Exception:  # noqa: BLE001 - the full vote will name the criterion that raised
            return True

    async def _call_driver(
        self, state: AgentState, scope: RunScope
    ) -> tuple[AgentState, Exception | None]:
        """The driver's step. What it raises becomes a step, or a signal if it asked to stop."""
        name = type(self._driver).__name__
        try:
            if self._executor is not None and state.answered:
                return await run_answered_calls(state, self._executor), None
            if self._is_own_driver:  # all that it awaits is guarded, and its steps are sound
                return await self._driver.use_tools(state), None
            return sound_step(await call_driver(self._driver, state, scope), name), None
        except AgentStop as stop:
            kept = state_of(stop.state) or state
            source = stop.signal.source or name
            return kept.with_signal(replace(stop.signal, source=source)), None
        except HookError as error:
            kept = state_of(error.state) or state
            return failed_by_hook(kept.with_current_step(AgentStep.failed(error)), error), error
        except Exception as error:  # a step's faults end up in the state, whatever they are
            logger.info("the driver raised %s", describe(error), exc_info=error)
            why = "Whether it ran is not known: the step that was to run it failed"
            return state.with_answers_dropped(why).with_current_step(AgentStep.failed(error)), error

    async def _record(
        self, state: AgentState, scope: RunScope, fault: Exception | None
    ) -> AgentState:
        """Votes on the step in flight; the step and the decision become history."""
        step, in_flight = state.current_step, state.execution and state.execution.in_flight
        if step is None or in_flight is None:  # the hook stack lets no hook lose them
            raise DriverError("the step in flight was lost")
        is_heard = scope.emitter.is_heard
        if is_heard:
            emit_step(state, scope, step, in_flight.duration_seconds)
        if step.has_errors:
            state = await self._run_hooks(
                HookTrigger.ON_ERROR, state, error=step.most_urgent_error, exception=fault
            )
        outcome = self._evaluate(state)
        if not outcome.should_continue:
            state, outcome = await self._decide(state, outcome)
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
            return await self._end(state, scope, fault)
        if is_heard:
            emit_decision(state, scope, outcome)
        return state

    # Deciding

    def _evaluate(self, state: AgentState) -> ContinuationOutcome:
        try:
            if not self._criteria.has_own:
                return self._criteria.evaluate(state)
            with contained():
                return self._criteria.evaluate(state)
        except Exception:  # noqa: BLE001 - find out which criterion raised, and hear the others all the same
            votes = [vote_or_fault(criterion, state) for criterion in self._criteria.criteria]
            return self._criteria.resolve(state, votes)

    async def _decide(
        self, state: AgentState, outcome: ContinuationOutcome
    ) -> tuple[AgentState, ContinuationOutcome]:
        """The final word on an outcome: a limit may leave one step to wrap up, and on-stop hooks
        may add signals or ask for a step, after which the votes are counted again."""
        if self._may_wrap_up(state, outcome):
            return state.with_wrap_up(), one_more_step(outcome)
        if outcome.should_continue or not self._hooks.has(HookTrigger.ON_STOP):
            return state, outcome
        state = await self._run_hooks(HookTrigger.ON_STOP, state)
        return state, self._evaluate(state)

    def _may_wrap_up(self, state: AgentState, outcome: ContinuationOutcome) -> bool:
        return (
            self._at_limit is AtLimit.WRAP_UP
            and is_at_limit(outcome)
            and state.step_count > 0
            and not is_wrapping_up(state)
        )

    # Ending a run

    async def _end_cut_step(self, state: AgentState, scope: RunScope) -> AgentState:
        """The driver was stopped before it had a step. Only wrapping up can follow: a continue
        request needs a step to go on from."""
        state, outcome = await self._decide(state, self._evaluate(state))
        if outcome.should_continue and is_wrapping_up(state):
            emit_decision(state, scope, outcome)
            return state.with_outcome(outcome, self._clock)
        if outcome.should_continue:
            outcome = self._evaluate(state.without_continue_requests())
        return await self._end_without_step(state, scope, outcome)

    async def _end_without_step(
        self, state: AgentState, scope: RunScope, outcome: ContinuationOutcome
    ) -> AgentState:
        return await self._end(state.with_outcome(outcome, self._clock), scope, None)

    async def _end(self, state: AgentState, scope: RunScope, fault: Exception | None) -> AgentState:
        """After-execution hooks, the final status, and the terminal event."""
        state = await self._run_hooks(HookTrigger.AFTER_EXECUTION, state)
        outcome = state.outcome
        if outcome is None:
            raise DriverError("an after-execution hook lost the outcome of the run")
        if state.signals:
            votes = (*outcome.evaluations, *(signal.as_evaluation() for signal in state.signals))
            outcome = resolve(votes)
            state = state.with_outcome_corrected(outcome, self._clock)
        if self._at_limit is AtLimit.PAUSE and is_at_limit(outcome):
            state = state.with_pause(budget_question(outcome, state))
        entered = state.execution.entered_monotonic if state.execution else None
        seconds = 0.0 if entered is None else self._clock.monotonic() - entered
        state = state.with_run_left()
        emit_decision(state, scope, outcome)
        if state.status is AgentStatus.FAILED:
            emit_failure(state, scope, outcome, fault)
        emit_end(state, scope, outcome, seconds)
        return state

    def _raise_at_limit(self, state: AgentState) -> None:
        if self._at_limit is AtLimit.RAISE and state.stop and is_at_limit(state.stop):
            raise LimitReachedError(state.explain(), state)

    # Hooks and events

    async def _run_hooks(
        self,
        trigger: HookTrigger,
        state: AgentState,
        scope: RunScope | None = None,
        *,
        error: ErrorInfo | None = None,
        exception: BaseException | None = None,
    ) -> AgentState:
        """The state the hooks return; one that raises becomes a vote to stop.

        With a scope, a deadline or a cancellation ends them; hooks of the end run to their end.
        """
        if not self._hooks.has(trigger):
            return state
        context = HookContext(trigger=trigger, state=state, error=error, exception=exception)
        try:
            return (await self._hooks.run(context, scope)).state
        except AgentStop as stop:
            return stop.state.with_signal(stop.signal)
        except HookError as failure:
            return failed_by_hook(failure.state, failure)

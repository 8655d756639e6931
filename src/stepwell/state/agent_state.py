"""``AgentState``: everything a run knows, as one immutable value.

A session-lived part (who, messages, metadata, times) and a nullable execution-lived part. A change
is a new value that shares the old one's history. Three transitions make a step:
``with_step_started``, the driver's ``with_current_step``, and the loop's ``with_step_recorded``.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, cast

from msgspec import Struct
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.continuation import (
    AgentStatus,
    ContinuationOutcome,
    ContinueRequest,
    StopSignal,
)
from stepwell.errors import ConfigurationError, RunNotCompletedError, StepwellError
from stepwell.ids import new_id
from stepwell.messages import History, Message, Usage
from stepwell.messages.message import check_messages
from stepwell.run_context import NO_CONTEXT, Output, RunContext
from stepwell.scope import RunScope
from stepwell.state.budget import UNLIMITED, Budget
from stepwell.state.execution import NO_STEP_IN_FLIGHT, ExecutionState, InFlight
from stepwell.state.late_result import LateResult
from stepwell.state.pending import Answered, Pending, Question, json_data
from stepwell.state.step import AgentStep, StepExecution, ToolExecution, ToolOutcome

NO_USAGE = Usage()


class AgentState(Struct, Generic[Output], frozen=True, kw_only=True):
    """The state of an agent, and the result of a run.

    >>> state = AgentState.empty().with_user_message("Hello")
    >>> len(state.messages), state.step_count, state.status
    (1, 0, <AgentStatus.IN_PROGRESS: 'in_progress'>)
    """

    agent_id: str
    created_at: datetime
    updated_at: datetime
    parent_agent_id: str | None = None
    messages: History[Message] = History()
    metadata: Mapping[str, Any] = {}
    execution_count: int = 0
    cumulative_seconds: float = 0.0
    execution: ExecutionState | None = None

    @classmethod
    def empty(
        cls,
        *,
        agent_id: str | None = None,
        parent_agent_id: str | None = None,
        at: datetime | None = None,
    ) -> "AgentState[Output]":
        """A state in which nothing was said yet."""
        at = at or SystemClock().now()
        own_id = agent_id or new_id()
        return cls(agent_id=own_id, parent_agent_id=parent_agent_id, created_at=at, updated_at=at)

    # What the state tells

    @property
    def status(self) -> AgentStatus:
        """Where the current execution stands; in progress when there is none yet."""
        execution = self.execution
        return AgentStatus.IN_PROGRESS if execution is None else execution.status

    @property
    def is_finished(self) -> bool:
        """Whether the execution ended for good; a paused one can go on."""
        return self.status not in (AgentStatus.IN_PROGRESS, AgentStatus.PAUSED)

    @property
    def steps(self) -> Sequence[StepExecution]:
        """The recorded steps of the current execution."""
        return () if self.execution is None else self.execution.steps

    @property
    def step_count(self) -> int:
        """Steps of the current execution, with the one that the driver just returned."""
        execution = self.execution
        if execution is None:
            return 0
        in_flight = execution.in_flight
        return execution.steps.length + (in_flight is not None and in_flight.step is not None)

    @property
    def step_number(self) -> int:
        """The number of the step being worked on: recorded steps plus one."""
        return 1 if self.execution is None else self.execution.steps.length + 1

    @property
    def current_step(self) -> AgentStep | None:
        """The newest step of the current execution, recorded or not."""
        execution = self.execution
        if execution is None:
            return None
        in_flight = execution.in_flight
        if in_flight is not None and in_flight.step is not None:
            return in_flight.step
        recorded = execution.steps.last
        return None if recorded is None else recorded.step

    @property
    def usage(self) -> Usage:
        """Tokens of the current execution."""
        return NO_USAGE if self.execution is None else self.execution.usage_so_far

    @property
    def cost(self) -> float:
        """Cost of the current execution, in the currency of the price list (US dollars)."""
        return 0.0 if self.execution is None else self.execution.cost_so_far

    @property
    def active_seconds(self) -> float:
        """Time spent in steps over all executions, with the step that was just made."""
        in_flight = None if self.execution is None else self.execution.in_flight
        if in_flight is None:
            return self.cumulative_seconds
        return self.cumulative_seconds + in_flight.duration_seconds

    @property
    def consecutive_failures(self) -> int:
        """Steps with errors in a row, up to the newest step."""
        return 0 if self.execution is None else self.execution.consecutive_failures_so_far

    @property
    def total_failures(self) -> int:
        """Steps with errors in the current execution."""
        return 0 if self.execution is None else self.execution.total_failures_so_far

    @property
    def had_errors(self) -> bool:
        """Whether anything failed on the way, also when the run recovered."""
        return self.total_failures > 0

    @property
    def outcome(self) -> ContinuationOutcome | None:
        """The last decision, whether it went on or stopped."""
        return None if self.execution is None else self.execution.outcome

    @property
    def stop(self) -> ContinuationOutcome | None:
        """The decision that ended the run; ``state.stop.explain()`` is the text for a person."""
        outcome = self.outcome
        return None if outcome is None or outcome.should_continue else outcome

    @property
    def final_response(self) -> str | None:
        """The answer of the current execution, once its newest step gave one."""
        step = self.current_step
        if step is None or step.has_tool_calls or step.response is None:
            return None
        return step.text

    @property
    def output(self) -> Output | None:
        """What the run was asked for: the final response, or a value of the output type.

        A state that was stored and loaded has the value as JSON data.
        """
        execution = self.execution
        is_typed = execution is not None and execution.wants_output
        return cast("Any", execution.output if execution and is_typed else self.final_response)

    @property
    def pending(self) -> tuple[Question, ...]:
        """Questions, approvals and budgets the paused run waits for."""
        return () if self.execution is None else self.execution.questions

    @property
    def answered(self) -> tuple[Answered, ...]:
        """Calls that run again in the next step, with the answers to what they asked."""
        return () if self.execution is None else self.execution.answered

    @property
    def signals(self) -> tuple[StopSignal, ...]:
        """Stop signals raised in this iteration."""
        return () if self.execution is None else self.execution.signals

    @property
    def context(self) -> RunContext[Any]:
        """Whose run it is, and what the application gave to it; empty when no run is under way."""
        return NO_CONTEXT if self.execution is None else self.execution.context

    @property
    def scope(self) -> RunScope:
        """What the step in flight can reach; only there while a step is in flight."""
        return self._in_flight().scope

    @property
    def budget_left(self) -> Budget:
        """What the run may still spend; what a subagent can be given. While a step is in flight."""
        in_flight = self._in_flight()
        left = in_flight.budget.plus(self._execution().granted).after(
            steps=self.step_count, usage=self.usage, cost=self.cost
        )
        return replace(left, seconds=in_flight.scope.seconds_left)

    def explain(self) -> str:
        """Why the run ended, or why it goes on; for a person."""
        outcome = self.outcome
        if outcome is None:
            return "The run has not started."
        waits = [f"  Waits for {p.call_id or p.kind}: {p.prompt}" for p in self.pending]
        return "\n".join([outcome.explain(self.status), *waits])

    def unwrap(self) -> Output:
        """The output of a completed run; raises ``RunNotCompletedError`` for any other."""
        if self.status is AgentStatus.COMPLETED:
            return cast("Output", self.output)
        raise RunNotCompletedError(self.explain(), self)

    # Changes between runs

    def with_messages(self, messages: Iterable[Message]) -> "AgentState[Output]":
        """With these messages instead of its own."""
        if not isinstance(messages, History):
            messages = History[Message].of(check_messages(messages))
        return replace(self, messages=messages)

    def with_message(self, *messages: Message) -> "AgentState[Output]":
        """With these messages behind its own."""
        return replace(self, messages=self.messages.extend(check_messages(messages)))

    def with_user_message(self, text: str) -> "AgentState[Output]":
        """With one more thing said by the user."""
        return self.with_message(Message.user(text))

    def with_metadata(self, changes: Mapping[str, Any]) -> "AgentState[Output]":
        """With these metadata keys set; others stay."""
        return replace(self, metadata={**self.metadata, **changes})

    def with_answer(self, question: Question | str, answer: Any) -> "AgentState[Output]":
        """With the answer to one of ``state.pending``, given as it is or by its id.

        The answer to a question becomes the call's result, as JSON if it is not text. An approval
        (True, False, or an ``Approval``) lets the call run, or not, when the run goes on. Raises
        ``StepwellError`` for a question that this state does not wait for, such as an earlier one
        of the same call.
        """
        execution = self._execution()
        place, asked = execution.question(question)
        left = execution.pending[:place] + execution.pending[place + 1 :]
        if asked.resumes:
            state = replace(self, execution=execution.answered_with(asked, answer))
        else:
            late = LateResult.of(asked.call_id or "", json_data(answer), ToolOutcome.COMPLETED)
            state = self._with_late(late)
        status = AgentStatus.PAUSED if left else AgentStatus.IN_PROGRESS
        return state._with_execution(pending=left, status=status)

    def with_budget_granted(
        self, *, steps: int = 0, tokens: int = 0, seconds: float = 0.0, cost: float = 0.0
    ) -> "AgentState[Output]":
        """With more to spend, on top of the agent's limits; a run paused at a limit can go on."""
        if self.is_finished:
            raise StepwellError(
                f"the run is over ({self.status}), so a budget can't be granted to it; choose "
                'at_limit="pause" to have runs wait for more'
            )
        more = Budget(steps=steps, tokens=tokens, seconds=seconds, cost=cost)
        state = self._with_execution(granted=self._execution().granted.plus(more))
        return state.with_budget_questions_dropped()

    def with_budget_questions_dropped(self) -> "AgentState[Output]":
        """No longer waiting for more budget; a question of a tool still keeps the run paused."""
        return replace(self, execution=self._execution().without_budget_questions())

    # Votes raised by hooks, tools and drivers

    def with_signal(self, signal: StopSignal) -> "AgentState[Output]":
        """Return the state with a stop signal."""
        return self._with_execution(signals=(*self._execution().signals, signal))

    def with_continue_request(self, request: ContinueRequest) -> "AgentState[Output]":
        """Return the state with a request for one more step."""
        execution = self._execution()
        return self._with_execution(continue_requests=(*execution.continue_requests, request))

    def with_votes_counted(self) -> "AgentState[Output]":
        """The signals and requests so far had their say and the run goes on."""
        return self._with_execution(signals=(), continue_requests=())

    def without_continue_requests(self) -> "AgentState[Output]":
        """Return the state with only the stop signals."""
        return self._with_execution(continue_requests=())

    def with_pending(self, pending: Pending) -> "AgentState[Output]":
        """With one more thing to wait for."""
        pending = pending.without_id() if isinstance(pending, Question) else pending
        return self._with_execution(pending=(*self._execution().pending, pending))

    # The life of an execution

    def with_execution_started(self, execution_id: str, at: datetime) -> "AgentState[Output]":
        """A new execution: messages and metadata stay; steps, usage and errors start over."""
        return replace(
            self,
            execution=ExecutionState(id=execution_id, started_at=at),
            execution_count=self.execution_count + 1,
            updated_at=at,
        )

    def with_run_entered(
        self, monotonic: float, context: RunContext[Any] = NO_CONTEXT
    ) -> "AgentState[Output]":
        """A run begins or takes the execution up again; the wall limit counts from here."""
        return self._with_execution(entered_monotonic=monotonic, context=context)

    def with_step_started(
        self, at: datetime, monotonic: float, scope: RunScope, budget: Budget = UNLIMITED
    ) -> "AgentState[Output]":
        """First transition of a step."""
        in_flight = InFlight(started_at=at, started_monotonic=monotonic, scope=scope, budget=budget)
        execution = self.execution or self._execution()
        return replace(self, execution=replace(execution, in_flight=in_flight))

    def with_current_step(self, step: AgentStep) -> "AgentState[Output]":
        """Second transition, by the driver: the step happened and its messages were said."""
        in_flight = replace(self._in_flight(), step=step)
        return replace(
            self,
            messages=self.messages.extend(step.messages),
            execution=replace(self.execution or self._execution(), in_flight=in_flight),
        )

    def with_step_amended(self, step: AgentStep) -> "AgentState[Output]":
        """For hooks: another account of the step in flight; messages stay as they are."""
        return self._with_execution(in_flight=replace(self._in_flight(), step=step))

    def with_output_wanted(self) -> "AgentState[Output]":
        """The execution is asked for a typed output."""
        return self._with_execution(wants_output=True)

    def with_output(self, step: AgentStep, *, typed: Any) -> "AgentState[Output]":
        """For hooks: the step in flight, with its output as JSON data, and as a typed value."""
        return self.with_step_amended(step)._with_execution(typed_output=typed)

    def with_step_timed(self, duration_seconds: float) -> "AgentState[Output]":
        """The step in flight took that long."""
        in_flight = replace(self._in_flight(), duration_seconds=duration_seconds)
        execution = self.execution or self._execution()
        return replace(self, execution=replace(execution, in_flight=in_flight))

    def with_step_recorded(self, recorded: StepExecution) -> "AgentState[Output]":
        """Third transition, by the loop: the step and its decision are history."""
        return replace(
            self,
            updated_at=recorded.completed_at,
            cumulative_seconds=self.cumulative_seconds + recorded.duration_seconds,
            execution=(self.execution or self._execution()).with_step(recorded),
        )

    def with_outcome(self, outcome: ContinuationOutcome, clock: Clock) -> "AgentState[Output]":
        """A decision without a recorded step: a stop before or inside a step, or a correction."""
        execution = self._execution()
        started = None if execution.in_flight is None else execution.in_flight.started_monotonic
        lost = 0.0 if started is None else clock.monotonic() - started
        return replace(
            self,
            updated_at=clock.now(),
            cumulative_seconds=self.cumulative_seconds + lost,
            execution=execution.with_decision(outcome),
        )

    def with_outcome_corrected(
        self, outcome: ContinuationOutcome, clock: Clock
    ) -> "AgentState[Output]":
        """Another final decision than the last step was recorded with; its record follows."""
        state = self.with_outcome(outcome, clock)
        steps = self._execution().steps
        if not steps:
            return state
        last = replace(steps[-1], outcome=outcome)
        return state._with_execution(steps=steps.replace_at(-1, last))

    def with_wrap_up(self) -> "AgentState[Output]":
        """A limit was reached; the next step answers without tools and is the last."""
        signals = tuple(s for s in self._execution().signals if not s.reason.is_limit)
        state = self.with_answers_dropped("Not run, because a limit of the run was reached")
        return state._with_execution(wrapping_up=True, signals=signals)

    def with_pause(self, pending: Pending) -> "AgentState[Output]":
        """Paused at a limit instead of stopped, waiting for more budget."""
        asked = tuple(p for p in self._execution().pending if p.kind is not pending.kind)
        return self._with_execution(status=AgentStatus.PAUSED, pending=(*asked, pending))

    def with_run_left(self) -> "AgentState[Output]":
        """The run is over: the next one restarts its clock; what is not paused waits no more."""
        state = self._with_execution(
            entered_monotonic=None, context=NO_CONTEXT, signals=(), continue_requests=()
        )
        if self.status is AgentStatus.PAUSED:
            return state
        for asked in self.pending:
            if asked.call_id is not None:
                text = "Error: no answer was given, because the run ended."
                state = state._with_late(LateResult.of(asked.call_id, text, ToolOutcome.NOT_RUN))
        state = state.with_answers_dropped("Not run, because the run ended")
        return state._with_execution(pending=())

    def with_answers_dropped(self, why: str) -> "AgentState[Output]":
        """Calls that were answered do not run again after all; their results say why."""
        state = self
        for answered in self._execution().answered:
            late = LateResult.of(answered.call.id, f"Error: {why}.", ToolOutcome.NOT_RUN)
            state = state._with_late(late)
        return state._with_execution(answered=())

    def with_answers_used(self, executions: Iterable[ToolExecution]) -> "AgentState[Output]":
        """The calls that were answered ran again; their results take the placeholders' places."""
        state = self._with_execution(answered=())
        for ran in executions:
            state = state._with_late(LateResult.from_execution(ran))
        return state

    def _with_late(self, late: LateResult) -> "AgentState[Output]":
        return replace(
            self,
            messages=History[Message].of(late.in_messages(self.messages)),
            execution=late.in_execution(self._execution()),
        )

    def _with_execution(self, **changes: Any) -> "AgentState[Output]":
        return replace(self, execution=replace(self._execution(), **changes))

    def _execution(self) -> ExecutionState:
        if self.execution is None:
            raise ConfigurationError(
                "this state has no execution yet; the loop starts one, or call "
                "with_execution_started() first"
            )
        return self.execution

    def _in_flight(self) -> InFlight:
        execution = self.execution
        if execution is None or execution.in_flight is None:
            raise ConfigurationError(NO_STEP_IN_FLIGHT)
        return execution.in_flight

"""The part of a state that lives as long as one execution, and what is in flight within it."""

from datetime import datetime
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from stepwell.continuation import AgentStatus, ContinuationOutcome, ContinueRequest, StopSignal
from stepwell.errors import StepwellError
from stepwell.messages import History, Usage
from stepwell.run_context import NO_CONTEXT, RunContext
from stepwell.scope import RunScope
from stepwell.state.budget import NOTHING, Budget
from stepwell.state.pending import Answered, Approval, Pending, PendingKind, Question, json_data
from stepwell.state.step import AgentStep, StepExecution

NO_STEP_IN_FLIGHT = (
    "no step is in flight; a driver is called by the loop between with_step_started() and "
    "with_step_recorded()"
)


class InFlight(Struct, frozen=True, kw_only=True):
    """The step being worked on. Transient: never serialized, gone once the step is recorded."""

    started_at: datetime
    started_monotonic: float
    scope: RunScope
    budget: Budget
    step: AgentStep | None = None
    duration_seconds: float = 0.0
    """Set once the driver and the after-step hooks are done."""


class ExecutionState(Struct, frozen=True, kw_only=True):
    """One execution: its steps, running totals, last decision and what it waits for.

    Transient are ``in_flight``, ``entered_monotonic`` (when the current run began, for the wall
    limit; never restored), ``context`` (whose run it is), ``signals`` and ``continue_requests``
    (votes of this iteration), and ``typed_output`` (the newest step's output as a value of its
    type).
    """

    id: str
    started_at: datetime
    status: AgentStatus = AgentStatus.IN_PROGRESS
    steps: History[StepExecution] = History()
    outcome: ContinuationOutcome | None = None
    usage: Usage = Usage()
    cost: float = 0.0
    consecutive_failures: int = 0
    total_failures: int = 0
    granted: Budget = NOTHING
    pending: tuple[Pending, ...] = ()
    answered: tuple[Answered, ...] = ()
    """Calls that run again in the next step, with the answers to what they asked."""
    wrapping_up: bool = False
    entered_monotonic: float | None = None
    context: RunContext[Any] = NO_CONTEXT
    in_flight: InFlight | None = None
    signals: tuple[StopSignal, ...] = ()
    continue_requests: tuple[ContinueRequest, ...] = ()
    wants_output: bool = False
    """Whether an output type was asked for; the answer's text is then not the output."""
    typed_output: Any = None

    def with_decision(self, outcome: ContinuationOutcome) -> "ExecutionState":
        """With its last decision; what was in flight and the votes are done with."""
        return replace(
            self,
            status=outcome.status,
            outcome=outcome,
            in_flight=None,
            signals=(),
            continue_requests=(),
        )

    def with_step(self, record: StepExecution) -> "ExecutionState":
        """With one more step and its decision."""
        step, failed = record.step, record.step.has_errors
        return replace(
            self,
            status=record.outcome.status,
            outcome=record.outcome,
            in_flight=None,
            signals=(),
            continue_requests=(),
            steps=self.steps.append(record),
            usage=self.usage + step.usage,
            cost=self.cost + step.cost,
            consecutive_failures=self.consecutive_failures + 1 if failed else 0,
            total_failures=self.total_failures + failed,
        )

    @property
    def is_under_way(self) -> bool:
        """Whether a run has begun and not ended, as between two calls of ``next_step``."""
        return self.entered_monotonic is not None and self.status is AgentStatus.IN_PROGRESS

    @property
    def questions(self) -> tuple[Question, ...]:
        """What it waits for, each with the id that an answer names."""
        return tuple(
            [Question.of(p, execution_id=self.id, step=self.step_count) for p in self.pending]
        )

    def question(self, named: Question | str) -> tuple[int, Question]:
        """The place and value of a question that an answer can be given to."""
        id = named.id if isinstance(named, Question) else named
        waiting = self.questions
        for place, asked in enumerate(waiting):
            if asked.id != id:
                continue
            if asked.call_id is None:
                raise StepwellError(
                    f"{id} asks for more budget; grant it with state.with_budget_granted(...)"
                )
            return place, asked
        listed = ", ".join(f"{p.id} ({p.kind} of call {p.call_id})" for p in waiting) or "(none)"
        raise StepwellError(
            f"nothing waits for an answer to question {id!r:.80}; an answer names one of "
            f"state.pending, as in state.with_answer(state.pending[0], answer); waiting: {listed}"
        )

    def answered_with(self, asked: Pending, answer: Any) -> "ExecutionState":
        """The call that asked will run again; the history keeps its placeholder until then."""
        answer = Approval.of(answer) if asked.kind is PendingKind.APPROVAL else json_data(answer)
        newest, made_in = self._steps_of_call(asked.call_id or "")
        calls = [execution.call for execution in newest.tool_executions]
        places = {call.id: place for place, call in enumerate(calls)}
        answered = Answered(
            call=calls[places[asked.call_id or ""]],
            answer=answer,
            kept=asked.kept,
            by_hook=asked.by_hook,
            made_in=made_in,
            may_store=asked.may_store,
        )
        # As the model made them, whatever the order of the answers.
        in_order = sorted((*self.answered, answered), key=lambda a: places.get(a.call.id, -1))
        return replace(self, answered=tuple(in_order))

    def _steps_of_call(self, call_id: str) -> tuple[AgentStep, int]:
        """The newest step that has this call, and the number of the one that made it; those in
        between ran it again, and it asked again."""
        newest: AgentStep | None = None
        for index in range(len(self.steps) - 1, -1, -1):
            step = self.steps[index].step
            if any(e.call.id == call_id for e in step.tool_executions):
                newest = newest or step
                if step.messages:
                    return newest, index + 1
        raise StepwellError(f"no step of this run made the call {call_id!r} that waits")

    def without_budget_questions(self) -> "ExecutionState":
        """Waiting for no more budget; a question of a tool still keeps it paused."""
        left = tuple(p for p in self.pending if p.kind is not PendingKind.BUDGET)
        waits_no_more = self.status is AgentStatus.PAUSED and not left
        status = AgentStatus.IN_PROGRESS if waits_no_more else self.status
        return replace(self, pending=left, status=status)

    @property
    def output(self) -> Any:
        """The newest step's output, typed if it is known so; None if it gave none."""
        step = self.newest_step
        if step is None or step.output is UNSET:
            return None
        return step.output if self.typed_output is None else self.typed_output

    @property
    def unrecorded_step(self) -> AgentStep | None:
        """The step the driver returned and the loop has not recorded yet."""
        return None if self.in_flight is None else self.in_flight.step

    @property
    def newest_step(self) -> AgentStep | None:
        """The step the driver just returned, or the last recorded one."""
        in_flight = self.in_flight
        if in_flight is not None and in_flight.step is not None:
            return in_flight.step
        recorded = self.steps.last
        return None if recorded is None else recorded.step

    # Running totals with the step that is not recorded yet

    @property
    def step_count(self) -> int:
        """Steps, with the unrecorded one."""
        in_flight = self.in_flight
        has_unrecorded = in_flight is not None and in_flight.step is not None
        return self.steps.length + has_unrecorded

    @property
    def usage_so_far(self) -> Usage:
        """Tokens, with those of the unrecorded step."""
        in_flight = self.in_flight
        if in_flight is None or in_flight.step is None:
            return self.usage
        return self.usage + in_flight.step.usage

    @property
    def cost_so_far(self) -> float:
        """Cost, with that of the unrecorded step."""
        step = self.unrecorded_step
        return self.cost if step is None else self.cost + step.cost

    @property
    def consecutive_failures_so_far(self) -> int:
        """Failed steps in a row, with the unrecorded one."""
        step = self.unrecorded_step
        if step is None:
            return self.consecutive_failures
        return self.consecutive_failures + 1 if step.has_errors else 0

    @property
    def total_failures_so_far(self) -> int:
        """Failed steps, with the unrecorded one."""
        step = self.unrecorded_step
        return self.total_failures + (step is not None and step.has_errors)

"""The state as it flows through the calls of one response. Used by the executor alone."""

from collections.abc import Sequence

from msgspec import Struct

from stepwell.continuation import StopSignal
from stepwell.errors import ToolExecutionError
from stepwell.messages import ToolCall
from stepwell.state import AgentState, Answered, Approval, ErrorInfo, ToolExecution
from stepwell.tools.repetition import Announce, RepetitionNotes
from stepwell.tools.results import Finished


class ToolBatch(Struct, frozen=True, kw_only=True):
    """The state after all calls, their executions in call order, and failures around them."""

    state: AgentState
    executions: tuple[ToolExecution, ...] = ()
    failures: tuple[ErrorInfo, ...] = ()


class Batch:
    """The state as it flows through the calls of one response. Lives only inside the executor."""

    __slots__ = (
        "_answers",
        "_faults",
        "_halted_by",
        "_notes",
        "cut_note",
        "executions",
        "failures",
        "has_answers",
        "scope",
        "state",
    )

    def __init__(
        self, state: AgentState, cut_note: str = "", notes: RepetitionNotes | None = None
    ) -> None:
        self.state = state
        self._notes = notes
        self.cut_note = cut_note
        """The result of incomplete calls: that the model's reply was cut off."""
        self.scope = state.scope
        self.executions: dict[str, ToolExecution] = {}
        self.failures: list[ErrorInfo] = []
        self._answers: dict[str, Answered] = {}
        for answered in state.answered:
            self._answers[answered.call.id] = answered
        self.has_answers = bool(self._answers)
        """Whether any of the calls waited for a person and runs again."""
        self._faults: dict[str, BaseException] = {}
        self._halted_by: StopSignal | None = None

    @property
    def is_halted(self) -> bool:
        """Whether no further call may begin."""
        return self._halted_by is not None or self.scope.signal is not None

    @property
    def why_halted(self) -> str:
        """In words."""
        signal = self._halted_by or self.scope.signal
        return "" if signal is None else signal.words

    def answer_to(self, call_id: str) -> Answered | None:
        """What a call that runs again was answered."""
        return self._answers.get(call_id)

    def approval_of(self, call_id: str) -> Approval | None:
        """What a person said to a hook's question whether the call may run."""
        answered = self.answer_to(call_id)
        if answered is None or not answered.by_hook or not isinstance(answered.answer, Approval):
            return None
        return answered.answer

    def question_answered(self, call_id: str) -> Answered | None:
        """The same, if the call itself asked and not a hook before it."""
        answered = self.answer_to(call_id)
        return None if answered is None or answered.by_hook else answered

    def halt(self, signal: StopSignal) -> None:
        """Start no further call, and vote to stop."""
        self.state = self.state.with_signal(signal)
        self._halted_by = self._halted_by or signal

    def halt_by_signal(self, known: int) -> None:
        """Start no further call if the state has signals behind the first ``known``: a hook that
        blocked a call asked to stop as well."""
        if len(self.state.signals) > known:
            self._halted_by = self._halted_by or self.state.signals[known]

    def settle(self, finished: Finished) -> None:
        """The call has its result, and what it leads to flows into the state."""
        call_id = finished.execution.call.id
        self.executions[call_id] = finished.execution
        if finished.waits_for is not None:
            self.state = self.state.with_pending(finished.waits_for)
        if finished.signal is not None and finished.waits_for is not None:
            # The model made the other calls without the answer, so they don't wait for it.
            self.state = self.state.with_signal(finished.signal)
        elif finished.signal is not None:
            self.halt(finished.signal)
        if finished.metadata:
            self.state = self.state.with_metadata(finished.metadata)
        if finished.failure is not None:
            self._faults[call_id] = finished.failure

    def announce(self, call_id: str, announce: Announce) -> None:
        """Announce the result of a call with the note that belongs to it, once that is known."""
        if self._notes is None:
            announce(self.executions[call_id], "")
        else:
            self._notes.announce(call_id, self.executions, self.state, announce)

    def announce_waiting(self) -> None:
        """Announce what is left: every call has its result."""
        if self._notes is not None:
            self._notes.announce_waiting(self.executions, self.state)

    def result(self, calls: Sequence[ToolCall]) -> ToolBatch:
        """What all calls came to."""
        return ToolBatch(
            state=self.state,
            executions=tuple([self.executions[call.id] for call in calls]),
            failures=tuple(self.failures),
        )

    def raise_first_failure(self, calls: Sequence[ToolCall]) -> None:
        """For callers who want an exception."""
        for execution in (self.executions[call.id] for call in calls):
            if execution.is_error:
                said = execution.error.text if execution.error else execution.text
                cause = self._faults.get(execution.call.id)
                raise ToolExecutionError(execution.call.name, said) from cause

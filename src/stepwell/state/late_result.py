"""The result of a call that waited for a person, put where its placeholder was."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from stepwell.messages import Message
from stepwell.state.execution import ExecutionState
from stepwell.state.step import StepExecution, ToolExecution, ToolOutcome


class LateResult(Struct, frozen=True):
    """What a waiting call came to: an answer, its own result, or the end of the run without."""

    call_id: str
    value: Any
    text: str
    outcome: ToolOutcome
    is_error: bool
    ran_again: bool = False
    """The call has another execution, in a step of its own; the one that waited stays as it was."""

    @classmethod
    def of(cls, call_id: str, value: Any, outcome: ToolOutcome) -> "LateResult":
        """An answer as the result; what is not text is shown as JSON."""
        text = value if isinstance(value, str) else json.encode(value).decode()
        return cls(call_id, value, text, outcome, outcome is not ToolOutcome.COMPLETED)

    @classmethod
    def from_execution(cls, ran: ToolExecution) -> "LateResult":
        """What came of the call when it ran again."""
        return cls(ran.call.id, ran.value, ran.text, ran.outcome, ran.is_error, ran_again=True)

    def in_messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The same messages, with this result in place of the newest of that call: ids of calls
        may come again, and older results are not touched."""
        for index in range(len(messages) - 1, -1, -1):
            result = messages[index].tool_result
            if result is not None and result.call_id == self.call_id:
                late = replace(result, content=self.text, is_error=self.is_error)
                copy = list(messages)
                copy[index] = replace(messages[index], parts=(late,))
                return copy
        return messages

    def in_execution(self, execution: ExecutionState) -> ExecutionState:
        """The same execution, with this result in the step that made the call."""
        for index, recorded in self._steps_back_to_the_call(execution):
            found = replace(
                recorded.step,
                tool_executions=tuple(self._in_place(e) for e in recorded.step.tool_executions),
                messages=tuple(self.in_messages(recorded.step.messages)),
            )
            steps = execution.steps.replace_at(index, replace(recorded, step=found))
            execution = replace(execution, steps=steps)
        return execution

    def _in_place(self, execution: ToolExecution) -> ToolExecution:
        if execution.call.id != self.call_id or self.ran_again:
            return execution
        return replace(execution, outcome=self.outcome, text=self.text, value=self.value)

    def _steps_back_to_the_call(
        self, execution: ExecutionState
    ) -> Iterator[tuple[int, StepExecution]]:
        """From the last step on back; those in between ran the call again, and it asked again."""
        for index in range(len(execution.steps) - 1, -1, -1):
            recorded = execution.steps[index]
            if any(e.call.id == self.call_id for e in recorded.step.tool_executions):
                yield index, recorded
                if recorded.step.messages:
                    return

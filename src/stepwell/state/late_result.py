"""The result of a call that waited for a person, put where its placeholder was."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from stepwell.messages import Message
from stepwell.state.execution import ExecutionState
from stepwell.state.step import ToolOutcome


class LateResult(Struct, frozen=True):
    """What a waiting call came to: an answer, or the end of the run without one."""

    call_id: str
    value: Any
    outcome: ToolOutcome

    @property
    def text(self) -> str:
        """What the model is shown."""
        return self.value if isinstance(self.value, str) else json.encode(self.value).decode()

    def in_messages(self, messages: Iterable[Message]) -> Iterator[Message]:
        """The same messages, with this result in place of the placeholder."""
        is_error = self.outcome is not ToolOutcome.COMPLETED
        for message in messages:
            result = message.tool_result
            if result is None or result.call_id != self.call_id:
                yield message
            else:
                late = replace(result, content=self.text, is_error=is_error)
                yield replace(message, parts=(late,))

    def in_execution(self, execution: ExecutionState) -> ExecutionState:
        """The same execution, with this result in the step that made the call: the last one."""
        if not execution.steps:
            return execution
        last = execution.steps[-1]
        executions = [
            replace(e, outcome=self.outcome, text=self.text, value=self.value)
            if e.call.id == self.call_id
            else e
            for e in last.step.tool_executions
        ]
        step = replace(
            last.step,
            tool_executions=tuple(executions),
            messages=tuple(self.in_messages(last.step.messages)),
        )
        return replace(execution, steps=execution.steps.replaced(-1, replace(last, step=step)))

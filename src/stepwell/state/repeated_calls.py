"""How often a model made the same call in a row and got the same result, read from a state.

The executor adds a note to such results, and a criterion stops the run: both count with this.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.messages import Message
from stepwell.state.agent_state import AgentState
from stepwell.state.step import AgentStep, ToolExecution, ToolOutcome

NOTE_MARK = "\n\n[Note: "
_COUNTED = (ToolOutcome.COMPLETED, ToolOutcome.FAILED, ToolOutcome.BLOCKED)
_LONGEST_GAP = 16
"""How many messages between two steps are looked at for one of the user."""


class RepeatedCalls(Struct, frozen=True, kw_only=True):
    """What happens when a model makes one external call again and again with the same result.

    From the call number ``note_at`` on the result tells the model so; at ``stop_at`` the run stops
    with ``guard``. None switches either off.

    >>> RepeatedCalls(stop_at=20).note_at
    3
    """

    note_at: int | None = 3
    stop_at: int | None = 8

    def __post_init__(self) -> None:
        for name in ("note_at", "stop_at"):
            number: object = getattr(self, name)
            is_whole = isinstance(number, int) and not isinstance(number, bool)
            if number is not None and (not is_whole or number < 2):  # pyright: ignore[reportOperatorIssue]
                raise ConfigurationError(
                    f"{name} of RepeatedCalls must be 2 or more, or None, got {number!r}"
                )


def repeats_in_newest_step(state: AgentState, most: int) -> tuple[int, ToolExecution | None]:
    """Return how often the most repeated call of the newest step stands in a row, at most
    ``most``, and its execution; 0 and None if nothing was repeated."""
    step = state.current_step
    if step is None or step.response is None or not step.tool_executions:
        return 0, None
    if not _may_repeat(step.tool_executions, state, state.step_count - 1):
        return 0, None
    start = _start_of(step, state.messages, len(state.messages))
    if start is None:
        return 0, None
    found = 0, None
    for place, execution in enumerate(step.tool_executions):
        before = step.tool_executions[:place][::-1]
        count = _repeats(execution, before, state, state.step_count - 1, start, most)
        if count > max(found[0], 1):
            found = count, execution
    return found


def repeats_in_flight(
    execution: ToolExecution,
    beside: Sequence[ToolExecution],
    state: AgentState,
    most: int,
    *,
    looks_back: bool,
) -> int:
    """Return how often a call stands in a row, at most ``most``; the step that made it is not in
    the state yet. ``beside`` are the calls before it in its response, the newest first; only if
    they are all that there are, ``looks_back`` lets the steps before count as well."""
    steps, end = len(state.steps) if looks_back else 0, len(state.messages)
    return _repeats(execution, beside, state, steps, end, most)


def _repeats(
    execution: ToolExecution,
    beside: Sequence[ToolExecution],
    state: AgentState,
    steps: int,
    end: int,
    most: int,
) -> int:
    if not _is_counted(execution):
        return 0
    if not beside and not _may_repeat((execution,), state, steps):
        return 1
    count = 1
    for other in chain(beside, _earlier_calls(state, steps, end)):
        if count >= most or not _is_counted(other) or not _are_same(execution, other):
            break
        count += 1
    return count


def _may_repeat(executions: Sequence[ToolExecution], state: AgentState, steps: int) -> bool:
    """A quick look: whether there is more than one call to compare, or the last call of the step
    before is the same as this one."""
    if len(executions) != 1 or steps < 1:
        return len(executions) > 1
    before = state.steps[steps - 1].step.tool_executions
    return bool(before) and before[-1].call.arguments == executions[0].call.arguments


def _earlier_calls(state: AgentState, steps: int, end: int) -> Iterator[ToolExecution]:
    """The calls of the first ``steps`` steps, the newest first, back to a message of the user, a
    call that waited for a person, or a step without calls."""
    for index in range(steps - 1, -1, -1):
        step = state.steps[index].step
        start = _start_of(step, state.messages, end)
        if start is None or step.response is None or not step.tool_executions:
            return
        yield from reversed(step.tool_executions)
        end = start


def _start_of(step: AgentStep, messages: Sequence[Message], end: int) -> int | None:
    """Return where the step's messages begin, if the user said nothing between them and ``end``."""
    last = step.messages[-1].id if step.messages else None
    for index in range(end - 1, max(end - 1 - _LONGEST_GAP, -1), -1):
        if messages[index].id == last:
            return index - len(step.messages) + 1
        if messages[index].is_user():
            return None
    return None


def _is_counted(execution: ToolExecution) -> bool:
    return execution.error is None and execution.outcome in _COUNTED


def _are_same(one: ToolExecution, other: ToolExecution) -> bool:
    return (
        one.call.name == other.call.name
        and one.call.arguments == other.call.arguments
        and one.outcome is other.outcome
        and one.text.partition(NOTE_MARK)[0] == other.text.partition(NOTE_MARK)[0]
    )

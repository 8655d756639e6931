"""Tells the model that it repeats itself: a note behind the result of a call that changed nothing.

Called by the executor with the results of one response.
"""

from msgspec.structs import replace

from stepwell.state import RepeatedCalls, ToolExecution
from stepwell.state.repeated_calls import NOTE_MARK, repeats_in_flight
from stepwell.tools.batch import ToolBatch
from stepwell.tools.registry import Tools

_MOST = 1_000


def with_repetition_notes(batch: ToolBatch, tools: Tools, settings: RepeatedCalls) -> ToolBatch:
    """Return the batch with a note behind each result that came ``note_at`` times or more."""
    if settings.note_at is None:
        return batch
    noted = list(batch.executions)
    for place, execution in enumerate(batch.executions):
        if not tools.repetition_counts(execution.call.name):
            continue
        count = repeats_in_flight(place, batch.executions, batch.state, _MOST)
        if count >= settings.note_at:
            noted[place] = _with_note(execution, count)
    return replace(batch, executions=tuple(noted))


def _with_note(execution: ToolExecution, count: int) -> ToolExecution:
    note = (
        f"{NOTE_MARK}this was call {count} in a row of {execution.call.name} with the same "
        "arguments and the same result. Do not call it again like this: use the result, do "
        "something else, or answer.]"
    )
    return replace(execution, text=execution.text + note)

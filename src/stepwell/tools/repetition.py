"""Tells the model that it repeats itself: a note behind the result of a call that changed nothing.

Used by the executor for the calls of one response.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from stepwell.messages import ToolCall
from stepwell.state import AgentState, RepeatedCalls, ToolExecution
from stepwell.state.repeated_calls import NOTE_MARK, repeats_in_flight
from stepwell.tools.registry import Tools

_MOST = 1_000
Announce = Callable[[ToolExecution, str], None]
"""Emits the event of a call that has its result, with the note that was added to it or ''."""
Executions = dict[str, ToolExecution]


class RepetitionNotes:
    """Adds notes to the results of one response, and announces each result once its note is known.

    That is at once, unless the same call stands before it in the response and has no result yet.
    """

    def __init__(
        self, calls: Sequence[ToolCall], tools: Tools, settings: RepeatedCalls | None
    ) -> None:
        self._calls = calls
        self._tools = tools
        self._note_at = None if settings is None else settings.note_at
        self._waiting: dict[str, Announce] = {}

    def announce(
        self, call_id: str, executions: Executions, state: AgentState, announce: Announce
    ) -> None:
        """Announce the result of a call, and those that waited for it."""
        self._waiting[call_id] = announce
        self.announce_waiting(executions, state)

    def announce_waiting(self, executions: Executions, state: AgentState) -> None:
        """Announce each result whose note is known by now, in the order of the calls."""
        for place, call in enumerate(self._calls):
            if not self._waiting:
                return
            note = self._note(place, executions, state) if call.id in self._waiting else None
            if note is not None:
                execution = executions[call.id]
                executions[call.id] = replace(execution, text=execution.text + note)
                self._waiting.pop(call.id)(executions[call.id], note.strip())

    def _note(self, place: int, executions: Executions, state: AgentState) -> str | None:
        """Return the note for the call at that place, '' for none, None if it is not known yet."""
        call = self._calls[place]
        execution = executions[call.id]
        if self._note_at is None or not self._tools.repetition_counts(execution.call.name):
            return ""
        beside: list[ToolExecution] = []
        for other in reversed(self._calls[:place]):
            if (known := executions.get(other.id)) is not None:
                beside.append(known)
            elif (other.name, other.arguments) == (call.name, call.arguments):
                return None
            else:
                break
        looks_back = len(beside) == place
        count = repeats_in_flight(execution, beside, state, _MOST, looks_back=looks_back)
        if count < self._note_at:
            return ""
        return (
            f"{NOTE_MARK}this was call {count} in a row of {execution.call.name} with the same "
            "arguments and the same result. Do not call it again like this: use the result, do "
            "something else, or answer.]"
        )

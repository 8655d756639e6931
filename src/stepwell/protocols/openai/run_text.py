"""The text of a run as an OpenAI client gets it: one text that only grows. Pure."""

from stepwell.journal import Entry
from stepwell.journal.envelope import StepCompletedPayload, StepStartedPayload, StreamChunkPayload
from stepwell.messages import FinishReason
from stepwell.protocols.ai_sdk.step_text import AttemptText, TextChange
from stepwell.state import AgentState

GAP = "\n\n"


class RunText:
    """Joins the texts of the steps. After a takeover, text that comes out the same is not repeated;
    text that differs begins again after a gap, because a client can't remove what it has."""

    def __init__(self) -> None:
        self.text = ""
        """All text so far."""
        self.finish_reason: FinishReason | None = None
        """The model's reason for ending its newest turn."""
        self._step = AttemptText()
        self._step_has_text = False
        self._needs_gap = False
        self._is_restarting = False

    def translate(self, entry: Entry) -> str:
        """Return the text that an entry adds; a subagent's adds none."""
        if entry.payload.parent_execution_id is not None:
            return ""
        match entry.payload:
            case StepStartedPayload():
                self._begin_step()
                return ""
            case StreamChunkPayload() as payload:
                added = self._add(self._step.add(payload.content, is_open=True))
                return added + (self._end() if payload.is_complete else "")
            case StepCompletedPayload() as payload:
                self.finish_reason = payload.finish_reason
                return ""
            case _:
                return ""

    def restart(self) -> None:
        """Begin the step again: another worker took over."""
        self._is_restarting = True
        self._step.begin_again()

    def step(self, state: AgentState) -> str:
        """Return the text that a stored step has and no entry added."""
        step = state.current_step
        if step is None or not step.text or (self._step_has_text and not self._step.is_held):
            return ""
        return self._add(self._step.settle(step.text, is_open=True))

    def append(self, text: str) -> str:
        """Add a paragraph of its own. Return what to send."""
        self._needs_gap = bool(self.text)
        return self._add(TextChange(False, text))

    def _begin_step(self) -> None:
        if self._is_restarting:
            self._is_restarting = False
            return
        self._step, self._step_has_text = AttemptText(), False
        self._needs_gap = bool(self.text)

    def _end(self) -> str:
        return self._add(self._step.end(is_open=True))

    def _add(self, change: TextChange) -> str:
        if not change.text:
            return ""
        self._step_has_text = True
        piece = (GAP if change.supersedes or self._needs_gap else "") + change.text
        self._needs_gap = False
        self.text += piece
        return piece

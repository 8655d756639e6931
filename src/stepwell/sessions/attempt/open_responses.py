"""Streamed text of one run: each response becomes one entry when it is complete. Until then its
pieces only go to those who follow it live.
"""

from msgspec.structs import replace

from stepwell.journal.entry import Entry
from stepwell.journal.envelope import StreamChunkPayload
from stepwell.sessions.attempt.live_text import LiveText, ResponseText
from stepwell.sessions.bus import Delta
from stepwell.sessions.records import Execution
from stepwell.text import replace_half_characters


class _OpenResponse:
    def __init__(self, step_number: int, index: int) -> None:
        self.step_number = step_number
        self.index = index
        self.pieces: list[str] = []
        self.half = ""
        """The first half of a character whose second half comes with the next piece."""
        self.live: ResponseText | None = None


class OpenResponses:
    """The responses of a run and of its subagents that are not complete."""

    def __init__(self, execution: Execution, live_text: LiveText) -> None:
        self._execution = execution
        self._live_text = live_text
        self._open: dict[str, _OpenResponse] = {}
        self._counts: dict[str, tuple[int, int]] = {}
        """Per execution its newest step, and how many responses of it are complete."""

    def add(self, entry: Entry, chunk: StreamChunkPayload) -> Entry | None:
        """Add a piece. Return the entry of the whole response if it is complete now."""
        execution_id = entry.execution_id
        open = self._open.get(execution_id) or self._begin(execution_id, chunk.step_number)
        text = open.half + chunk.content
        is_half = not chunk.is_complete and text[-1:] >= "\ud800" and text[-1:] <= "\udbff"
        text, open.half = (text[:-1], text[-1]) if is_half else (text, "")
        text = replace_half_characters(text)
        if text:
            open.pieces.append(text)
            self._send(open, execution_id, text)
        if not chunk.is_complete:
            return None
        del self._open[execution_id]
        self._live_text.end(execution_id)
        self._counts[execution_id] = (open.step_number, open.index + 1)
        whole = replace(chunk, content="".join(open.pieces), chunk_index=0)
        return replace(entry, payload=whole)

    def _begin(self, execution_id: str, step_number: int) -> _OpenResponse:
        step, count = self._counts.get(execution_id, (step_number, 0))
        begun = _OpenResponse(step_number, count if step == step_number else 0)
        self._open[execution_id] = begun
        return begun

    def _send(self, open: _OpenResponse, execution_id: str, text: str) -> None:
        if open.live is not None:
            open.live.add(text)
        elif self._execution.session_id is not None:
            first = Delta(
                session_id=self._execution.session_id,
                execution_id=execution_id,
                attempt=self._execution.attempt,
                step_number=open.step_number,
                chunk_index=0,
                offset=0,
                text=text,
                response_index=open.index,
            )
            open.live = self._live_text.begin(self._execution.id, first)

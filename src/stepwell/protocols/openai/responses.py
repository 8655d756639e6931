"""Translates the entries of a run into events of OpenAI's responses. Pure."""

from typing import Any

from stepwell.continuation import AgentStatus
from stepwell.journal import Entry
from stepwell.protocols.client_stream import WireEvent, encode_sse
from stepwell.protocols.openai.chat import final_text
from stepwell.protocols.openai.run_end import (
    CompletionIds,
    RunFailedError,
    failure,
    finish_reason,
    responses_usage,
)
from stepwell.protocols.openai.run_text import RunText
from stepwell.state import AgentState

RESPONSE_PREFIX = "resp_"


class ResponseTranslator:
    """Returns the events of a run; ``result`` returns the whole response after its end."""

    def __init__(self, ids: CompletionIds, *, previous_response_id: str | None = None) -> None:
        self._ids = ids
        self._previous = previous_response_id
        self._text = RunText()
        self._number = 0
        self._has_item = False
        self._item_id = f"msg_{ids.execution_id}"
        self._ended: AgentState | None = None
        self._failure: RunFailedError | None = None

    def start(self, state: AgentState, /) -> list[WireEvent]:
        """Return the first events."""
        del state
        begun = self._response("in_progress")
        return [
            self._event("response.created", response=begun),
            self._event("response.in_progress", response=begun),
        ]

    def translate(self, entry: Entry, /) -> list[WireEvent]:
        """Return the events for an entry that adds text."""
        return self._delta(self._text.translate(entry))

    def step(self, state: AgentState, /) -> list[WireEvent]:
        """Return the text of a step that no entry brought."""
        return self._delta(self._text.step(state))

    def restart(self, state: AgentState, /) -> list[WireEvent]:
        """Hold back the text that the client has of the step."""
        del state
        self._text.restart()
        return []

    def finish(self, state: AgentState, /) -> list[WireEvent]:
        """Return the last events of a run that has a result."""
        events = self.step(state)
        self._ended, self._failure = state, failure(state)
        if self._failure is None:
            events += self._delta(final_text(self._text, state, self._ids))
        return [*events, *self._end()]

    def fail(self, message: str, code: str, /) -> list[WireEvent]:
        """Return the last events of a run that has no result."""
        self._failure = RunFailedError(message, code)
        return self._end()

    def result(self) -> WireEvent:
        """Return the whole response; a failed run is a response with an error."""
        return self._response(self._status())

    def _end(self) -> list[WireEvent]:
        status, events = self._status(), list[WireEvent]()
        if self._has_item:
            part, place = self._part(), {"item_id": self._item_id, "output_index": 0}
            place["content_index"] = 0
            done = {**place, "text": self._text.text, "logprobs": list[Any]()}
            events.append(self._event("response.output_text.done", **done))
            events.append(self._event("response.content_part.done", **place, part=part))
            item = self._item(status)
            events.append(self._event("response.output_item.done", output_index=0, item=item))
        kind = "failed" if status == "cancelled" else status
        return [*events, self._event(f"response.{kind}", response=self._response(status))]

    def _status(self) -> str:
        state = self._ended
        if self._failure is not None or state is None:
            is_cancelled = state is not None and state.status is AgentStatus.CANCELLED
            return "cancelled" if is_cancelled else "failed"
        return "incomplete" if self._incomplete_reason() else "completed"

    def _incomplete_reason(self) -> str | None:
        if self._ended is None or self._failure is not None:
            return None
        match finish_reason(self._ended, self._text.finish_reason):
            case "length":
                return "max_output_tokens"
            case "content_filter":
                return "content_filter"
            case _:
                return None

    def _delta(self, text: str) -> list[WireEvent]:
        if not text:
            return []
        events, place = list[WireEvent](), {"item_id": self._item_id, "output_index": 0}
        if not self._has_item:
            self._has_item = True
            item = {**self._item("in_progress"), "content": list[Any]()}
            events.append(self._event("response.output_item.added", output_index=0, item=item))
            part = {**self._part(), "text": ""}
            begun = {**place, "content_index": 0, "part": part}
            events.append(self._event("response.content_part.added", **begun))
        delta = {**place, "content_index": 0, "delta": text, "logprobs": list[Any]()}
        return [*events, self._event("response.output_text.delta", **delta)]

    def _event(self, type: str, **fields: Any) -> WireEvent:
        number, self._number = self._number, self._number + 1
        return {"type": type, "sequence_number": number, **fields}

    def _part(self) -> WireEvent:
        return {"type": "output_text", "text": self._text.text, "annotations": [], "logprobs": []}

    def _item(self, status: str) -> WireEvent:
        ended = status if status in ("in_progress", "completed") else "incomplete"
        item = {"id": self._item_id, "type": "message", "role": "assistant", "status": ended}
        return {**item, "content": [self._part()]}

    def _response(self, status: str) -> WireEvent:
        ids, state, fault = self._ids, self._ended, self._failure
        reason = self._incomplete_reason()
        has_text = self._has_item and status != "in_progress"
        return {
            "id": f"{RESPONSE_PREFIX}{ids.execution_id}",
            "object": "response",
            "created_at": ids.created,
            "status": status,
            "model": ids.model,
            "output": [self._item(status)] if has_text else [],
            "error": None if fault is None else {"code": "server_error", "message": str(fault)},
            "incomplete_details": None if reason is None else {"reason": reason},
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "previous_response_id": self._previous,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None if state is None else responses_usage(state.usage),
            "stepwell": ids.stop_data(state),
        }


def encode_response_event(event: WireEvent) -> bytes:
    r"""Return an event as a server-sent event with its type.

    >>> encode_response_event({"type": "response.created"})
    b'event: response.created\ndata: {"type":"response.created"}\n\n'
    """
    return f"event: {event['type']}\n".encode() + encode_sse(event)

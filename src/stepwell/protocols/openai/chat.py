"""Translates the entries of a run into chunks of a chat completion. Pure."""

from typing import Any

from stepwell.journal import Entry
from stepwell.protocols.client_stream import WireEvent
from stepwell.protocols.openai.run_end import (
    CompletionIds,
    RunFailedError,
    chat_usage,
    error_data,
    failure,
    finish_reason,
    question_text,
)
from stepwell.protocols.openai.run_text import RunText
from stepwell.state import AgentState
from stepwell.tools.result_text import as_text


class ChatCompletionTranslator:
    """Returns the chunks of a run; ``result`` returns the whole completion after its end."""

    def __init__(self, ids: CompletionIds, *, include_usage: bool = False) -> None:
        self._ids = ids
        self._include_usage = include_usage
        self._text = RunText()
        self._ended: AgentState | None = None
        self._failure: RunFailedError | None = None

    def start(self, state: AgentState, /) -> list[WireEvent]:
        """Return the first chunk."""
        del state
        return [self._chunk({"role": "assistant", "content": ""})]

    def translate(self, entry: Entry, /) -> list[WireEvent]:
        """Return the chunk for an entry that adds text."""
        return self._content(self._text.translate(entry))

    def step(self, state: AgentState, /) -> list[WireEvent]:
        """Return the text of a step that no entry brought."""
        return self._content(self._text.step(state))

    def restart(self, state: AgentState, /) -> list[WireEvent]:
        """Hold back the text that the client has of the step."""
        del state
        self._text.restart()
        return []

    def finish(self, state: AgentState, /) -> list[WireEvent]:
        """Return the last chunks of a run that has a result."""
        chunks = self.step(state)
        self._ended, self._failure = state, failure(state)
        if self._failure is not None:
            return [*chunks, {"error": error_data(self._failure)}]
        chunks += self._content(final_text(self._text, state, self._ids))
        reason = finish_reason(state, self._text.finish_reason)
        own = {"stepwell": self._ids.stop_data(state)}
        chunks.append({**self._chunk({}, finish_reason=reason), **own})
        if self._include_usage:
            chunks.append({**self._head(), "choices": [], "usage": chat_usage(state.usage)})
        return chunks

    def fail(self, message: str, code: str, /) -> list[WireEvent]:
        """Return the error of a run that has no result."""
        self._failure = RunFailedError(message, code)
        return [{"error": error_data(self._failure)}]

    def result(self) -> WireEvent:
        """Return the whole completion. Raises ``RunFailedError``."""
        if self._failure is not None:
            raise self._failure
        state = self._ended
        if state is None:
            raise RunFailedError("the run was followed only in part", "server_ends")
        message = {"role": "assistant", "content": self._text.text, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_reason(state, self._text.finish_reason),
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": chat_usage(state.usage),
            "stepwell": self._ids.stop_data(state),
        }

    def _content(self, text: str) -> list[WireEvent]:
        return [self._chunk({"content": text})] if text else []

    def _chunk(self, delta: WireEvent, finish_reason: str | None = None) -> WireEvent:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head(), "choices": [choice]}

    def _head(self, kind: str = "chat.completion.chunk") -> dict[str, Any]:
        ids = self._ids
        head = {"id": f"chatcmpl-{ids.execution_id}", "object": kind}
        return {**head, "created": ids.created, "model": ids.model}


def final_text(text: RunText, state: AgentState, ids: CompletionIds) -> str:
    """Add what the texts of the steps do not say: what a paused run waits for, or an output that is
    no text."""
    asked = question_text(state, ids)
    if asked is not None:
        return text.append(asked)
    if not text.text and state.output is not None:
        return text.append(as_text(state.output))
    return ""

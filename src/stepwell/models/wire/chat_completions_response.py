"""Responses of chat completions, complete or streamed, in the variants that servers send."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepwell.messages import FinishReason, TextPart, ThinkingPart, ToolCall, Usage
from stepwell.models.response import ModelResponse, StreamPart, TextDelta, ThinkingDelta
from stepwell.models.wire.format import (
    CallDraft,
    assemble_response,
    count,
    empty_response,
    incomplete_stream,
    json_text,
    list_at,
    object_at,
    parse_call,
    whole_or_raise,
)

ORIGIN = "chat_completions"
"""The origin of this format's thinking."""

_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "error": FinishReason.ERROR,
}


def whole_response(data: Any) -> ModelResponse:
    """Parse a complete response. Raises ``ModelError``."""
    usage = _usage(data.get("usage"))
    choices = data.get("choices")
    if not choices:
        raise empty_response("no choices", usage)
    message = object_at(choices[0], "message")
    response = assemble_response(
        (
            ThinkingPart(_reasoning_text(message), origin=ORIGIN),
            TextPart(_text(message.get("content"))),
            *(_call(call) for call in list_at(message, "tool_calls")),
        ),
        finish_reason=_finish_reason(choices[0].get("finish_reason")),
        usage=usage,
        model=data.get("model"),
        cost=_cost(data.get("usage")),
    )
    return whole_or_raise(response, refusal=message.get("refusal") or "")


class ChatReader:
    """Collects the deltas of one response."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._refusal: list[str] = []
        self._drafts: list[CallDraft] = []
        self._by_index: dict[int | None, CallDraft] = {}
        self.usage = Usage()
        self._cost = 0.0
        self._model: str | None = None
        self._finish: str | None = None
        self.is_over = False

    @property
    def may_be_over(self) -> bool:
        """Whether finish reason and usage have arrived. Some servers send no final message."""
        return self._finish is not None and bool(self.usage)

    def read(self, event: Any) -> Iterable[StreamPart]:
        """Return the parts in one chunk."""
        if event is None:  # [DONE]
            self.is_over = True
            return ()
        if usage := event.get("usage"):
            self.usage, self._cost = _usage(usage), _cost(usage)
        choices = event.get("choices")
        if not choices:
            return ()
        choice = choices[0]
        self._model = event.get("model") or self._model
        self._finish = choice.get("finish_reason") or self._finish
        delta = choice.get("delta")
        return self._parts(delta) if delta else ()

    def _parts(self, delta: Mapping[str, Any]) -> list[StreamPart]:
        parts: list[StreamPart] = []
        if content := delta.get("content"):
            text = content if isinstance(content, str) else _text(content)
            if text:
                self._text.append(text)
                parts.append(TextDelta(text))
        if thought := _reasoning_text(delta):
            self._thinking.append(thought)
            parts.append(ThinkingDelta(thought))
        if refusal := delta.get("refusal"):
            self._refusal.append(refusal)
        for call in list_at(delta, "tool_calls"):
            parts.extend(self._call_parts(call))
        return parts

    def _call_parts(self, call: Mapping[str, Any]) -> Iterator[StreamPart]:
        function = object_at(call, "function")
        id, name = call.get("id") or "", function.get("name") or ""
        draft = self._open_call(call.get("index"), id, name)
        if draft is None:
            draft = CallDraft(len(self._drafts), id, name)
            self._drafts.append(draft)
            self._by_index[call.get("index")] = draft
            yield draft.start()
        draft.id, draft.name = draft.id or id, draft.name or name
        if arguments := function.get("arguments"):
            text = arguments if isinstance(arguments, str) else json_text(arguments)
            yield draft.add(text)

    def _open_call(self, index: int | None, id: str, name: str) -> CallDraft | None:
        """Return the call that a delta continues, or None if it starts a new one. Some servers omit
        the index, some send 0 for every call, some change a call's id in each delta."""
        draft = self._by_index.get(index)
        if draft is None or not name or not draft.name:
            return draft
        return draft if (id or index is not None) and id in ("", draft.id) else None

    def response(self) -> ModelResponse:
        """Return the response. With a finish reason and either the usage or the final message, no
        text can be missing."""
        if self._finish is None:
            raise incomplete_stream("a finish reason", self.usage)
        if not self.is_over and not self.usage:
            raise incomplete_stream("its last message [DONE]", self.usage)
        response = assemble_response(
            (
                ThinkingPart("".join(self._thinking), origin=ORIGIN),
                TextPart("".join(self._text)),
                *(draft.call() for draft in self._drafts),
            ),
            finish_reason=_finish_reason(self._finish),
            usage=self.usage,
            model=self._model,
            cost=self._cost,
        )
        return whole_or_raise(response, refusal="".join(self._refusal))


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = object_at(call, "function")
    return parse_call(call.get("id") or "", function.get("name") or "", function.get("arguments"))


def _text(content: Any) -> str:
    """Return the text of a string or of a list of content parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text") or "" for part in content if part.get("type") == "text")


def _reasoning_text(message: Mapping[str, Any]) -> str:
    return message.get("reasoning_content") or message.get("reasoning") or ""


def _finish_reason(word: str | None) -> FinishReason:
    return FinishReason.OTHER if word is None else _FINISH_REASONS.get(word, FinishReason.OTHER)


def _cost(usage: Any) -> float:
    """Return the cost that the provider reports; few do."""
    cost = usage.get("cost") if usage else None
    return float(cost) if isinstance(cost, int | float) else 0.0


def _usage(usage: Any) -> Usage:
    if not usage:
        return Usage()
    of_input = object_at(usage, "prompt_tokens_details")
    of_output = object_at(usage, "completion_tokens_details")
    cached = of_input.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    prompt, output = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    reasoning = count(of_output.get("reasoning_tokens"))
    if reasoning and count(usage.get("total_tokens")) == prompt + output + reasoning:
        output += reasoning  # some count it separately from the output
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        cached_tokens=count(cached),
        cache_write_tokens=count(of_input.get("cache_write_tokens")),
        reasoning_tokens=reasoning,
    )

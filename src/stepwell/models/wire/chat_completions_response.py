"""What chat completions answer, whole or as a stream, with the liberties that servers take."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stepwell.messages import FinishReason, TextPart, ThinkingPart, ToolCall, Usage
from stepwell.models.response import ModelResponse, StreamPart, TextDelta, ThinkingDelta
from stepwell.models.wire.format import (
    CallDraft,
    assembled,
    count,
    empty,
    incomplete,
    json_text,
    listed,
    parsed_call,
    section,
    whole_or_raise,
)

ORIGIN = "chat_completions"
"""The format's word, by which its own thinking is known."""

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
    """The response in a whole answer; raises ``ModelError``."""
    usage = _usage(data.get("usage"))
    choices = data.get("choices")
    if not choices:
        raise empty("no choices", usage)
    message = section(choices[0], "message")
    response = assembled(
        (
            ThinkingPart(_reasoning(message), origin=ORIGIN),
            TextPart(_text(message.get("content"))),
            *(_call(call) for call in listed(message, "tool_calls")),
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
        """Whether the reason to finish and the usage have come; some servers say no last word."""
        return self._finish is not None and bool(self.usage)

    def read(self, event: Any) -> Iterable[StreamPart]:
        """The parts in one chunk."""
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
        if thought := _reasoning(delta):
            self._thinking.append(thought)
            parts.append(ThinkingDelta(thought))
        if refusal := delta.get("refusal"):
            self._refusal.append(refusal)
        for call in listed(delta, "tool_calls"):
            parts.extend(self._call_parts(call))
        return parts

    def _call_parts(self, call: Mapping[str, Any]) -> Iterator[StreamPart]:
        function = section(call, "function")
        id, name = call.get("id") or "", function.get("name") or ""
        draft = self._begun(call.get("index"), id, name)
        if draft is None:
            draft = CallDraft(len(self._drafts), id, name)
            self._drafts.append(draft)
            self._by_index[call.get("index")] = draft
            yield draft.start()
        draft.id, draft.name = draft.id or id, draft.name or name
        if arguments := function.get("arguments"):
            text = arguments if isinstance(arguments, str) else json_text(arguments)
            yield draft.add(text)

    def _begun(self, index: int | None, id: str, name: str) -> CallDraft | None:
        """The call that goes on in a delta, None if a new one begins. Some servers leave the index
        out, some say 0 for every call, some give one call another id in each delta."""
        draft = self._by_index.get(index)
        if draft is None or not name or not draft.name:
            return draft
        return draft if (id or index is not None) and id in ("", draft.id) else None

    def response(self) -> ModelResponse:
        """The whole response. The reason to finish and either the usage or the last message must
        have come: what is missing then can't be text."""
        if self._finish is None:
            raise incomplete("a finish reason", self.usage)
        if not self.is_over and not self.usage:
            raise incomplete("its last message [DONE]", self.usage)
        response = assembled(
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
    function = section(call, "function")
    return parsed_call(call.get("id") or "", function.get("name") or "", function.get("arguments"))


def _text(content: Any) -> str:
    """Text, or the text of a list of content parts, as some servers send it."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text") or "" for part in content if part.get("type") == "text")


def _reasoning(message: Mapping[str, Any]) -> str:
    return message.get("reasoning_content") or message.get("reasoning") or ""


def _finish_reason(word: str | None) -> FinishReason:
    return FinishReason.OTHER if word is None else _FINISH_REASONS.get(word, FinishReason.OTHER)


def _cost(usage: Any) -> float:
    """What the provider says it charged; few do."""
    cost = usage.get("cost") if usage else None
    return float(cost) if isinstance(cost, int | float) else 0.0


def _usage(usage: Any) -> Usage:
    if not usage:
        return Usage()
    of_input = section(usage, "prompt_tokens_details")
    of_output = section(usage, "completion_tokens_details")
    cached = of_input.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")
    asked, said = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    reasoning = count(of_output.get("reasoning_tokens"))
    if reasoning and count(usage.get("total_tokens")) == asked + said + reasoning:
        said += reasoning  # some count it apart from the rest of the output
    return Usage(
        input_tokens=asked,
        output_tokens=said,
        cached_tokens=count(cached),
        cache_write_tokens=count(of_input.get("cache_write_tokens")),
        reasoning_tokens=reasoning,
    )

"""Translates responses and streams of pydantic-ai models to ours. Imported with pydantic-ai on the
first turn.
"""

from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct
from pydantic_ai import messages as theirs
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FinishReason, ThinkingPart, ToolCall, Usage
from stepwell.models.attempts import last_parts
from stepwell.models.pydantic_ai.requests import ORIGIN, THOUGHT_SIGNATURE
from stepwell.models.response import (
    ModelResponse,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
)
from stepwell.models.wire.format import incomplete_stream, json_text, parse_call, whole_or_raise

_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "tool_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "error": FinishReason.ERROR,
}


class Spending(Struct, frozen=True):
    """The usage and cost of a turn."""

    usage: Usage = Usage()
    cost: float = 0.0

    def __add__(self, other: "Spending") -> "Spending":
        return Spending(self.usage + other.usage, self.cost + other.cost)


def translate_response(response: theirs.ModelResponse, name: str) -> ModelResponse:
    """Translate a response. Raises ``ModelError`` if it is a refusal or incomplete."""
    spent = spending_of(response)
    calls = [_call(part) for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    reason = _finish_reason(response)
    if calls and reason in (None, FinishReason.STOP):  # as in the wire formats
        reason = FinishReason.TOOL_CALLS
    ours = ModelResponse(
        text="".join(p.content for p in response.parts if isinstance(p, theirs.TextPart)),
        tool_calls=tuple(calls),
        thinking=tuple(_thinking(response)),
        finish_reason=reason,
        usage=spent.usage,
        cost=spent.cost,
        model=response.model_name,
        request_id=response.provider_response_id,
    )
    try:
        _check_not_suspended(response)
        return whole_or_raise(ours, refusal=_refusal(response))
    except ModelError as error:
        raise _complete_error(error, name, spent) from None


class StreamTranslation:
    """The parts of one streamed response."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stream: StreamedResponse | None = None
        self._calls: dict[int, int] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the provider has started to respond."""
        return self._stream is not None

    def begin(self, stream: StreamedResponse) -> None:
        """Record that the provider has started to respond."""
        self._stream = stream

    def parts(self, event: theirs.ModelResponseStreamEvent) -> Iterator[StreamPart]:
        """Yield the parts of one event."""
        match event:
            case theirs.PartStartEvent(index=index, part=part):
                yield from self._start_part(index, part)
            case theirs.PartDeltaEvent(delta=theirs.TextPartDelta(content_delta=text)) if text:
                yield TextDelta(text)
            case theirs.PartDeltaEvent(delta=theirs.ThinkingPartDelta(content_delta=text)) if text:
                yield ThinkingDelta(text)
            case theirs.PartDeltaEvent(
                index=index, delta=theirs.ToolCallPartDelta(args_delta=more)
            ):
                if index in self._calls:
                    yield from self._arguments(index, more)
            case _:
                pass

    def spent(self) -> Spending:
        """Return the usage and cost so far."""
        return Spending() if self._stream is None else spending_of(self._stream.get())

    def end(self) -> Iterator[StreamPart]:
        """Yield the last parts: tool calls, usage and the response."""
        if self._stream is None:
            return
        received = self._stream.get()
        if _is_cut_off(self._stream, received):
            error = incomplete_stream("a finish reason", Usage())
            raise _complete_error(error, self._name, self.spent())
        yield from last_parts(translate_response(received, self._name), with_text=False)

    def _start_part(self, index: int, part: theirs.ModelResponsePart) -> Iterator[StreamPart]:
        match part:
            case theirs.TextPart(content=text) if text:
                yield TextDelta(text)
            case theirs.ThinkingPart(content=text) if text:
                yield ThinkingDelta(text)
            case theirs.ToolCallPart() if index not in self._calls:
                number = self._calls[index] = len(self._calls)
                yield ToolCallStart(index=number, id=part.tool_call_id, name=part.tool_name)
                yield from self._arguments(index, cast("Any", part.args))
            case _:
                pass

    def _arguments(self, index: int, more: str | dict[str, Any] | None) -> Iterator[StreamPart]:
        if more:
            text = more if isinstance(more, str) else json_text(more)
            yield ToolCallDelta(index=self._calls[index], arguments=text)


def spending_of(response: theirs.ModelResponse) -> Spending:
    """Return the usage and cost of a response, with those of failed fallbacks."""
    spent = Spending(_usage(response.usage), _cost(response))
    for attempt in response.failed_attempts or ():
        spent += spending_of_attempt(attempt)
    return spent


def spending_of_attempt(attempt: theirs.ModelRequestAttempt) -> Spending:
    """Return the usage and cost of a failed attempt."""
    if attempt.usage is None:
        return Spending()
    return Spending(_usage(attempt.usage), float(attempt.usage.cost or 0.0))


def _usage(usage: RequestUsage) -> Usage:
    """Convert usage. Like ours, it includes cached tokens in the input, reasoning in the output."""
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.output_reasoning_tokens or usage.details.get("reasoning_tokens", 0),
    )


def _cost(response: theirs.ModelResponse) -> float:
    if response.usage.cost is not None:
        return float(response.usage.cost)
    if response.model_name is None or not response.usage.total_tokens:
        return 0.0
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError):  # no price is known, or the tokens were not reported
        return 0.0


def _call(part: theirs.ToolCallPart) -> ToolCall:
    signature = (part.provider_details or {}).get(THOUGHT_SIGNATURE)
    return parse_call(part.tool_call_id, part.tool_name, part.args, signature)


def _thinking(response: theirs.ModelResponse) -> Iterator[ThinkingPart]:
    """Yield thinking parts. The origin names the provider, since signatures hold only for it."""
    for part in response.parts:
        if isinstance(part, theirs.ThinkingPart):
            provider = part.provider_name or response.provider_name or ""
            yield ThinkingPart(part.content, part.signature, part.id, f"{ORIGIN}{provider}")


def _finish_reason(response: theirs.ModelResponse) -> FinishReason | None:
    """Return None for models without one, such as pydantic-ai's test doubles."""
    if response.finish_reason is not None:
        return _FINISH_REASONS.get(response.finish_reason, FinishReason.OTHER)
    return FinishReason.OTHER if _provider_reason(response) else None


def _provider_reason(response: theirs.ModelResponse) -> str | None:
    """Return the provider's own finish reason."""
    return (response.provider_details or {}).get("finish_reason")


def _refusal(response: theirs.ModelResponse) -> str:
    """Return the text of a refusal, or an empty text."""
    said = (response.provider_details or {}).get("refusal")
    if said:
        return str(said)
    return "(it gave no reason)" if _provider_reason(response) == "refusal" else ""


def _check_not_suspended(response: theirs.ModelResponse) -> None:
    if response.state == "suspended":
        raise ModelError(
            "the provider suspended the turn, which this bridge does not support; remove the "
            "settings for background mode or server-side tools",
            kind=ModelErrorKind.INVALID_REQUEST,
        )


def _is_cut_off(stream: StreamedResponse, response: theirs.ModelResponse) -> bool:
    """Return whether a stream ended early. pydantic-ai accepts chat completions without a finish
    reason, since a few servers omit it, but a truncated stream looks the same."""
    if response.state == "incomplete":
        return True
    kinds = {kind.__name__ for kind in type(stream).__mro__}
    names_its_end = "OpenAIStreamedResponse" in kinds or (
        response.finish_reason is None and response.provider_url is not None
    )
    return names_its_end and not _provider_reason(response) and not _refusal(response)


def _complete_error(error: ModelError, name: str, spent: Spending) -> ModelError:
    """Add the model's name, usage and cost to an error."""
    error.args = (f"{name}: {error}",)
    error.usage, error.cost = spent.usage, spent.cost
    return error

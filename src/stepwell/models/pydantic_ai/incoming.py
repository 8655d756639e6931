"""From what a pydantic-ai model answers to our response, and from its stream to our parts. Imported
with pydantic-ai, by the bridged model, when a turn is made.
"""

from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct
from pydantic_ai import messages as theirs
from pydantic_ai.models import StreamedResponse
from pydantic_ai.usage import RequestUsage

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import FinishReason, ThinkingPart, ToolCall, Usage
from stepwell.models.pydantic_ai.outgoing import ORIGIN, THOUGHT_SIGNATURE
from stepwell.models.response import (
    ModelResponse,
    ResponseEnd,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageReport,
)
from stepwell.models.wire.format import incomplete, json_text, parsed_call, whole_or_raise

_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "tool_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "error": FinishReason.ERROR,
}


class Spent(Struct, frozen=True):
    """What a turn used and cost."""

    usage: Usage = Usage()
    cost: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.usage + other.usage, self.cost + other.cost)


def translated(response: theirs.ModelResponse, name: str) -> ModelResponse:
    """The response in our words; raises ``ModelError`` if it is a refusal or not whole."""
    spent = spent_on(response)
    calls = [_call(part) for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    reason = _finish_reason(response)
    if calls and reason in (None, FinishReason.STOP):  # as everywhere, calls are what ended it
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
        _refuse_suspended(response)
        return whole_or_raise(ours, refusal=_refusal(response))
    except ModelError as error:
        raise _completed(error, name, spent) from None


def last_parts(response: ModelResponse) -> Iterator[StreamPart]:
    """How every stream ends: its calls, its usage, and the whole."""
    for index, call in enumerate(response.tool_calls):
        yield ToolCallEnd(index=index, call=call)
    if response.usage:
        yield UsageReport(response.usage)
    yield ResponseEnd(response)


class StreamTranslation:
    """The parts of one streamed response."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stream: StreamedResponse | None = None
        self._calls: dict[int, int] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the provider answered at all."""
        return self._stream is not None

    def begin(self, stream: StreamedResponse) -> None:
        """The provider has begun to answer."""
        self._stream = stream

    def parts(self, event: theirs.ModelResponseStreamEvent) -> Iterator[StreamPart]:
        """The parts that one event stands for; arguments of calls never become text."""
        match event:
            case theirs.PartStartEvent(index=index, part=part):
                yield from self._started(index, part)
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

    def spent(self) -> Spent:
        """What the turn has used so far."""
        return Spent() if self._stream is None else spent_on(self._stream.get())

    def end(self) -> Iterator[StreamPart]:
        """The stream is over: its calls, its usage, and the whole response."""
        if self._stream is None:
            return
        received = self._stream.get()
        if _is_cut_off(self._stream, received):
            error = incomplete("a finish reason", Usage())
            raise _completed(error, self._name, self.spent())
        yield from last_parts(translated(received, self._name))

    def _started(self, index: int, part: theirs.ModelResponsePart) -> Iterator[StreamPart]:
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


def spent_on(response: theirs.ModelResponse) -> Spent:
    """What a response used and cost, with what fallbacks tried in vain before it."""
    spent = Spent(_usage(response.usage), _cost(response))
    for attempt in response.failed_attempts or ():
        spent += spent_on_attempt(attempt)
    return spent


def spent_on_attempt(attempt: theirs.ModelRequestAttempt) -> Spent:
    """What an attempt used that led to no response."""
    if attempt.usage is None:
        return Spent()
    return Spent(_usage(attempt.usage), float(attempt.usage.cost or 0.0))


def _usage(usage: RequestUsage) -> Usage:
    """pydantic-ai counts as we do: cached tokens are part of the input, reasoning of the output."""
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
    return parsed_call(part.tool_call_id, part.tool_name, part.args, signature)


def _thinking(response: theirs.ModelResponse) -> Iterator[ThinkingPart]:
    """A signature counts only for the provider that gave it, so its name is kept with it."""
    for part in response.parts:
        if isinstance(part, theirs.ThinkingPart):
            provider = part.provider_name or response.provider_name or ""
            yield ThinkingPart(part.content, part.signature, part.id, f"{ORIGIN}{provider}")


def _finish_reason(response: theirs.ModelResponse) -> FinishReason | None:
    """None for models that never tell one, such as pydantic-ai's own doubles."""
    if response.finish_reason is not None:
        return _FINISH_REASONS.get(response.finish_reason, FinishReason.OTHER)
    return FinishReason.OTHER if _provider_reason(response) else None


def _provider_reason(response: theirs.ModelResponse) -> str | None:
    """The finish reason in the provider's own word."""
    return (response.provider_details or {}).get("finish_reason")


def _refusal(response: theirs.ModelResponse) -> str:
    """What the model said as it refused; empty if it did not."""
    said = (response.provider_details or {}).get("refusal")
    if said:
        return str(said)
    return "(it gave no reason)" if _provider_reason(response) == "refusal" else ""


def _refuse_suspended(response: theirs.ModelResponse) -> None:
    if response.state == "suspended":
        raise ModelError(
            "the provider suspended the turn and waits to be asked on, which this bridge does not "
            "do; leave out the settings for background or server-side tools",
            kind=ModelErrorKind.INVALID_REQUEST,
        )


def _is_cut_off(stream: StreamedResponse, response: theirs.ModelResponse) -> bool:
    """Whether a stream ended early. pydantic-ai takes chat completions that never named a finish
    reason as whole, since a few servers always leave it out; but a cut looks the same."""
    if response.state == "incomplete":
        return True
    kinds = {kind.__name__ for kind in type(stream).__mro__}
    names_its_end = "OpenAIStreamedResponse" in kinds or (
        response.finish_reason is None and response.provider_url is not None
    )
    return names_its_end and not _provider_reason(response) and not _refusal(response)


def _completed(error: ModelError, name: str, spent: Spent) -> ModelError:
    """The error with whose it is and what it cost."""
    error.args = (f"{name}: {error}",)
    error.usage, error.cost = spent.usage, spent.cost
    return error

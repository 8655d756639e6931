"""One try at a turn, for models that wrap other models: opening a stream, and the cost and the
errors of failed tries. A turn can be retried only until the first part of its stream arrives.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stepwell.errors import ConfigurationError, ModelError, ModelErrorKind, text_of
from stepwell.messages import Usage
from stepwell.models.model import Model
from stepwell.models.request import ModelRequest
from stepwell.models.response import (
    ModelResponse,
    ResponseEnd,
    StreamPart,
    TextDelta,
    ToolCallEnd,
    ToolCallStart,
    UsageReport,
)

T = TypeVar("T")
Ask = Callable[[Model, ModelRequest], Awaitable[T]]


class FailedTry(Struct, frozen=True):
    """A model and the error it failed with."""

    model: str
    error: ModelError


class FailedTries(Struct, frozen=True):
    """The failed tries of a turn so far, in order.

    >>> failed = FailedTries().add("acme-1", ModelError("429", cost=0.5))
    >>> failed.add("acme-2", ModelError("refused", cost=0.25)).cost
    0.75
    """

    tries: tuple[FailedTry, ...] = ()

    @property
    def last(self) -> ModelError:
        """The last error."""
        return self.tries[-1].error

    @property
    def usage(self) -> Usage:
        """The tokens that the failed tries were charged for."""
        used = Usage()
        for failed in self.tries:
            if isinstance(failed.error.usage, Usage):
                used += failed.error.usage
        return used

    @property
    def cost(self) -> float:
        """The cost of the failed tries."""
        return sum((failed.error.cost or 0.0 for failed in self.tries), 0.0)

    @property
    def summary(self) -> str:
        """The text of every error, in order."""
        return "; ".join(f"{failed.model}: {_error_text(failed.error)}" for failed in self.tries)

    def add(self, model: str, error: ModelError) -> "FailedTries":
        """Return these with one more."""
        return FailedTries((*self.tries, FailedTry(model, error)))

    def add_costs(self, response: ModelResponse, model: str) -> ModelResponse:
        """Return the response with the usage and cost of the failed tries, and its model."""
        if not _is_response(response):  # the caller reports what is wrong with it
            return response
        if self.tries:
            usage, cost = response.usage + self.usage, response.cost + self.cost
            response = replace(response, usage=usage, cost=cost)
        return response if response.model is not None else replace(response, model=model)

    def error(self, text: str, *, retryable: bool | None, retry_after: float | None) -> ModelError:
        """Return the last error with another text and the usage and cost of all tries."""
        last, usage, cost = self.last, self.usage, self.cost
        error = ModelError(
            text,
            kind=last.kind,
            error_type=last.error_type,
            retryable=retryable,
            retry_after=retry_after,
            status=last.status,
            request_id=last.request_id,
            provider_text=last.provider_text,
            usage=usage if usage or cost else last.usage,
            cost=cost,
        )
        error.retryable = retryable  # the constructor replaces None by the kind's default
        return error

    def last_error(self, text: str) -> ModelError:
        """Return the last error with another text."""
        return self.error(text, retryable=self.last.retryable, retry_after=self.last.retry_after)


class TurnResult(Struct, Generic[T], frozen=True):
    """The result of a turn, the model that gave it, and the tries that failed before."""

    model: str
    value: T
    failed: FailedTries


class OpenStream:
    """A stream whose first part has arrived, so the turn can't be retried any more."""

    __slots__ = ("first", "rest")

    def __init__(self, first: tuple[StreamPart, ...], rest: AsyncIterator[StreamPart]) -> None:
        self.first = first
        self.rest = rest


async def respond(model: Model, request: ModelRequest) -> ModelResponse:
    """Ask a model for a complete response."""
    return await model.respond(request)


def parts_of(model: Model, request: ModelRequest) -> AsyncIterator[StreamPart]:
    """Return the model's stream. A model that can't stream gives its response as one part."""
    can_stream = callable(getattr(model, "stream", None))
    return aiter(model.stream(request)) if can_stream else _response_as_parts(model, request)


async def open_stream(model: Model, request: ModelRequest) -> OpenStream:
    """Open a stream and read it up to its first part that is not a usage report."""
    parts = parts_of(model, request)
    first: list[StreamPart] = []
    async for part in parts:
        first.append(part)
        if not isinstance(part, UsageReport):
            return OpenStream(tuple(first), parts)
    raise incomplete_stream(name_of(model))


async def stream_parts(
    begin: Callable[[], Awaitable[TurnResult[OpenStream]]],
) -> AsyncIterator[StreamPart]:
    """Yield the parts of the stream that ``begin`` opens. Later failures are raised."""
    answered = await begin()
    model, stream, failed = answered.model, answered.value, answered.failed
    has_failed = bool(failed.tries)
    end: ResponseEnd | None = None
    try:
        for part in stream.first:
            if isinstance(part, ResponseEnd):
                end = part
            else:
                yield _add_costs(part, failed) if has_failed else part
        if end is None:
            async for part in stream.rest:
                if isinstance(part, ResponseEnd):
                    end = part
                    break
                yield _add_costs(part, failed) if has_failed else part
        if end is None:
            raise incomplete_stream(model)
    except ModelError as error:
        if not failed.tries:
            raise
        text = (
            f"{text_of(error)} (not retried, since a part of the response was delivered; earlier "
            f"failures: {failed.summary})"
        )
        raise failed.add(model, error).last_error(text) from error
    finally:
        # Before the last part, since a caller may stop reading after it.
        await close(stream.rest)
    yield ResponseEnd(failed.add_costs(end.response, model))


def last_parts(response: ModelResponse, *, with_text: bool) -> Iterator[StreamPart]:
    """Yield the last parts of a stream: tool calls, usage and the response."""
    if with_text and response.text:
        yield TextDelta(response.text)
    for index, call in enumerate(response.tool_calls):
        if with_text:
            yield ToolCallStart(index=index, id=call.id, name=call.name)
        yield ToolCallEnd(index=index, call=call)
    if response.usage:
        yield UsageReport(response.usage, response.cost)
    yield ResponseEnd(response)


def incomplete_stream(model: str) -> ModelError:
    """Return the error for a stream that ended early."""
    return ModelError(
        f"the stream of {model} ended without its final part",
        kind=ModelErrorKind.INCOMPLETE_STREAM,
    )


async def close(parts: AsyncIterator[StreamPart]) -> None:
    """Release the connection now, not when the stream is garbage-collected."""
    close = getattr(parts, "aclose", None)
    if close is not None:
        await close()


def name_of(model: Any) -> str:
    """Return a model's name, or its class name if it has none."""
    return getattr(model, "name", type(model).__name__)


def check_model(given: Any, owner: str) -> None:
    """Raise ``ConfigurationError`` if the value is not a model."""
    if isinstance(given, str):
        raise ConfigurationError(
            f"{owner} needs model objects, got the name {given!r}. Write "
            f"ModelPresets().model({given!r})"
        )
    if isinstance(given, list | tuple):
        raise ConfigurationError(
            f"{owner} takes models as separate arguments; write {owner}(*models)"
        )
    if isinstance(given, type):
        raise ConfigurationError(
            f"{owner} needs model objects, got the class {given.__name__}; call it"
        )
    if not callable(getattr(given, "respond", None)):
        raise ConfigurationError(
            f"{owner} needs model objects, and {given!r:.80} has no respond(); see stepwell.Model"
        )


def subtract_seconds(request: ModelRequest, seconds: float) -> ModelRequest:
    """Return the request with less time to its deadline."""
    if request.seconds_left is None:
        return request
    return replace(request, seconds_left=max(request.seconds_left - seconds, 0.0))


async def _response_as_parts(model: Model, request: ModelRequest) -> AsyncIterator[StreamPart]:
    response = await model.respond(request)
    if _is_response(response) and response.text:
        yield TextDelta(response.text)
    yield ResponseEnd(response)


def _add_costs(part: StreamPart, failed: FailedTries) -> StreamPart:
    if not isinstance(part, UsageReport):
        return part
    return UsageReport(part.usage + failed.usage, part.cost + failed.cost)


def _is_response(response: Any) -> bool:
    return (
        isinstance(response, ModelResponse)
        and isinstance(response.usage, Usage)  # pyright: ignore[reportUnnecessaryIsInstance]
        and isinstance(response.cost, float)
    )


def _error_text(error: ModelError) -> str:
    return text_of(error) or type(error).__name__

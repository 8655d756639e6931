"""One try at a turn, for the models that wrap others: how a stream begins, what failed tries cost,
and what is told of them. A try can only be followed by another until its first part is there.
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
    """Which model failed, and how."""

    model: str
    error: ModelError


class FailedTries(Struct, frozen=True):
    """The tries of a turn that failed so far, in order.

    >>> failed = FailedTries().and_then("acme-1", ModelError("429", cost=0.5))
    >>> failed.and_then("acme-2", ModelError("refused", cost=0.25)).cost
    0.75
    """

    tries: tuple[FailedTry, ...] = ()

    @property
    def last(self) -> ModelError:
        """The newest failure."""
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
        """What the failed tries cost."""
        return sum((failed.error.cost or 0.0 for failed in self.tries), 0.0)

    @property
    def told(self) -> str:
        """Each failure in words, in order."""
        return "; ".join(f"{failed.model}: {_in_words(failed.error)}" for failed in self.tries)

    def and_then(self, model: str, error: ModelError) -> "FailedTries":
        """These, and one more."""
        return FailedTries((*self.tries, FailedTry(model, error)))

    def paid_with(self, response: ModelResponse, model: str) -> ModelResponse:
        """The response that came at last, with what the failed tries used, and who gave it."""
        if not _is_sound(response):  # whoever asked says what is wrong with it
            return response
        if self.tries:
            usage, cost = response.usage + self.usage, response.cost + self.cost
            response = replace(response, usage=usage, cost=cost)
        return response if response.model is not None else replace(response, model=model)

    def error(self, text: str, *, retryable: bool | None, retry_after: float | None) -> ModelError:
        """The last failure's facts under these words, with what all tries used."""
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
        error.retryable = retryable  # None is an answer here, not a question to the kind
        return error

    def last_error(self, text: str) -> ModelError:
        """The last failure itself, under these words."""
        return self.error(text, retryable=self.last.retryable, retry_after=self.last.retry_after)


class Answered(Struct, Generic[T], frozen=True):
    """What came at last, from which model, and what failed before."""

    model: str
    value: T
    failed: FailedTries


class BegunStream:
    """A stream whose first part has arrived: from here on the turn can't be tried again."""

    __slots__ = ("first", "rest")

    def __init__(self, first: tuple[StreamPart, ...], rest: AsyncIterator[StreamPart]) -> None:
        self.first = first
        self.rest = rest


async def whole(model: Model, request: ModelRequest) -> ModelResponse:
    """A try at a whole response."""
    return await model.respond(request)


def parts_of(model: Model, request: ModelRequest) -> AsyncIterator[StreamPart]:
    """The model's stream; a model that can't stream gives its whole answer as one part."""
    can_stream = callable(getattr(model, "stream", None))
    return aiter(model.stream(request)) if can_stream else _response_as_parts(model, request)


async def begun(model: Model, request: ModelRequest) -> BegunStream:
    """A try at a stream, up to the first part that says something; usage alone says nothing."""
    parts = parts_of(model, request)
    first: list[StreamPart] = []
    async for part in parts:
        first.append(part)
        if not isinstance(part, UsageReport):
            return BegunStream(tuple(first), parts)
    raise incomplete(name_of(model))


async def delivered(
    begin: Callable[[], Awaitable[Answered[BegunStream]]],
) -> AsyncIterator[StreamPart]:
    """The parts of the stream that began at last. What fails from here on is raised."""
    answered = await begin()
    model, stream, failed = answered.model, answered.value, answered.failed
    has_failed = bool(failed.tries)
    end: ResponseEnd | None = None
    try:
        for part in stream.first:
            if isinstance(part, ResponseEnd):
                end = part
            else:
                yield _paid_with(part, failed) if has_failed else part
        if end is None:
            async for part in stream.rest:
                if isinstance(part, ResponseEnd):
                    end = part
                    break
                yield _paid_with(part, failed) if has_failed else part
        if end is None:
            raise incomplete(model)
    except ModelError as error:
        if not failed.tries:
            raise
        text = (
            f"{text_of(error)} (a part of the answer was delivered, so nothing is tried again; "
            f"before that {failed.told})"
        )
        raise failed.and_then(model, error).last_error(text) from error
    finally:
        # Also before the last part goes out: the caller has no reason to come back after it.
        await close(stream.rest)
    yield ResponseEnd(failed.paid_with(end.response, model))


def last_parts(response: ModelResponse, *, with_text: bool) -> Iterator[StreamPart]:
    """How every stream ends: its calls, its usage, and the whole."""
    if with_text and response.text:
        yield TextDelta(response.text)
    for index, call in enumerate(response.tool_calls):
        if with_text:
            yield ToolCallStart(index=index, id=call.id, name=call.name)
        yield ToolCallEnd(index=index, call=call)
    if response.usage:
        yield UsageReport(response.usage, response.cost)
    yield ResponseEnd(response)


def incomplete(model: str) -> ModelError:
    """The error of a stream that ended too early."""
    return ModelError(
        f"the stream of {model} ended without its final part",
        kind=ModelErrorKind.INCOMPLETE_STREAM,
    )


async def close(parts: AsyncIterator[StreamPart]) -> None:
    """Let go of the connection now instead of whenever the stream is collected."""
    close = getattr(parts, "aclose", None)
    if close is not None:
        await close()


def name_of(model: Any) -> str:
    """What to call a model, also one that has no name."""
    return getattr(model, "name", type(model).__name__)


def refuse_what_is_no_model(given: Any, owner: str) -> None:
    """Say at construction what is wrong with a model."""
    if isinstance(given, str):
        raise ConfigurationError(
            f"{owner} takes models, and {given!r} is a name; write ModelPresets().model({given!r})"
        )
    if isinstance(given, list | tuple):
        raise ConfigurationError(f"{owner} takes each model on its own: write {owner}(*models)")
    if isinstance(given, type):
        raise ConfigurationError(f"{owner} takes models, and {given.__name__} is a class; call it")
    if not callable(getattr(given, "respond", None)):
        raise ConfigurationError(
            f"{owner} takes models, and {given!r:.80} has no respond(); see stepwell.Model"
        )


def with_seconds_spent(request: ModelRequest, seconds: float) -> ModelRequest:
    """The request that much later: its deadline is closer."""
    if request.seconds_left is None:
        return request
    return replace(request, seconds_left=max(request.seconds_left - seconds, 0.0))


async def _response_as_parts(model: Model, request: ModelRequest) -> AsyncIterator[StreamPart]:
    response = await model.respond(request)
    if _is_sound(response) and response.text:
        yield TextDelta(response.text)
    yield ResponseEnd(response)


def _paid_with(part: StreamPart, failed: FailedTries) -> StreamPart:
    if not isinstance(part, UsageReport):
        return part
    return UsageReport(part.usage + failed.usage, part.cost + failed.cost)


def _is_sound(response: Any) -> bool:
    return (
        isinstance(response, ModelResponse)
        and isinstance(response.usage, Usage)  # pyright: ignore[reportUnnecessaryIsInstance]
        and isinstance(response.cost, float)
    )


def _in_words(error: ModelError) -> str:
    return text_of(error) or type(error).__name__

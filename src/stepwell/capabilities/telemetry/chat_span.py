"""The span of one turn of a model."""

import asyncio
from time import time_ns
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.content import (
    input_messages,
    output_message,
    system_instructions,
    told_text,
)
from stepwell.capabilities.telemetry.instruments import Attributes, Instruments
from stepwell.capabilities.telemetry.model_names import (
    provider_and_model,
    provider_and_model_of_answer,
)
from stepwell.errors import ModelError, text_of
from stepwell.messages import FinishReason, Message, Usage
from stepwell.models import ModelResponse, ModelSettings
from stepwell.models.turn import ModelTurn
from stepwell.scope import Guard


class ChatSpan:
    """Begins when the model is asked. It ends when it answered, but is let go of later where what
    may be told of the answer is only known at the end of the step."""

    def __init__(
        self,
        instruments: Instruments,
        turn: ModelTurn,
        parent: Context | None,
        shared: Attributes,
        *,
        tells_content: bool,
    ) -> None:
        self._instruments = instruments
        self._turn = turn
        self._tells_content = tells_content
        self.provider, self.model = provider_and_model(turn.model, turn.request.settings)
        self._about: Attributes = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: self.provider,
            names.REQUEST_MODEL: self.model,
        }
        self._started = self._ended = time_ns()
        self._span = instruments.tracer.start_span(
            f"{names.CHAT} {self.model}",
            context=parent,
            kind=SpanKind.CLIENT,
            attributes={**self._about, **shared, **_of_settings(turn.request.settings)},
            start_time=self._started,
        )
        self.context = set_span_in_context(self._span)
        if turn.request.response_format is not None:
            self._span.set_attribute(names.OUTPUT_TYPE, names.JSON)
        if tells_content and self._span.is_recording():
            self._tell_request()

    @property
    def is_of_step(self) -> bool:
        """Whether it is a turn of the agent itself, and no question apart."""
        return self._turn.is_of_step

    @property
    def waits_for_step(self) -> bool:
        """Whether its answer may only be told as the step tells it."""
        return self._tells_content and self.is_of_step and self._turn.response is not None

    def _tell_request(self) -> None:
        request = self._turn.request
        self._span.set_attribute(names.INPUT_MESSAGES, input_messages(request.messages))
        told = system_instructions(request)
        if told is not None:
            self._span.set_attribute(names.SYSTEM_INSTRUCTIONS, told)

    def answered(self, guard: Guard, error: BaseException | None) -> None:
        """The model answered, failed or was interrupted."""
        self._ended = time_ns()
        response = self._turn.response
        kind = error_type_of(guard, error)
        about, usage = self._about, _usage(response, error)
        if response is not None:
            about = {**about, **self._who_answered(response)}
            self._span.set_attributes(about)
            self._tell_response(response)
        if kind is not None:
            about = {**about, names.ERROR_TYPE: kind}
            self._span.set_attribute(names.ERROR_TYPE, kind)
            said = told_text(text_of(error)) if self._tells_content and error is not None else None
            self._span.set_status(StatusCode.ERROR, said)
        if usage:
            self._span.set_attributes(of_usage(usage))
        self._instruments.turned((self._ended - self._started) / 1e9, usage, about)

    def _who_answered(self, response: ModelResponse) -> Attributes:
        """One of several models may have, each with a provider of its own."""
        model = self.model
        if response.model is not None and response.model != self._turn.model:
            self.provider, model = provider_and_model_of_answer(self._turn.model, response.model)
        return {names.PROVIDER: self.provider, names.RESPONSE_MODEL: model}

    def _tell_response(self, response: ModelResponse) -> None:
        span, reason = self._span, response.finish_reason
        if response.request_id is not None:
            span.set_attribute(names.RESPONSE_ID, response.request_id)
        if reason is not None:
            span.set_attribute(names.RESPONSE_FINISH_REASONS, [str(reason)])
        if self._tells_content and not self.is_of_step:
            self.tell_output(Message.assistant(response.text), reason)

    def tell_output(self, message: Message, reason: FinishReason | None) -> None:
        """What the model said, as it may be told."""
        self._span.set_attribute(names.OUTPUT_MESSAGES, output_message(message, reason))

    def end(self) -> None:
        """Let go of it; it ended when the model had answered."""
        self._span.end(self._ended)


def of_usage(usage: Usage) -> Attributes:
    """Tokens; those that are part of others only where there are any."""
    told: Attributes = {
        names.USAGE_INPUT: usage.input_tokens,
        names.USAGE_OUTPUT: usage.output_tokens,
    }
    parts = {
        names.USAGE_CACHE_READ: usage.cached_tokens,
        names.USAGE_CACHE_WRITE: usage.cache_write_tokens,
        names.USAGE_REASONING: usage.reasoning_tokens,
    }
    return {**told, **{name: count for name, count in parts.items() if count}}


def _of_settings(settings: ModelSettings) -> Attributes:
    told = {
        names.REQUEST_MAX_TOKENS: settings.max_tokens,
        names.REQUEST_SEED: settings.seed,
        names.REQUEST_TEMPERATURE: settings.temperature,
        names.REQUEST_TOP_P: settings.top_p,
    }
    return {name: value for name, value in told.items() if value is not None}


def _usage(response: ModelResponse | None, error: BaseException | None) -> Usage | None:
    """Also a turn that failed may have been charged for."""
    if response is not None:
        return response.usage
    spent: Any = error.usage if isinstance(error, ModelError) else None
    return spent if isinstance(spent, Usage) else None


def error_type_of(guard: Guard, error: BaseException | None) -> str | None:
    """A word for what kept a call from its result; None if nothing did."""
    if guard.timed_out:
        return "timeout"
    if guard.signal is not None:
        return str(guard.signal.reason)
    if isinstance(error, ModelError) and error.kind is not None:
        return str(error.kind)
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return None if error is None else type(error).__name__

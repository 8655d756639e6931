"""The span of one turn of a model."""

import asyncio
from time import time_ns
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.content import (
    attribute_text,
    input_messages,
    output_message,
    system_instructions,
)
from stepwell.capabilities.telemetry.instruments import Attributes, Instruments
from stepwell.capabilities.telemetry.model_names import (
    provider_and_model,
    provider_and_model_of_response,
)
from stepwell.errors import ModelError, text_of
from stepwell.messages import FinishReason, Message, Usage
from stepwell.models import ModelResponse, ModelSettings
from stepwell.models.model import ModelTurn
from stepwell.scope import Guard


class ChatSpan:
    """A span from a model's request to its response. If the content is recorded, it is exported
    only at the end of the step, when secrets in the answer are known."""

    def __init__(
        self,
        instruments: Instruments,
        turn: ModelTurn,
        parent: Context | None,
        shared: Attributes,
        *,
        records_content: bool,
    ) -> None:
        self._instruments = instruments
        self._turn = turn
        self._records_content = records_content
        self.provider, self.model = provider_and_model(turn.model, turn.request.settings)
        self._attributes: Attributes = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: self.provider,
            names.REQUEST_MODEL: self.model,
        }
        self._started = self._ended = time_ns()
        self._span = instruments.tracer.start_span(
            f"{names.CHAT} {self.model}",
            context=parent,
            kind=SpanKind.CLIENT,
            attributes={
                **self._attributes,
                **shared,
                **_settings_attributes(turn.request.settings),
            },
            start_time=self._started,
        )
        self.context = set_span_in_context(self._span)
        if turn.request.response_format is not None:
            self._span.set_attribute(names.OUTPUT_TYPE, names.JSON)
        if records_content and self._span.is_recording():
            self._record_request()

    @property
    def is_of_step(self) -> bool:
        """Whether it is a turn of the agent's step, and not one of a hook or tool."""
        return self._turn.is_of_step

    @property
    def waits_for_step(self) -> bool:
        """Whether its answer is recorded only at the end of the step."""
        return self._records_content and self.is_of_step and self._turn.response is not None

    def _record_request(self) -> None:
        request = self._turn.request
        self._span.set_attribute(names.INPUT_MESSAGES, input_messages(request.messages))
        instructions = system_instructions(request)
        if instructions is not None:
            self._span.set_attribute(names.SYSTEM_INSTRUCTIONS, instructions)

    def record_answer(self, guard: Guard, error: BaseException | None) -> None:
        """Record that the model answered, failed or was interrupted."""
        self._ended = time_ns()
        response = self._turn.response
        kind = error_type_of(guard, error)
        metric_attributes, usage = self._attributes, _usage(response, error)
        if response is not None:
            metric_attributes = {**metric_attributes, **self._responder_attributes(response)}
            self._span.set_attributes(metric_attributes)
            self._record_response(response)
        if kind is not None:
            metric_attributes = {**metric_attributes, names.ERROR_TYPE: kind}
            self._span.set_attribute(names.ERROR_TYPE, kind)
            description = (
                attribute_text(text_of(error))
                if self._records_content and error is not None
                else None
            )
            self._span.set_status(StatusCode.ERROR, description)
        if usage:
            self._span.set_attributes(usage_attributes(usage))
        self._instruments.record_turn((self._ended - self._started) / 1e9, usage, metric_attributes)

    def _responder_attributes(self, response: ModelResponse) -> Attributes:
        """Return who answered: one of several models, each with its own provider."""
        model = self.model
        if response.model is not None and response.model != self._turn.model:
            self.provider, model = provider_and_model_of_response(self._turn.model, response.model)
        return {names.PROVIDER: self.provider, names.RESPONSE_MODEL: model}

    def _record_response(self, response: ModelResponse) -> None:
        span, reason = self._span, response.finish_reason
        if response.request_id is not None:
            span.set_attribute(names.RESPONSE_ID, response.request_id)
        if reason is not None:
            span.set_attribute(names.RESPONSE_FINISH_REASONS, [str(reason)])
        if self._records_content and not self.is_of_step:
            self.record_output(Message.assistant(response.text), reason)

    def record_output(self, message: Message, reason: FinishReason | None) -> None:
        """Record the model's answer."""
        self._span.set_attribute(names.OUTPUT_MESSAGES, output_message(message, reason))

    def end(self) -> None:
        """End the span with the time at which the model answered."""
        self._span.end(self._ended)


def usage_attributes(usage: Usage) -> Attributes:
    """Return token counts; those that are part of others only if they are not 0."""
    attributes: Attributes = {
        names.USAGE_INPUT: usage.input_tokens,
        names.USAGE_OUTPUT: usage.output_tokens,
    }
    parts = {
        names.USAGE_CACHE_READ: usage.cached_tokens,
        names.USAGE_CACHE_WRITE: usage.cache_write_tokens,
        names.USAGE_REASONING: usage.reasoning_tokens,
    }
    return {**attributes, **{name: count for name, count in parts.items() if count}}


def _settings_attributes(settings: ModelSettings) -> Attributes:
    attributes = {
        names.REQUEST_MAX_TOKENS: settings.max_tokens,
        names.REQUEST_SEED: settings.seed,
        names.REQUEST_TEMPERATURE: settings.temperature,
        names.REQUEST_TOP_P: settings.top_p,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _usage(response: ModelResponse | None, error: BaseException | None) -> Usage | None:
    """Return the usage; a failed turn may have been charged as well."""
    if response is not None:
        return response.usage
    spent: Any = error.usage if isinstance(error, ModelError) else None
    return spent if isinstance(spent, Usage) else None


def error_type_of(guard: Guard, error: BaseException | None) -> str | None:
    """Return a word for what kept a call from its result, or None."""
    if guard.timed_out:
        return "timeout"
    if guard.signal is not None:
        return str(guard.signal.reason)
    if isinstance(error, ModelError) and error.kind is not None:
        return str(error.kind)
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return None if error is None else type(error).__name__

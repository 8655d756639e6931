"""Adapts a pydantic-ai model to our model protocol."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from stepwell.errors import ConfigurationError, ModelErrorKind
from stepwell.models.request import ModelRequest
from stepwell.models.response import ModelResponse, ResponseEnd, StreamPart, TextDelta
from stepwell.models.settings import NO_SETTINGS, ModelSettings

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ForeignModel

    from stepwell.models.pydantic_ai.requests import Turn


class PydanticAiModel:
    """A pydantic-ai model, given as an object or by a name that pydantic-ai knows.

    ``settings`` apply to every turn unless the request overrides them. Set provider-specific
    settings on the pydantic-ai model itself.

    >>> PydanticAiModel("test").name
    'test:test'
    """

    def __init__(
        self,
        model: "ForeignModel | str",
        *,
        name: str | None = None,
        settings: ModelSettings = NO_SETTINGS,
    ) -> None:
        if settings.model is not None:
            raise ConfigurationError(
                f"settings.model={settings.model!r} has no effect here; name the model in the "
                "first argument of PydanticAiModel"
            )
        self._model = _resolve_model(model)
        self._settings = settings
        self._entered: WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[AsyncGenerator[None, None], asyncio.Event]
        ] = WeakKeyDictionary()
        self.name: str = name or self._model.model_id

    def __repr__(self) -> str:
        return f"PydanticAiModel({self.name})"

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """Return the complete response."""
        return await self._respond(self._turn(request))

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Yield the response in parts.

        A separate task reads the provider's stream: pydantic-ai's context managers must exit in the
        task that entered them, and the consumer of these parts may stop anywhere.
        """
        parts: asyncio.Queue[StreamPart | None] = asyncio.Queue()
        reading = asyncio.create_task(self._produce_parts(self._turn(request), parts))
        try:
            while (part := await parts.get()) is not None:
                yield part
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    def _turn(self, request: ModelRequest) -> "Turn":
        from stepwell.models.pydantic_ai.requests import turn_of

        return turn_of(request, self._model, self._settings)

    async def _respond(self, turn: "Turn") -> ModelResponse:
        from pydantic_ai.direct import model_request

        from stepwell.models.pydantic_ai.faults import as_model_error, faults
        from stepwell.models.pydantic_ai.responses import translate_response

        try:
            await self._enter()
            response = await model_request(
                self._model,
                self._model.prepare_messages(turn.messages, turn.parameters),
                model_settings=turn.settings,
                model_request_parameters=turn.parameters,
            )
        except faults() as error:
            raise as_model_error(self.name, error) from error
        return translate_response(response, self.name)

    async def _produce_parts(self, turn: "Turn", parts: "asyncio.Queue[StreamPart | None]") -> None:
        """Put the parts of a streamed turn into the queue, then None."""
        try:
            if not await self._read_stream(turn, parts):
                response = await self._respond(turn)
                if response.text:
                    parts.put_nowait(TextDelta(response.text))
                parts.put_nowait(ResponseEnd(response))
        finally:
            parts.put_nowait(None)

    async def _read_stream(self, turn: "Turn", parts: "asyncio.Queue[StreamPart | None]") -> bool:
        """Put the parts into the queue. Return False if the model can't stream."""
        from pydantic_ai.direct import model_request_stream

        from stepwell.models.pydantic_ai.faults import as_model_error, faults
        from stepwell.models.pydantic_ai.responses import StreamTranslation

        translation = StreamTranslation(self.name)
        try:
            await self._enter()
            async with model_request_stream(
                self._model,
                self._model.prepare_messages(turn.messages, turn.parameters),
                model_settings=turn.settings,
                model_request_parameters=turn.parameters,
            ) as stream:
                translation.begin(stream)
                async for event in stream:
                    for part in translation.parts(event):
                        parts.put_nowait(part)
        except NotImplementedError as error:
            if translation.has_begun:
                raise as_model_error(self.name, error, translation.spent()) from error
            return False
        except faults() as error:
            failed = as_model_error(self.name, error, translation.spent())
            is_unclear = failed.kind is ModelErrorKind.INVALID_REQUEST and failed.status is None
            if translation.has_begun and is_unclear:  # the provider had accepted the request
                failed.kind, failed.retryable = ModelErrorKind.MALFORMED_RESPONSE, True
            raise failed from error
        for part in translation.end():
            parts.put_nowait(part)
        return True

    async def _enter(self) -> None:
        """Enter the model once per event loop, so that its connections belong to the loop. It exits
        when the loop shuts down its async generators, as ``asyncio.run`` does."""
        loop = asyncio.get_running_loop()
        known = self._entered.get(loop)
        if known is not None:
            await known[1].wait()
            return
        is_in = asyncio.Event()
        stay = self._stay(loop, is_in)
        self._entered[loop] = (stay, is_in)
        await anext(stay)

    async def _stay(
        self, loop: asyncio.AbstractEventLoop, is_in: asyncio.Event
    ) -> AsyncGenerator[None, None]:
        try:
            await self._model.__aenter__()
            is_in.set()
            try:
                yield
            finally:
                await self._model.__aexit__(None, None, None)
        finally:
            self._entered.pop(loop, None)
            is_in.set()


def _resolve_model(model: "ForeignModel | str") -> "ForeignModel":
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import Model, infer_model
    except ImportError as error:
        raise ConfigurationError(
            "PydanticAiModel needs the package pydantic-ai-slim; install stepwell[pydantic-ai], "
            f"and the provider's own extra of pydantic-ai-slim ({error})"
        ) from error
    if isinstance(model, Model):
        return model
    if not isinstance(model, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"PydanticAiModel wraps a pydantic_ai.models.Model or its name, not {model!r:.80}"
        )
    try:
        return infer_model(model)
    except ImportError as error:
        raise ConfigurationError(
            f"the model {model!r} needs a package that is not installed: {error}"
        ) from error
    except (UserError, ValueError) as error:
        raise ConfigurationError(
            f"pydantic-ai can't create the model {model!r}: {error}"
        ) from error

"""The one primitive of a provider: a turn, whole or streamed."""

from collections.abc import AsyncIterator
from typing import Protocol

from stepwell.models.request import ModelRequest
from stepwell.models.response import ModelResponse, StreamPart


class Model(Protocol):
    """Answers one request. Failures are raised as ``ModelError``."""

    @property
    def name(self) -> str:
        """What to call the model in events and explanations."""
        ...

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The whole answer at once."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The same answer in parts; the last one is ``ResponseEnd`` with the whole."""
        ...

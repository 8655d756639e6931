"""The model protocol: one turn, complete or streamed."""

from collections.abc import AsyncIterator
from typing import Protocol

from msgspec import Struct

from stepwell.models.request import ModelRequest
from stepwell.models.response import ModelResponse, StreamPart


class Model(Protocol):
    """Responds to one request. Raises ``ModelError``."""

    @property
    def name(self) -> str:
        """The model's name in events and explanations."""
        ...

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """Return the complete response."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Yield the response in parts. The last one is ``ResponseEnd``, with the response."""
        ...


class ModelTurn(Struct, eq=False):
    """A turn in flight, for the observers of a run: the model, the request, and the response once
    it is there."""

    model: str
    request: ModelRequest
    is_of_step: bool = False
    """Whether this is a step's turn. Its response may hold secret arguments, so observers read the
    step's message instead. Other turns are side questions, such as a critic's."""
    response: ModelResponse | None = None

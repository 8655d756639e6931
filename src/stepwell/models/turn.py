"""One turn of a model while it is awaited, for those who watch a run."""

from msgspec import Struct

from stepwell.models.request import ModelRequest
from stepwell.models.response import ModelResponse


class ModelTurn(Struct, eq=False):
    """Who is asked what, and the answer once it is there."""

    model: str
    request: ModelRequest
    is_of_step: bool = False
    """Whether it is the turn of a step, whose answer may hold secret arguments: what may be told of
    it is in the step's message. Other turns are questions apart, such as a critic's."""
    response: ModelResponse | None = None

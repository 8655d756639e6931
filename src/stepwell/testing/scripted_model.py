"""A model whose words are written by the test. Everything around them is real."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from stepwell.errors import ConfigurationError, StepwellError
from stepwell.messages import FinishReason, ToolCall, Usage
from stepwell.models import ModelRequest, ModelResponse, ResponseEnd, StreamPart, TextDelta

Scripted = str | ToolCall | Sequence[ToolCall] | ModelResponse | Exception
DEFAULT_USAGE = Usage(input_tokens=10, output_tokens=5)


def call(
    name: str,
    arguments: Mapping[str, Any] | None = None,
    /,
    *,
    id: str | None = None,
    **more: Any,
) -> ToolCall:
    """A tool call for a script. ``id`` is the id of the call; an argument of that name stands in
    the mapping.

    >>> call("add", a=1, b=2).arguments
    {'a': 1, 'b': 2}
    >>> call("get_order", {"id": 7}, id="c1").arguments
    {'id': 7}
    """
    if id is not None and not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"id={id!r} is no id of a call; for an argument called id write "
            f"call({name!r}, {{'id': {id!r}}})"
        )
    if arguments is not None and not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(
            f"call({name!r}, {arguments!r:.80}): arguments have names; write "
            f"call({name!r}, argument=value)"
        )
    return ToolCall(id=id or "", name=name, arguments={**(arguments or {}), **more})


class ScriptedModel:
    """Answers with the turns of a script, one after the other, and remembers the requests.

    A turn is text, one tool call, several, a whole ``ModelResponse``, or an exception to raise.
    Instead of a list, a function from request to turn can be given; such a model can be shared
    by runs that overlap.

    >>> model = ScriptedModel([call("add", a=1, b=2), "The sum is 3."])
    >>> model.name
    'scripted'
    """

    def __init__(
        self,
        turns: Iterable[Scripted] | Callable[[ModelRequest], Scripted],
        *,
        name: str = "scripted",
        usage: Usage = DEFAULT_USAGE,
        cost: float = 0.0,
    ) -> None:
        if isinstance(turns, str):
            raise ConfigurationError(
                f"a script is a list of turns; write ScriptedModel([{turns!r}])"
            )
        self.name = name
        self.requests: list[ModelRequest] = []
        self._function = turns if callable(turns) else None
        self._turns = () if callable(turns) else tuple(turns)
        self._usage = usage
        self._cost = cost

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The next turn of the script."""
        self.requests.append(request)
        turn = self._next(request)
        if isinstance(turn, Exception):
            raise turn
        return self._response(turn)

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The next turn, its text word by word."""
        response = await self.respond(request)
        for index, word in enumerate(response.text.split(" ") if response.text else ()):
            yield TextDelta(word if index == 0 else f" {word}")
        yield ResponseEnd(response)

    def _next(self, request: ModelRequest) -> Scripted:
        if self._function is not None:
            return self._function(request)
        turn = len(self.requests)
        if turn > len(self._turns):
            raise StepwellError(
                f"the script of model {self.name!r} has {len(self._turns)} turns, and turn {turn} "
                "was asked for; add turns or stop the run earlier"
            )
        return self._turns[turn - 1]

    def _response(
        self, turn: "str | ToolCall | Sequence[ToolCall] | ModelResponse"
    ) -> ModelResponse:
        if isinstance(turn, ModelResponse):
            return turn
        if isinstance(turn, str):
            text, calls, reason = turn, (), FinishReason.STOP
        else:
            given = (turn,) if isinstance(turn, ToolCall) else tuple(turn)
            text, calls, reason = "", given, FinishReason.TOOL_CALLS
        return ModelResponse(
            text=text,
            tool_calls=calls,
            finish_reason=reason,
            usage=self._usage,
            cost=self._cost,
            model=self.name,
        )

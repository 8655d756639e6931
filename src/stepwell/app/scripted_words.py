"""A model whose words are written in advance, for agents that can be tried without a key. Its name
says so; pages and commands show such an agent as scripted.
"""

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

from msgspec import Struct

from stepwell.clock import Clock, SystemClock
from stepwell.messages import FinishReason, ToolCall, Usage
from stepwell.models import ModelRequest, ModelResponse, ResponseEnd, StreamPart, TextDelta

_WORDS = re.compile(r"\s*\S+\s*$|\s*\S+|\s+")
_CHARACTERS_PER_TOKEN = 4


class Turn(Struct, frozen=True):
    """What is said next: text, tool calls, or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


Script = Callable[[ModelRequest], Turn]
"""From what was said so far to what is said next. It keeps nothing, so that runs may overlap."""


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A tool call of a script; the driver gives it an id."""
    return ToolCall(id="", name=name, arguments=arguments)


class Pace(Struct, frozen=True, kw_only=True):
    """How fast the words come, in seconds."""

    before: float = 0.0
    """Before the first word of each turn."""
    word: float = 0.0


AT_ONCE = Pace()


class ScriptedWords:
    """Stands in for a model: says what its script says, word by word.

    >>> ScriptedWords(lambda request: Turn("Hello!")).name
    'scripted'
    """

    def __init__(
        self,
        script: Script,
        *,
        name: str = "scripted",
        pace: Pace = AT_ONCE,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._script = script
        self._pace = pace
        self._clock = clock or SystemClock()

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The whole turn at once."""
        turn = self._script(request)
        said = sum(len(message.text) for message in request.messages)
        return ModelResponse(
            text=turn.text,
            tool_calls=turn.calls,
            finish_reason=FinishReason.TOOL_CALLS if turn.calls else FinishReason.STOP,
            # Counted roughly, so that limits and pages have something to count.
            usage=Usage(input_tokens=_tokens(said), output_tokens=_tokens(len(turn.text))),
            model=self.name,
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The same, word by word, as fast as its pace says."""
        response = await self.respond(request)
        await self._wait(self._pace.before)
        for word in words_of(response.text):
            yield TextDelta(word)
            await self._wait(self._pace.word)
        yield ResponseEnd(response)

    async def _wait(self, seconds: float) -> None:
        if seconds:
            await self._clock.sleep(seconds)


def words_of(text: str) -> list[str]:
    r"""The text in words, each with the blanks before it, so that together they are the text.

    >>> words_of("One two,\n- three\n")
    ['One', ' two,', '\n-', ' three\n']
    """
    return _WORDS.findall(text)


def _tokens(characters: int) -> int:
    return characters // _CHARACTERS_PER_TOKEN + 1

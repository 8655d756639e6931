"""A model with scripted answers, for agents that work without a key. Its name starts with
"scripted", and pages and commands show it.
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


class ScriptedTurn(Struct, frozen=True):
    """The next turn: text, tool calls, or both."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


Script = Callable[[ModelRequest], ScriptedTurn]
"""From a request to the next turn. Stateless, so that runs may overlap."""


def call(name: str, /, **arguments: Any) -> ToolCall:
    """Make a tool call for a script; the driver assigns its id."""
    return ToolCall(id="", name=name, arguments=arguments)


class Pace(Struct, frozen=True, kw_only=True):
    """Delays of streamed words, in seconds."""

    before: float = 0.0
    """Before the first word of each turn."""
    word: float = 0.0


AT_ONCE = Pace()


class ScriptedWords:
    """A model that streams the turns of its script word by word.

    >>> ScriptedWords(lambda request: ScriptedTurn("Hello!")).name
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
        """Return the whole turn."""
        turn = self._script(request)
        said = sum(len(message.text) for message in request.messages)
        return ModelResponse(
            text=turn.text,
            tool_calls=turn.calls,
            finish_reason=FinishReason.TOOL_CALLS if turn.calls else FinishReason.STOP,
            # A rough estimate, so that limits and pages have numbers.
            usage=Usage(input_tokens=_tokens(said), output_tokens=_tokens(len(turn.text))),
            model=self.name,
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """Stream the turn word by word at the configured pace."""
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
    r"""Split the text into words with their leading blanks; joined, they are the text.

    >>> words_of("One two,\n- three\n")
    ['One', ' two,', '\n-', ' three\n']
    """
    return _WORDS.findall(text)


def _tokens(characters: int) -> int:
    return characters // _CHARACTERS_PER_TOKEN + 1

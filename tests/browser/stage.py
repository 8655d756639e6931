"""A model whose words are a play: what the user said names the scene, and each turn of the model
takes its next line, in pieces and at a pace that a browser can watch.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from stepwell.errors import ModelError
from stepwell.messages import FinishReason, Message, ToolCall, Usage
from stepwell.models import ModelRequest, ModelResponse, ResponseEnd, StreamPart, TextDelta

HELD = "STAGE_HELD"
"""The setting that names a file: behind the words in it no line goes on until they are gone."""
_LOOK_EVERY = 0.02


class Line(NamedTuple):
    """One turn of the model."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    pause: float = 0.0
    """Seconds between two pieces of the text."""
    piece: int = 0
    """Characters of a piece; 0 makes them random and small, the same ones each time."""
    finish: FinishReason | None = None


class Scene(NamedTuple):
    """What has happened since the user spoke."""

    said: str
    turn: int
    """How many turns the model had."""
    last: str
    """What the last tool answered."""


Play = Callable[[Scene], Line | Exception]


class StagedModel:
    """Plays the scene that the first word of the user's message names."""

    def __init__(
        self, scenes: Mapping[str, Play], *, name: str = "scripted-stage", cost: float = 0.0
    ) -> None:
        self.name = name
        self._scenes = scenes
        self._cost = cost

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The whole line at once."""
        return self._response(self._line(request))

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The line in its pieces."""
        line = self._line(request)
        said = ""
        for piece in pieces(line.text, line.piece):
            while _is_held(said):  # noqa: ASYNC110 - another process lets it go on
                await asyncio.sleep(_LOOK_EVERY)
            said += piece
            yield TextDelta(piece)
            if line.pause:
                await asyncio.sleep(line.pause)
        yield ResponseEnd(self._response(line))

    def _line(self, request: ModelRequest) -> Line:
        scene = scene_of(request.messages)
        is_helper = any("You help" in message.text for message in request.context.messages)
        word = "helper" if is_helper else scene.said.split(maxsplit=1)[0].lower()
        play = self._scenes.get(word) or self._scenes["tell"]
        line = play(scene)
        if isinstance(line, Exception):
            raise line
        return line

    def _response(self, line: Line) -> ModelResponse:
        reason = FinishReason.TOOL_CALLS if line.calls else FinishReason.STOP
        return ModelResponse(
            text=line.text,
            tool_calls=line.calls,
            finish_reason=line.finish or reason,
            usage=Usage(input_tokens=100, output_tokens=20),
            cost=self._cost,
            model=self.name,
        )


def scene_of(messages: Iterable[Message]) -> Scene:
    """What the model is asked to go on from."""
    said, turns, last = "tell", 0, ""
    for message in messages:
        if message.is_user():
            said, turns, last = message.text or said, 0, ""
        elif message.is_assistant():
            turns += 1
        elif message.is_tool():
            last = message.text
    return Scene(said, turns, last)


def pieces(text: str, size: int) -> list[str]:
    """The text in pieces of that size, or of 1 to 7 characters by chance that never changes."""
    if size:
        return [text[start : start + size] for start in range(0, len(text), size)]
    chance = random.Random(len(text))
    cut: list[str] = []
    while text:
        length = chance.randint(1, 7)
        cut.append(text[:length])
        text = text[length:]
    return cut


def _is_held(said: str) -> bool:
    path = os.environ.get(HELD)  # noqa: TID251 - set by the test that started this process
    try:
        words = Path(path).read_text() if path else ""
    except FileNotFoundError:
        words = ""
    return bool(words) and words in said


def down(_: Scene) -> Exception:
    """The provider fails."""
    return ModelError("the provider is down")

"""A model that records the turns of another one to a file, and replays them without network."""

from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from enum import StrEnum
from os import PathLike
from pathlib import Path
from typing import Any

from stepwell.errors import ConfigurationError, ModelError, StepwellError
from stepwell.models import Model, ModelRequest, ModelResponse, ResponseEnd, StreamPart
from stepwell.models.attempts import (
    check_model,
    close,
    incomplete_stream,
    name_of,
    parts_of,
)
from stepwell.testing.cassette_file import append_turn, recorded_turns
from stepwell.testing.cassette_turn import (
    Data,
    RecordedTurn,
    differences,
    matching_key,
    request_data,
    turn_data,
    without_secrets,
)
from stepwell.testing.redaction import Redaction
from stepwell.tools.secret_arguments import Scrubber, declared_fields, secret_arguments


class CassetteMode(StrEnum):
    """What a cassette does with a request."""

    AUTO = "auto"
    RECORD = "record"
    REPLAY = "replay"


class CassetteModel:
    """Records turns to a JSON file and replays them, whole or streamed.

    ``auto`` replays what is recorded and records what is not; ``replay`` never calls a model;
    ``record`` always does, and overwrites the file. A request is known by its content, whatever
    ids, headers and time left it comes with; a request that was recorded several times gives its
    answers in that order. Errors of the model are turns as well. A stream that its caller gives up
    is not recorded.

    Headers are never written. Each text in ``secrets``, and all that looks like a key, is written
    as ``[removed]``, in requests and in answers. Give each model a cassette of its own.

    >>> import asyncio, tempfile
    >>> from stepwell import Message
    >>> from stepwell.testing import ScriptedModel
    >>> path = Path(tempfile.mkdtemp()) / "hello.json"
    >>> hello = ModelRequest(messages=(Message.user("Hello"),))
    >>> asyncio.run(CassetteModel(path, ScriptedModel(["Hi."])).respond(hello)).text
    'Hi.'
    >>> asyncio.run(CassetteModel(path, mode="replay").respond(hello)).text
    'Hi.'
    """

    def __init__(
        self,
        path: str | PathLike[str],
        model: Model | None = None,
        *,
        mode: CassetteMode | str = CassetteMode.AUTO,
        secrets: Iterable[str | None] = (),
    ) -> None:
        if mode not in list(CassetteMode):
            raise ConfigurationError(
                f"unknown mode {mode!r} of a cassette; known: {', '.join(CassetteMode)}"
            )
        if model is not None:
            check_model(model, "CassetteModel")
        self._path = Path(path)
        self._model = model
        self._mode = CassetteMode(mode)
        self._redaction = Redaction(secrets)
        self._overwrites = self._mode is CassetteMode.RECORD
        self._refuse_what_cannot_work()
        self._turns = () if self._overwrites else recorded_turns(self._path)
        self._waiting: dict[str, deque[RecordedTurn]] = {}
        for turn in self._turns:
            self._waiting.setdefault(self._key(turn), deque()).append(turn)

    @property
    def name(self) -> str:
        """The name of the model that is, or was, recorded."""
        if self._model is not None:
            return name_of(self._model)
        return next((turn.model for turn in self._turns if turn.model), "cassette")

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The answer, from the file or from the model."""
        asked = request_data(request, self._redaction)
        turn = self._next(asked)
        if turn is not None:
            return turn.whole()
        try:
            response = await self._recorded_model(asked).respond(request)
        except ModelError as error:
            self._record(request, asked, error)
            raise
        self._record(request, asked, response)
        return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The answer in parts, from the file or from the model."""
        asked = request_data(request, self._redaction)
        turn = self._next(asked)
        if turn is not None:
            for part in turn.stream_parts():
                yield part
            return
        said: list[StreamPart] = []
        end: ResponseEnd | None = None
        parts = parts_of(self._recorded_model(asked), request)
        try:
            async for part in parts:
                if isinstance(part, ResponseEnd):
                    end = part
                    break
                said.append(part)
                yield part
            if end is None:
                raise incomplete_stream(self.name)
        except ModelError as error:
            self._record(request, asked, error, said)
            raise
        finally:
            await close(parts)
        # Before the last part goes out, since the caller has no reason to come back after it.
        self._record(request, asked, end.response, said)
        yield end

    def _refuse_what_cannot_work(self) -> None:
        if self._mode is CassetteMode.RECORD and self._model is None:
            raise ConfigurationError(f"recording {self._path} needs a model: {_HOW_TO_RECORD}")
        replays = self._mode is CassetteMode.REPLAY or self._model is None
        if replays and not self._path.exists():
            raise ConfigurationError(
                f"there is no cassette {self._path}; record it first: {_HOW_TO_RECORD}"
            )

    def _next(self, asked: Data) -> RecordedTurn | None:
        waiting = self._waiting.get(matching_key(asked))
        return waiting.popleft() if waiting else None

    def _recorded_model(self, asked: Data) -> Model:
        if self._model is None or self._mode is CassetteMode.REPLAY:
            raise StepwellError(
                f"cassette {self._path} has no turn for this request: {self._why_not(asked)}. "
                f"To record it: {_HOW_TO_RECORD}; to record everything again, delete the file."
            )
        return self._model

    def _why_not(self, asked: Data) -> str:
        if not self._turns:
            return "it has no turns at all"
        if matching_key(asked) in self._waiting:
            count = len([t for t in self._turns if self._key(t) == matching_key(asked)])
            return f"it was recorded {count} times and is asked once more"
        found = [list(differences(turn.request, asked)) for turn in self._turns]
        nearest = min(range(len(found)), key=lambda index: len(found[index]))
        (place, recorded, now), *others = found[nearest]
        more = f", and in {len(others)} more places" if others else ""
        return (
            f"the nearest, turns[{nearest}], differs at {place}: recorded "
            f"{_excerpt(recorded, now)}, asked {_excerpt(now, recorded)}{more}"
        )

    def _key(self, turn: RecordedTurn) -> str:
        """Also for a turn that was recorded when fewer texts were secret."""
        return matching_key(without_secrets(turn.request, self._redaction))

    def _record(
        self,
        request: ModelRequest,
        asked: Data,
        outcome: ModelResponse | ModelError,
        parts: Sequence[StreamPart] | None = None,
    ) -> None:
        redaction = self._redaction
        if isinstance(outcome, ModelResponse):
            redaction = redaction.also(_secret_arguments(request, outcome))
        turn = turn_data(asked, outcome, redaction, model=self.name, parts=parts)
        append_turn(self._path, turn, overwrite=self._overwrites)
        self._overwrites = False


def _secret_arguments(request: ModelRequest, response: ModelResponse) -> list[str]:
    """What the model gave for arguments that the tools mark secret."""
    schemas = {schema.name: schema.parameters for schema in request.tools}
    marked = {name: (secret_arguments(it), declared_fields(it)) for name, it in schemas.items()}
    return [
        value
        for call in response.tool_calls
        if call.name in marked
        for value in Scrubber.for_call(call, *marked[call.name]).forms
    ]


_HOW_TO_RECORD = 'CassetteModel(path, model, mode="auto")'


def _excerpt(value: Any, other: Any) -> str:
    """A value in short; of a long text the part where it begins to differ."""
    if not isinstance(value, str) or not isinstance(other, str):
        return f"{value!r:.100}"
    pairs = enumerate(zip(value, other, strict=False))
    begins = next((at for at, (ours, theirs) in pairs if ours != theirs), len(other))
    start = max(begins - 30, 0) if len(value) > 100 else 0
    return f"{'...' if start else ''}{value[start : start + 100]!r}"

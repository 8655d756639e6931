"""A turn as the data that a cassette holds: without secrets, without random ids, as plain JSON."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields, replace

from stepwell.errors import ErrorType, ModelError, ModelErrorKind, StepwellError, text_of
from stepwell.messages import FilePart, ImagePart, Message, Part, ToolCall, ToolResult, Usage
from stepwell.models import (
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    ResponseFormat,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from stepwell.secrets import is_secret_field
from stepwell.testing.redaction import REMOVED, Redaction

Data = dict[str, Any]


class Nothing:
    """Stands where one of two values has something and the other has not."""

    def __repr__(self) -> str:
        return "nothing"


NOTHING = Nothing()


class RecordedError(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model error with all its facts."""

    message: str
    kind: ModelErrorKind | None = None
    error_type: ErrorType | None = None
    retryable: bool | None = None
    retry_after: float | None = None
    status: int | None = None
    request_id: str | None = None
    provider_text: str | None = None
    usage: Usage | None = None
    cost: float = 0.0

    @classmethod
    def of(cls, error: ModelError) -> "RecordedError":
        """The facts of an error."""
        return cls(
            message=text_of(error),
            kind=error.kind,
            error_type=error.error_type,
            retryable=error.retryable,
            retry_after=error.retry_after,
            status=error.status,
            request_id=error.request_id,
            provider_text=error.provider_text,
            usage=error.usage if isinstance(error.usage, Usage) else None,
            cost=error.cost,
        )

    def again(self) -> ModelError:
        """The error, to be raised."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        error = ModelError(facts.pop("message"), **facts)
        error.retryable = self.retryable  # None is a fact as well
        return error


class RecordedTurn(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked, and what came of it: a response or an error.

    ``parts`` are those before the end of a stream; None if the turn was not streamed.
    """

    request: Data
    model: str | None = None
    parts: tuple[StreamPart, ...] | None = None
    response: ModelResponse | None = None
    error: RecordedError | None = None

    def whole(self) -> ModelResponse:
        """The response, or the error raised."""
        if self.error is not None:
            raise self.error.again()
        return self.response or ModelResponse()

    def stream_parts(self) -> Iterator[StreamPart]:
        """The turn as parts, also if it was recorded whole."""
        if self.parts is not None:
            yield from self.parts
        elif self.response is not None and self.response.text:
            yield TextDelta(self.response.text)
        yield ResponseEnd(self.whole())


def turn_data(
    asked: Data,
    outcome: ModelResponse | ModelError,
    redaction: Redaction,
    *,
    model: str | None,
    parts: Sequence[StreamPart] | None,
) -> Data:
    """A turn as it is written."""
    data: Data = {"model": model, "request": asked}
    if parts is not None:
        data["parts"] = _parts_data(parts, redaction)
    if isinstance(outcome, ModelError):
        data["error"] = _plain(RecordedError.of(outcome), redaction)
    else:
        data["response"] = _plain(outcome, redaction)
    return data


def request_data(request: ModelRequest, redaction: Redaction) -> Data:
    """What of a request decides which turn it is. Ids of tool calls, which some runs make
    themselves, are counted; headers, metadata and the time left are left out."""
    names: dict[str, str] = {}

    def all_data(messages: Sequence[Message]) -> list[Data]:
        return [_message_data(message, names, redaction) for message in messages]

    context, instruction = request.context, request.instruction
    data = {
        "context": all_data(context.messages) or None,
        "messages": all_data(request.messages),
        "instruction": None if instruction is None else all_data((instruction,))[0],
        "tools": _plain(request.tools, redaction) or None,
        "response_format": _format_data(request.response_format, redaction),
        "settings": _plain(replace(request.settings, extra_headers={}), redaction) or None,
    }
    return {name: value for name, value in data.items() if value is not None}


def without_secrets(data: Data, redaction: Redaction) -> Data:
    """Data that was written, without what is a secret by now."""
    return _mapping_data(data, redaction)


def matching_key(asked: Data) -> str:
    """The same for two requests that are the same turn."""
    return json.dumps(asked, sort_keys=True)


def differences(recorded: Any, asked: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each place in which two values differ, with what is there."""
    if isinstance(recorded, dict) and isinstance(asked, dict):
        left, right = cast("Data", recorded), cast("Data", asked)
        for name in dict.fromkeys((*left, *right)):
            inner = f"{place}.{name}" if place else name
            yield from differences(left.get(name, NOTHING), right.get(name, NOTHING), inner)
    elif isinstance(recorded, list) and isinstance(asked, list):
        ours, theirs = cast("list[Any]", recorded), cast("list[Any]", asked)
        for index in range(max(len(ours), len(theirs))):
            one = ours[index] if index < len(ours) else NOTHING
            other = theirs[index] if index < len(theirs) else NOTHING
            yield from differences(one, other, f"{place}[{index}]")
    elif repr(cast("Any", recorded)) != repr(asked):  # in JSON 1, 1.0 and true are not the same
        yield place, recorded, asked


def _message_data(message: Message, names: dict[str, str], redaction: Redaction) -> Data:
    parts = [_plain(_comparable(part, names), redaction) for part in message.parts]
    return {"role": message.role.value, "parts": parts}


def _comparable(part: Part, names: dict[str, str]) -> Part:
    match part:
        case ToolCall():
            return replace(part, id=names.setdefault(part.id, f"call_{len(names) + 1}"))
        case ToolResult():
            counted = names.setdefault(part.call_id, f"call_{len(names) + 1}")
            return replace(part, call_id=counted)
        case ImagePart() | FilePart() if part.data:
            digest = sha256(part.data.encode("utf-8", "surrogatepass")).hexdigest()
            return replace(part, data=f"{len(part.data)} characters, sha256 {digest}")
        case _:
            return part


def _format_data(given: ResponseFormat | Mapping[str, Any] | None, redaction: Redaction) -> Any:
    return None if given is None else _plain(ResponseFormat.of(given), redaction)


def _parts_data(parts: Sequence[StreamPart], redaction: Redaction) -> list[Data]:
    """A secret may arrive in pieces, so the pieces of one text are looked at together."""
    places: dict[object, list[int]] = {}
    for place, part in enumerate(parts):
        if isinstance(part, TextDelta | ThinkingDelta):
            places.setdefault(type(part), []).append(place)
        elif isinstance(part, ToolCallDelta):
            places.setdefault(part.index, []).append(place)
    data: dict[int, Data] = {}
    for of_one_text in places.values():
        pieces = [_piece(parts[place]) for place in of_one_text]
        for place, text in zip(of_one_text, redaction.pieces(pieces), strict=True):
            data[place] = _plain(_with_piece(parts[place], text), None)
    return [
        data[place] if place in data else _plain(part, redaction)
        for place, part in enumerate(parts)
    ]


def _piece(part: StreamPart) -> str:
    match part:
        case TextDelta() | ThinkingDelta():
            return part.text
        case ToolCallDelta():
            return part.arguments
        case _:
            return ""


def _with_piece(part: StreamPart, text: str) -> StreamPart:
    return replace(part, **{"arguments" if isinstance(part, ToolCallDelta) else "text": text})


def _plain(value: Any, redaction: Redaction | None) -> Any:
    """Values as JSON has them; what a struct leaves at its default is left out."""
    match value:
        case None | bool() | int():
            return value
        case str():
            text = str.__str__(value)  # also of an enum's member
            return text if redaction is None else redaction.text(text)
        case float() if math.isfinite(value):
            return value
        case Struct():
            return _struct_data(value, redaction)
        case Mapping():
            return _mapping_data(cast("Mapping[Any, Any]", value), redaction)
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return [_plain(item, redaction) for item in cast("Sequence[Any]", value)]
        case _:
            raise StepwellError(f"a cassette holds JSON only, and {value!r:.80} has no form in it")


def _struct_data(value: Struct, redaction: Redaction | None) -> Data:
    config = value.__struct_config__
    values = {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if not _is_default(getattr(value, field.name), field)
    }
    tag = {} if config.tag is None else {str(config.tag_field): config.tag}
    return {**tag, **_mapping_data(values, redaction)}


def _is_default(value: Any, field: FieldInfo) -> bool:
    if field.default_factory is not NODEFAULT:
        return value == field.default_factory()
    return field.default is not NODEFAULT and value == field.default


def _mapping_data(value: Mapping[Any, Any], redaction: Redaction | None) -> Data:
    data: Data = {}
    for key, item in value.items():
        plain = _plain(item, redaction)
        if redaction is not None and plain and isinstance(plain, str):
            plain = REMOVED if is_secret_field(str(key)) else plain
        data[_plain(str(key), redaction)] = plain
    return data

"""What a wire format does, and the pieces that all of them are made of. Nothing here does I/O."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, cast

from msgspec import DecodeError, Struct, json

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import (
    FilePart,
    FinishReason,
    ImagePart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCall,
    Usage,
)
from stepwell.models.request import ModelRequest
from stepwell.models.response import (
    ModelResponse,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallStart,
)

Json = dict[str, Any]
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_TEXTS: dict[type[StreamPart], tuple[str, ...]] = {
    TextDelta: ("text",),
    ThinkingDelta: ("text",),
    ToolCallStart: ("id", "name"),
    ToolCallDelta: ("arguments",),
}


class StreamReader(Protocol):
    """Reads the messages of one streamed response."""

    def read(self, event: Any) -> Iterable[StreamPart]:
        """The parts that a message of the stream stands for; raises ``ModelError``."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the message that ends every whole response has come."""
        ...

    @property
    def may_be_over(self) -> bool:
        """Whether nothing needs to follow, although more may; a long silence is then the end."""
        ...

    @property
    def usage(self) -> Usage:
        """What the turn has used as far as it was told; also of a stream that broke off."""
        ...

    def response(self) -> ModelResponse:
        """The whole response; raises ``ModelError`` if it is not whole, or is a refusal."""
        ...


class WireFormat(Protocol):
    """A provider's protocol: how to ask, and how to read the answer."""

    @property
    def name(self) -> str:
        """The word for this format in presets and as the origin of signatures."""
        ...

    def path(self, model: str, *, streaming: bool) -> str:
        """Where to post, behind the base address."""
        ...

    def body(self, request: ModelRequest, model: str, *, streaming: bool) -> Json:
        """The JSON to post."""
        ...

    def response(self, data: Any) -> ModelResponse:
        """The response in the JSON that came back whole; raises ``ModelError``."""
        ...

    def reader(self) -> StreamReader:
        """A reader for one streamed response."""
        ...


class Prompt(Struct, frozen=True, kw_only=True):
    """A request's messages as most formats want them: instructions first, then the talk."""

    instructions: tuple[Message, ...]
    talk: tuple[Message, ...]
    stable: int
    """How many messages of the talk belong to the stable context."""

    @classmethod
    def of(cls, request: ModelRequest) -> "Prompt":
        """The stable context and the conversation; leading instructions apart from the rest."""
        context = request.context.messages
        instructions = tuple(m for m in context if m.is_system())
        stable = tuple(m for m in context if not m.is_system())
        talk = tuple(request.messages)
        if not stable:
            leading = 0
            while leading < len(talk) and talk[leading].is_system():
                leading += 1
            instructions, talk = (*instructions, *talk[:leading]), talk[leading:]
        return cls(instructions=instructions, talk=(*stable, *talk), stable=len(stable))


def sequence_of(request: ModelRequest) -> Iterator[Message]:
    """All messages in the order in which they are sent, for formats that take instructions
    anywhere."""
    yield from request.context.messages
    yield from request.messages
    if request.instruction is not None:
        yield request.instruction


class CallDraft:
    """A tool call of a streamed response, while its arguments arrive."""

    __slots__ = ("id", "index", "name", "pieces", "signature")

    def __init__(self, index: int, id: str, name: str, signature: str | None = None) -> None:
        self.index = index
        self.id = id
        self.name = name
        self.pieces: list[str] = []
        self.signature = signature

    def start(self) -> ToolCallStart:
        """The part that tells of it."""
        return ToolCallStart(index=self.index, id=self.id, name=self.name)

    def add(self, arguments: str) -> ToolCallDelta:
        """More of its arguments."""
        self.pieces.append(arguments)
        return ToolCallDelta(index=self.index, arguments=arguments)

    def call(self) -> ToolCall:
        """The call as far as it is known."""
        return parsed_call(self.id, self.name, "".join(self.pieces), self.signature)


def parsed_call(id: str, name: str, arguments: Any, signature: str | None = None) -> ToolCall:
    """A call with its arguments parsed; text that is no JSON object is kept as malformed."""
    if isinstance(arguments, Mapping):
        given = cast("Mapping[str, Any]", arguments)
        return ToolCall(id=id, name=name, arguments=given, signature=signature)
    text = arguments if isinstance(arguments, str) else json_text(arguments) if arguments else ""
    try:
        parsed: Any = json.decode(text) if text.strip() else {}
    except (DecodeError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        found = cast("dict[str, Any]", parsed)
        return ToolCall(id=id, name=name, arguments=found, signature=signature)
    return ToolCall(id=id, name=name, malformed=text, signature=signature)


def compact(body: Mapping[str, Any]) -> Json:
    """Without what is None."""
    return {key: value for key, value in body.items() if value is not None}


def json_text(value: Any) -> str:
    """JSON as text."""
    return json.encode(value).decode()


def data_url(part: ImagePart | FilePart, default: str) -> str:
    """The part's address, or its data as an address."""
    if part.url is not None:
        return part.url
    return f"data:{part.media_type or default};base64,{required_data(part)}"


def required_data(part: ImagePart | FilePart) -> str:
    """The part's base64 data; one without data and address is a mistake that is named."""
    if part.data is None:
        raise refused(f"{type(part).__name__} has neither url nor data")
    return part.data


def plain_id(id: str) -> str:
    """A call's id in letters that every provider takes; another one may have made it."""
    return _ODD.sub("_", id)


def plain_name(name: str) -> str:
    """The name in a call, made acceptable: models call tools that don't exist and can't.

    >>> plain_name("files.read"), plain_name("")
    ('files_read', 'unnamed')
    """
    return _ODD.sub("_", name)[:64] or "unnamed"


def instruction_text(message: Message) -> str:
    """The text of an instruction; what else is in it can't be sent, and is not left out quietly."""
    for part in message.parts:
        if not isinstance(part, TextPart):
            raise refused(
                f"a {message.role} message can't carry a {type(part).__name__}; put it into a "
                "user's message"
            )
    return message.text


def refused(what: str) -> ModelError:
    """A request that can't be sent as it is."""
    return ModelError(f"the request can't be sent: {what}", kind=ModelErrorKind.INVALID_REQUEST)


def unsupported(format_name: str, setting: str, instead: str = "leave it out") -> ModelError:
    """A setting that this format has no word for."""
    return refused(f"{format_name} has no setting for {setting}; {instead}")


def whole_or_raise(response: ModelResponse, *, refusal: str = "") -> ModelResponse:
    """The response, unless the model refused or a filter cut it; what was paid is kept."""
    _expect_text(refusal)
    if refusal:
        kind, text = ModelErrorKind.REFUSAL, f"the model refused: {refusal[:500]}"
    elif response.finish_reason is FinishReason.CONTENT_FILTER:
        kind, text = ModelErrorKind.CONTENT_FILTER, "the provider's filter cut the answer off"
    elif response.finish_reason is FinishReason.ERROR:
        kind, text = ModelErrorKind.SERVER, "the provider says that it failed while it answered"
    else:
        return response
    raise ModelError(text, kind=kind, provider_text=refusal or None, usage=response.usage)


def incomplete(what: str, usage: Usage) -> ModelError:
    """A stream that ended before its response was whole."""
    return ModelError(
        f"the stream ended without {what}, so the answer may be cut off",
        kind=ModelErrorKind.INCOMPLETE_STREAM,
        usage=usage,
    )


def empty(what: str, usage: Usage) -> ModelError:
    """An answer in which there is nothing."""
    return ModelError(f"the answer has {what}", kind=ModelErrorKind.EMPTY_RESPONSE, usage=usage)


def assembled(
    parts: Iterable[Part],
    *,
    finish_reason: FinishReason,
    usage: Usage,
    model: str | None,
    cost: float = 0.0,
) -> ModelResponse:
    """A response; one with calls ended because of them, whatever some servers say."""
    given = tuple(part for part in parts if _says_something(part))
    texts = tuple(part for part in given if isinstance(part, TextPart))
    tool_calls = tuple(part for part in given if isinstance(part, ToolCall))
    thoughts = tuple(part for part in given if isinstance(part, ThinkingPart))
    for call in tool_calls:
        _expect_text(call.id, call.name, "" if call.signature is None else call.signature)
    for thought in thoughts:
        known_as = (thought.signature, thought.id)
        _expect_text(thought.text, *("" if given is None else given for given in known_as))
    if tool_calls and finish_reason in (FinishReason.STOP, FinishReason.OTHER):
        finish_reason = FinishReason.TOOL_CALLS
    return ModelResponse(
        text="".join(part.text for part in texts),
        tool_calls=tool_calls,
        thinking=thoughts,
        finish_reason=finish_reason,
        usage=usage,
        model=model if isinstance(model, str) else None,
        cost=cost,
        parts=given if _is_thought_between(given) else (),
    )


def _says_something(part: Part) -> bool:
    match part:
        case TextPart():
            return bool(part.text)
        case ThinkingPart():
            return bool(part.text or part.signature)
        case _:
            return True


def _is_thought_between(parts: tuple[Part, ...]) -> bool:
    """Whether the model thought after it had begun to speak, and spoke before it called."""
    order = [(ThinkingPart, TextPart, ToolCall).index(type(part)) for part in parts]
    spoken = [rank for rank in order if rank]
    return order != sorted(order) and spoken == sorted(spoken)


def checked(parts: Iterable[StreamPart]) -> list[StreamPart]:
    """The parts, if what should be text in them is text; a server may send anything instead."""
    given = list(parts)
    for part in given:
        _expect_text(*[getattr(part, field) for field in _TEXTS.get(type(part), ())])
    return given


def _expect_text(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{value!r:.80} is not a text")


def with_extra(body: Json, request: ModelRequest) -> Json:
    """The body with what only this provider knows merged into it, one level deep."""
    for key, value in request.settings.extra_body.items():
        known = body.get(key)
        both = isinstance(known, dict) and isinstance(value, Mapping)
        body[key] = {**cast("Json", known), **value} if both else value
    return body


def format_in_words(schema: Mapping[str, Any] | None) -> str:
    """A response format as an instruction, where the provider can't be told otherwise."""
    asked = "Answer with one JSON object and nothing else, unless you call a tool."
    return asked if schema is None else f"{asked} It must fit this schema: {json_text(schema)}"


def section(data: Any, key: str) -> Json:
    """The object under a key; empty if it is left out or null."""
    return data.get(key) or {}


def listed(data: Any, key: str) -> list[Any]:
    """The list under a key; empty if it is left out or null."""
    return data.get(key) or []


def count(value: Any) -> int:
    """A token count; providers leave them out, or send null."""
    return max(int(value), 0) if isinstance(value, int | float) else 0

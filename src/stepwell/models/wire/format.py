"""The wire format protocol, and what all formats share. No I/O."""

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
        """Return the parts in one message of the stream. Raises ``ModelError``."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether the final message of the stream has arrived."""
        ...

    @property
    def may_be_over(self) -> bool:
        """Whether the response is complete but more may follow. A long silence then ends it."""
        ...

    @property
    def usage(self) -> Usage:
        """The usage reported so far, also for a stream that broke off."""
        ...

    def response(self) -> ModelResponse:
        """Return the response. Raises ``ModelError`` if it is incomplete or a refusal."""
        ...


class WireFormat(Protocol):
    """A provider's protocol: how to write a request and read the response."""

    @property
    def name(self) -> str:
        """The name of the format in presets and as the origin of signatures."""
        ...

    def path(self, model: str, *, streaming: bool) -> str:
        """The path to post to, after the base address."""
        ...

    def body(self, request: ModelRequest, model: str, *, streaming: bool) -> Json:
        """Return the JSON to post."""
        ...

    def response(self, data: Any) -> ModelResponse:
        """Parse a complete response. Raises ``ModelError``."""
        ...

    def reader(self) -> StreamReader:
        """Create a reader for one streamed response."""
        ...


class Prompt(Struct, frozen=True, kw_only=True):
    """A request's messages as most formats want them: instructions, then the conversation."""

    instructions: tuple[Message, ...]
    talk: tuple[Message, ...]
    stable: int
    """How many messages of ``talk`` belong to the stable context."""

    @classmethod
    def of(cls, request: ModelRequest) -> "Prompt":
        """Split a request into its leading instructions and the rest."""
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


def all_messages(request: ModelRequest) -> Iterator[Message]:
    """Yield all messages in order, for formats that take instructions anywhere."""
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
        """Return the part that announces the call."""
        return ToolCallStart(index=self.index, id=self.id, name=self.name)

    def add(self, arguments: str) -> ToolCallDelta:
        """Append a piece of the arguments."""
        self.pieces.append(arguments)
        return ToolCallDelta(index=self.index, arguments=arguments)

    def call(self) -> ToolCall:
        """Return the call with the arguments so far."""
        return parse_call(self.id, self.name, "".join(self.pieces), self.signature)


def parse_call(id: str, name: str, arguments: Any, signature: str | None = None) -> ToolCall:
    """Parse a call's arguments. Text that is not a JSON object is kept as ``malformed``."""
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


def without_nulls(body: Mapping[str, Any]) -> Json:
    """Return a copy without None values."""
    return {key: value for key, value in body.items() if value is not None}


def json_text(value: Any) -> str:
    """Encode a value as JSON text."""
    return json.encode(value).decode()


def data_url(part: ImagePart | FilePart, default: str) -> str:
    """Return the part's URL, or its data as a data URL."""
    if part.url is not None:
        return part.url
    return f"data:{part.media_type or default};base64,{data_of(part)}"


def data_of(part: ImagePart | FilePart) -> str:
    """Return the part's base64 data. Raises ``ModelError`` if it has none."""
    if part.data is None:
        raise request_error(f"{type(part).__name__} has neither url nor data")
    return part.data


def plain_id(id: str) -> str:
    """Replace characters in a call id that other providers may use but this one refuses."""
    return _ODD.sub("_", id)


def plain_name(name: str) -> str:
    """Make a name acceptable to providers: models also call tools with impossible names.

    >>> plain_name("files.read"), plain_name("")
    ('files_read', 'unnamed')
    """
    return _ODD.sub("_", name)[:64] or "unnamed"


def instruction_text(message: Message) -> str:
    """Return the text of an instruction. Raises ``ModelError`` if it has other parts."""
    for part in message.parts:
        if not isinstance(part, TextPart):
            raise request_error(
                f"a {message.role} message can't contain a {type(part).__name__}; put it into a "
                "user message"
            )
    return message.text


def request_error(what: str) -> ModelError:
    """Return the error for a request that can't be sent."""
    return ModelError(f"the request can't be sent: {what}", kind=ModelErrorKind.INVALID_REQUEST)


def unsupported_setting(
    format_name: str, setting: str, instead: str = "leave it out"
) -> ModelError:
    """Return the error for a setting that the format does not support."""
    return request_error(f"{format_name} does not support {setting}; {instead}")


def whole_or_raise(response: ModelResponse, *, refusal: str = "") -> ModelResponse:
    """Return the response. Raises ``ModelError``, with the usage, if it is a refusal or cut by a
    filter."""
    _expect_text(refusal)
    if refusal:
        kind, text = ModelErrorKind.REFUSAL, f"the model refused: {refusal[:500]}"
    elif response.finish_reason is FinishReason.CONTENT_FILTER:
        kind, text = (
            ModelErrorKind.CONTENT_FILTER,
            "the provider's content filter cut off the response",
        )
    elif response.finish_reason is FinishReason.ERROR:
        kind, text = ModelErrorKind.SERVER, "the provider reported a failure during the response"
    else:
        return response
    raise ModelError(text, kind=kind, provider_text=refusal or None, usage=response.usage)


def incomplete_stream(what: str, usage: Usage) -> ModelError:
    """Return the error for a stream that ended early."""
    return ModelError(
        f"the stream ended without {what}, so the response may be incomplete",
        kind=ModelErrorKind.INCOMPLETE_STREAM,
        usage=usage,
    )


def empty_response(what: str, usage: Usage) -> ModelError:
    """Return the error for an empty response."""
    return ModelError(f"the response has {what}", kind=ModelErrorKind.EMPTY_RESPONSE, usage=usage)


def assemble_response(
    parts: Iterable[Part],
    *,
    finish_reason: FinishReason,
    usage: Usage,
    model: str | None,
    cost: float = 0.0,
) -> ModelResponse:
    """Build a response. With tool calls its finish reason is ``tool_calls``, whatever the server
    says."""
    given = tuple(part for part in parts if _has_content(part))
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
        parts=given if _has_interleaved_thinking(given) else (),
    )


def _has_content(part: Part) -> bool:
    match part:
        case TextPart():
            return bool(part.text)
        case ThinkingPart():
            return bool(part.text or part.signature)
        case _:
            return True


def _has_interleaved_thinking(parts: tuple[Part, ...]) -> bool:
    """Return whether thinking comes after text or calls, with all text before the calls."""
    order = [(ThinkingPart, TextPart, ToolCall).index(type(part)) for part in parts]
    spoken = [rank for rank in order if rank]
    return order != sorted(order) and spoken == sorted(spoken)


def check_parts(parts: Iterable[StreamPart]) -> list[StreamPart]:
    """Return the parts as a list. Raises ``TypeError`` if a text field is not a str."""
    given = list(parts)
    for part in given:
        _expect_text(*[getattr(part, field) for field in _TEXTS.get(type(part), ())])
    return given


def _expect_text(*values: Any) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{value!r:.80} is not a str")


def merge_extra_body(body: Json, request: ModelRequest) -> Json:
    """Merge the settings' ``extra_body`` into the body, one level deep."""
    for key, value in request.settings.extra_body.items():
        known = body.get(key)
        both = isinstance(known, dict) and isinstance(value, Mapping)
        body[key] = {**cast("Json", known), **value} if both else value
    return body


def format_instruction(schema: Mapping[str, Any] | None) -> str:
    """Return a response format as an instruction, for providers that can't enforce it."""
    asked = "Answer with one JSON object and nothing else, unless you call a tool."
    return asked if schema is None else f"{asked} It must fit this schema: {json_text(schema)}"


def object_at(data: Any, key: str) -> Json:
    """Return the object under a key, or an empty one."""
    return data.get(key) or {}


def list_at(data: Any, key: str) -> list[Any]:
    """Return the list under a key, or an empty one."""
    return data.get(key) or []


def count(value: Any) -> int:
    """Return a token count. Missing and null count as 0."""
    return max(int(value), 0) if isinstance(value, int | float) else 0

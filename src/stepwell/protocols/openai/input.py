"""Reads the bodies of OpenAI's chat completions and responses.

Only what people and the agent said counts. Instructions, sampling parameters and tool calls of the
client are ignored, because the agent has its own; what would change the form of the answer is
rejected. Bad input raises ``ClientInputError``, which names the field.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from msgspec import Struct, ValidationError, convert

from stepwell.messages import Message
from stepwell.protocols.client_input import Sent, read_json
from stepwell.protocols.client_stream import ClientInputError

_Body = TypeVar("_Body", bound=Struct)
_TEXT_PARTS = ("text", "input_text", "output_text")


class OpenAiInput(Struct, frozen=True, kw_only=True):
    """A request: the earlier conversation, and the new text of the user."""

    model: str
    history: tuple[Message, ...]
    text: str
    stream: bool = False
    include_usage: bool = False
    previous_response_id: str | None = None


class _SentItem(Struct, frozen=True):
    role: str | None = None
    type: str = "message"
    content: str | list[Mapping[str, Any]] | None = None


class _StreamOptions(Struct, frozen=True):
    include_usage: bool = False


class _ChatBody(Struct, frozen=True):
    model: str
    messages: list[_SentItem]
    stream: bool | None = False
    stream_options: _StreamOptions | None = None


class _ResponsesBody(Struct, frozen=True):
    model: str
    input: str | list[_SentItem]
    stream: bool | None = False
    previous_response_id: str | None = None


def read_chat_input(body: Sent) -> OpenAiInput:
    """Read the body of a chat completion.

    >>> said = [{"role": "user", "content": "Hi"}]
    >>> read_chat_input({"model": "helper", "messages": said}).text
    'Hi'
    """
    posted = read_json(body)
    _check_supported(posted, _CHAT_UNSUPPORTED)
    given = _convert(posted, _ChatBody)
    history, text = _conversation(given.messages, "messages")
    options = given.stream_options or _StreamOptions()
    return OpenAiInput(
        model=given.model,
        history=history,
        text=text,
        stream=bool(given.stream),
        include_usage=options.include_usage,
    )


def read_responses_input(body: Sent) -> OpenAiInput:
    """Read the body of a response.

    >>> read_responses_input({"model": "helper", "input": "Hi"}).text
    'Hi'
    """
    posted = read_json(body)
    _check_supported(posted, _RESPONSES_UNSUPPORTED)
    given = _convert(posted, _ResponsesBody)
    items = given.input
    if isinstance(items, str):
        items = [_SentItem(role="user", content=items)]
    history, text = _conversation(items, "input")
    return OpenAiInput(
        model=given.model,
        history=history,
        text=text,
        stream=bool(given.stream),
        previous_response_id=given.previous_response_id,
    )


def _convert(posted: Mapping[str, Any], shape: type[_Body]) -> _Body:
    try:
        return convert(posted, shape)
    except ValidationError as error:
        raise ClientInputError(str(error)) from None


def _conversation(items: Sequence[_SentItem], field: str) -> tuple[tuple[Message, ...], str]:
    """Return what was said before, and the user's texts at the end."""
    said: list[Message] = []
    for number, item in enumerate(items):
        where = f"{field}[{number}]"
        if item.type != "message" or item.role in ("tool", "function"):
            continue  # the server runs the tools; what a client says of them is not believed
        text = _text(item.content, f"{where}.content")
        match item.role:
            case "user":
                said.append(Message.user(text))
            case "assistant":
                said += [Message.assistant(text)] if text else []
            case "system" | "developer":
                pass
            case other:
                raise ClientInputError(f"{where}.role is {other!r:.80}; it must be user")
    new: list[str] = []
    while said and said[-1].is_user():
        new.insert(0, said.pop().text)
    if not any(new) or not _ends_with_user(items):
        raise ClientInputError(f"{field} must end with a message of the user")
    return tuple(said), "\n\n".join(filter(None, new))


def _ends_with_user(items: Sequence[_SentItem]) -> bool:
    spoken = [item for item in items if item.role not in ("system", "developer")]
    return bool(spoken) and spoken[-1].role == "user"


def _text(content: str | list[Mapping[str, Any]] | None, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for number, part in enumerate(content):
        text = part.get("text", part.get("refusal"))
        if part.get("type") not in (*_TEXT_PARTS, "refusal") or not isinstance(text, str):
            raise ClientInputError(
                f"{where}[{number}].type is {part.get('type')!r:.80}; sessions take text"
            )
        texts.append(text)
    return "\n".join(texts)


def _check_supported(posted: Mapping[str, Any], unsupported: Mapping[str, str]) -> None:
    for field, why in unsupported.items():
        value = posted.get(field)
        if value and not _is_default(field, value):
            raise ClientInputError(f"{field} is not supported: {why}")


def _is_default(field: str, value: Any) -> bool:
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        kind = given.get("format", given)
        return isinstance(kind, Mapping) and cast("Any", kind).get("type", "text") == "text"
    return (field, value) in (("n", 1), ("modalities", ["text"]))


_OWN_TOOLS = "the agent has its own tools and runs them itself"
_OWN_FORM = "the agent decides on the form of its answer"
_CHAT_UNSUPPORTED = {
    "tools": _OWN_TOOLS,
    "functions": _OWN_TOOLS,
    "response_format": _OWN_FORM,
    "n": "a request has one answer",
    "logprobs": _OWN_FORM,
    "modalities": "answers are text",
    "audio": "answers are text",
}
_RESPONSES_UNSUPPORTED = {
    "tools": _OWN_TOOLS,
    "text": _OWN_FORM,
    "background": "follow the session of the run instead",
    "conversation": "name the session with previous_response_id or X-Stepwell-Session",
    "prompt": "the agent has its own prompt",
}

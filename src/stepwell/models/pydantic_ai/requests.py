"""Translates our requests to pydantic-ai: messages, settings, tools and output. Pure functions,
imported with pydantic-ai on the first turn.
"""

from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from mimetypes import guess_type
from typing import Any, cast

from msgspec import Struct
from pydantic_ai import messages as theirs
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings as TheirSettings
from pydantic_ai.tools import ToolDefinition

from stepwell.messages import (
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from stepwell.models.request import ModelRequest, ToolSchema
from stepwell.models.settings import ModelSettings, ResponseFormat, ThinkingEffort
from stepwell.models.wire.format import all_messages, data_of, request_error, without_nulls

ORIGIN = "pydantic_ai:"
"""Prefix of the origin of thinking from this bridge, before the provider's name."""

THOUGHT_SIGNATURE = "thought_signature"
"""Where pydantic-ai keeps Gemini's signature of a tool call."""


class Turn(Struct, frozen=True, eq=False):
    """One request in pydantic-ai's types."""

    messages: list[theirs.ModelMessage]
    settings: TheirSettings
    parameters: ModelRequestParameters


def turn_of(request: ModelRequest, model: Model, defaults: ModelSettings) -> Turn:
    """Translate a request, with ``defaults`` for unset settings. Raises ``ModelError``."""
    settings = request.settings.over(defaults)
    if settings.model is not None:
        raise request_error(
            f"settings.model={settings.model!r}, but the model of a PydanticAiModel is fixed; "
            "make another PydanticAiModel"
        )
    return Turn(
        _conversation(all_messages(request), model.system),
        _settings(settings, request, model),
        _parameters(request, model),
    )


def _conversation(messages: Iterable[Message], system: str) -> list[theirs.ModelMessage]:
    """Merge adjacent messages of one side, as pydantic-ai's own agents do."""
    sent: list[theirs.ModelMessage] = []
    for is_answer, neighbours in groupby(messages, key=Message.is_assistant):
        if is_answer:
            said = [part for message in neighbours for part in _response_parts(message, system)]
            sent.extend([theirs.ModelResponse(said)] if said else [])
        else:
            asked = [part for message in neighbours for part in _request_parts(message)]
            sent.extend([theirs.ModelRequest(asked)] if asked else [])
    return sent


def _request_parts(message: Message) -> Iterator[theirs.ModelRequestPart]:
    if message.is_system():
        if message.text:
            yield theirs.SystemPromptPart(message.text)
        return
    content: list[theirs.UserContent] = []
    for part in message.parts:
        match part:
            case ToolResult():
                yield _tool_return(part)
            case TextPart():
                content.append(part.text)
            case ImagePart() | FilePart():
                content.append(_attachment(part))
            case _:
                raise request_error(
                    f"a {message.role} message can't contain a {type(part).__name__}"
                )
    if content:
        is_text = len(content) == 1 and isinstance(content[0], str)
        yield theirs.UserPromptPart(cast("str", content[0]) if is_text else content)


def _tool_return(result: ToolResult) -> theirs.ToolReturnPart:
    """Mark a failed result as failed. It is never a pydantic-ai retry: the model decides whether to
    call again."""
    return theirs.ToolReturnPart(
        tool_name=result.tool_name,
        content=result.content,
        tool_call_id=result.call_id,
        outcome="failed" if result.is_error else "success",
    )


def _response_parts(message: Message, system: str) -> Iterator[theirs.ModelResponsePart]:
    for part in message.parts:
        match part:
            case TextPart():
                yield theirs.TextPart(part.text)
            case ThinkingPart():
                if part.origin is not None and part.origin.startswith(ORIGIN):
                    yield theirs.ThinkingPart(
                        part.text,
                        id=part.id,
                        signature=part.signature,
                        provider_name=part.origin.removeprefix(ORIGIN) or None,
                    )
            case ToolCall():
                yield _tool_call(part, system)
            case _:
                raise request_error(f"an assistant message can't contain a {type(part).__name__}")


def _tool_call(call: ToolCall, system: str) -> theirs.ToolCallPart:
    return theirs.ToolCallPart(
        tool_name=call.name,
        args=dict(call.arguments) if call.malformed is None else call.malformed,
        tool_call_id=call.id,
        provider_name=system if call.signature else None,
        provider_details={THOUGHT_SIGNATURE: call.signature} if call.signature else None,
    )


def _attachment(part: ImagePart | FilePart) -> theirs.UserContent:
    is_image = isinstance(part, ImagePart)
    name = None if isinstance(part, ImagePart) else part.name
    if part.url is None:
        usual = "image/png" if is_image else "application/pdf"
        return _binary(data_of(part), part.media_type or usual, name)
    if part.url.startswith("data:"):
        media_type, _, data = part.url.removeprefix("data:").partition(";base64,")
        return _binary(data, media_type, name)
    media_type = part.media_type or guess_type(part.url.partition("?")[0])[0] or ""
    kind = "image" if is_image else media_type.partition("/")[0]
    by_address = _BY_ADDRESS.get(kind, theirs.DocumentUrl)
    return by_address(part.url, media_type=part.media_type, identifier=name)


_BY_ADDRESS = {"image": theirs.ImageUrl, "audio": theirs.AudioUrl, "video": theirs.VideoUrl}


def _binary(data: str, media_type: str, name: str | None) -> theirs.BinaryContent:
    try:
        decoded = b64decode(data, validate=True)
    except BadBase64 as error:
        raise request_error(
            f"the data of an attached {media_type} is not base64: {error}"
        ) from error
    return theirs.BinaryContent(decoded, media_type=media_type, identifier=name)


def _settings(settings: ModelSettings, request: ModelRequest, model: Model) -> TheirSettings:
    tools = request.tools
    sent = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": settings.max_tokens,
        "stop_sequences": list(settings.stop) or None,
        "seed": settings.seed,
        "tool_choice": _tool_choice(settings.tool_choice) if tools else None,
        "parallel_tool_calls": settings.parallel_tool_calls if tools else None,
        "thinking": _thinking(settings.thinking),
        "extra_body": dict(settings.extra_body) or None,
        "extra_headers": dict(settings.extra_headers) or None,
        "cache": True if _wants_cache(request, model) else None,
    }
    return cast("TheirSettings", without_nulls(sent))


def _tool_choice(choice: str | None) -> str | list[str] | None:
    return choice if choice in (None, "auto", "none", "required") else [choice]


def _thinking(effort: ThinkingEffort | None) -> bool | str | None:
    if effort is None:
        return None
    return False if effort == ThinkingEffort.NONE else str(effort)


def _wants_cache(request: ModelRequest, model: Model) -> bool:
    """Return whether to enable caching: with a stable context, unless the model sets it."""
    return bool(request.context.messages) and "cache" not in (model.settings or {})


def _parameters(request: ModelRequest, model: Model) -> ModelRequestParameters:
    tools = [_tool(schema) for schema in request.tools]
    form = request.format
    if form is None:
        return ModelRequestParameters(function_tools=tools)
    native = form.schema is not None and _has_native_output(model, with_tools=bool(tools))
    return ModelRequestParameters(
        function_tools=tools,
        output_mode="native" if native else "prompted",
        output_object=_output_object(form),
    )


def _tool(schema: ToolSchema) -> ToolDefinition:
    return ToolDefinition(
        name=schema.name,
        description=schema.description,
        parameters_json_schema=dict(schema.parameters),
    )


def _output_object(form: ResponseFormat) -> OutputObjectDefinition:
    schema: dict[str, Any] = {"type": "object"} if form.schema is None else dict(form.schema)
    return OutputObjectDefinition(json_schema=schema, name=form.name, strict=form.strict)


def _has_native_output(model: Model, *, with_tools: bool) -> bool:
    """Return whether the model enforces schemas. Otherwise pydantic-ai puts them in the prompt."""
    try:
        profile = cast("Mapping[str, Any]", model.profile)
    except NotImplementedError:  # a fallback has no profile, since its models may differ
        return False
    if with_tools and not profile.get("google_supports_tool_combination", True):
        return False
    return bool(profile.get("supports_json_schema_output", False))

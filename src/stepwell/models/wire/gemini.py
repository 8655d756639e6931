"""Google's Gemini: ``generateContent`` and ``streamGenerateContent``. Calls carry a thought
signature, which is sent back with them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from stepwell.errors import ModelError, ModelErrorKind
from stepwell.messages import (
    FilePart,
    FinishReason,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
)
from stepwell.models.request import ModelRequest
from stepwell.models.response import ModelResponse, StreamPart, TextDelta, ThinkingDelta
from stepwell.models.settings import ModelSettings, ThinkingEffort
from stepwell.models.wire.format import (
    CallDraft,
    Json,
    Prompt,
    assemble_response,
    count,
    data_of,
    empty_response,
    format_instruction,
    incomplete_stream,
    instruction_text,
    json_text,
    list_at,
    merge_extra_body,
    object_at,
    plain_name,
    unsupported_setting,
    whole_or_raise,
    without_nulls,
)

ORIGIN = "gemini"
UNSIGNED = "skip_thought_signature_validator"
"""The documented signature for calls that another model made."""

_BUDGETS = {
    ThinkingEffort.NONE: 0,
    ThinkingEffort.MINIMAL: 512,
    ThinkingEffort.LOW: 1024,
    ThinkingEffort.MEDIUM: 8192,
    ThinkingEffort.HIGH: 24_576,
}
_FINISH_REASONS = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    "SAFETY": FinishReason.CONTENT_FILTER,
    "RECITATION": FinishReason.CONTENT_FILTER,
    "BLOCKLIST": FinishReason.CONTENT_FILTER,
    "PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "SPII": FinishReason.CONTENT_FILTER,
    "IMAGE_SAFETY": FinishReason.CONTENT_FILTER,
}
_MALFORMED = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE")


class Gemini(Struct, frozen=True, kw_only=True):
    """The Gemini format.

    >>> Gemini().path("gemini-3.8-flash", streaming=False)
    '/v1beta/models/gemini-3.8-flash:generateContent'
    """

    version: str = "v1beta"

    @property
    def name(self) -> str:
        """The name of this format."""
        return ORIGIN

    def path(self, model: str, *, streaming: bool) -> str:
        """Return the path, which contains the model and the method."""
        named = model if "/" in model else f"models/{model}"
        method = "streamGenerateContent?alt=sse" if streaming else "generateContent"
        return f"/{self.version}/{quote(named)}:{method}"

    def body(self, request: ModelRequest, model: str, *, streaming: bool) -> Json:  # noqa: ARG002
        """Return the JSON to post."""
        settings = request.settings
        if settings.parallel_tool_calls is not None:
            raise unsupported_setting("Gemini", "parallel_tool_calls")
        prompt = Prompt.of(request)
        texts = (instruction_text(message) for message in prompt.instructions)
        instructions = [{"text": text} for text in texts if text]
        form = request.format
        # A response schema can't be combined with tools, so it becomes an instruction.
        if form is not None and request.tools:
            instructions.append({"text": format_instruction(form.schema)})
        tools = [_tool(schema) for schema in request.tools]
        talk = (*prompt.talk, request.instruction) if request.instruction else prompt.talk
        body = {
            "contents": _contents(talk, signs=not _is_older(model)),
            "systemInstruction": {"parts": instructions} if instructions else None,
            "tools": [{"functionDeclarations": tools}] if tools else None,
            "toolConfig": _tool_config(settings) if tools else None,
            "generationConfig": _generation_config(request, model) or None,
        }
        return merge_extra_body(without_nulls(body), request)

    def response(self, data: Any) -> ModelResponse:
        """Parse a complete response."""
        reader = self.reader()
        for _ in reader.read(data):
            pass
        return reader.response()

    def reader(self) -> "GeminiReader":
        """Create a reader for one response. Streamed and complete ones have the same shape."""
        return GeminiReader()


class GeminiReader:
    """Collects the pieces of one response."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._drafts: list[CallDraft] = []
        self.usage = Usage()
        self._model: str | None = None
        self._finish: str | None = None
        self._finish_message = ""
        self._blocked = ""
        self._signature: str | None = None

    @property
    def is_over(self) -> bool:
        """Always False: usage may follow the finish reason, and no event is marked as final."""
        return False

    @property
    def may_be_over(self) -> bool:
        """Whether a finish reason has arrived."""
        return self._finish is not None

    def read(self, event: Any) -> Iterable[StreamPart]:
        """Return the parts in one chunk."""
        if event is None:
            return ()
        if usage := event.get("usageMetadata"):
            self.usage = _usage(usage)
        self._model = event.get("modelVersion") or self._model
        self._blocked = object_at(event, "promptFeedback").get("blockReason") or self._blocked
        candidates = event.get("candidates")
        if not candidates:
            return ()
        candidate = candidates[0]
        self._finish = candidate.get("finishReason") or self._finish
        self._finish_message = candidate.get("finishMessage") or self._finish_message
        content = object_at(candidate, "content")
        return [part for given in list_at(content, "parts") for part in self._parts(given)]

    def response(self) -> ModelResponse:
        """Return the response."""
        if self._blocked:
            raise ModelError(
                f"the provider's content filter blocked the prompt ({self._blocked})",
                kind=ModelErrorKind.CONTENT_FILTER,
                usage=self.usage,
            )
        if self._finish is None:
            if not self._text and not self._drafts and not self._thinking:
                raise empty_response("no candidates", self.usage)
            raise incomplete_stream("a finish reason", self.usage)
        if self._finish in _MALFORMED:
            raise ModelError(
                f"the model made a malformed tool call: {self._finish} {self._finish_message}",
                kind=ModelErrorKind.MALFORMED_RESPONSE,
                usage=self.usage,
            )
        response = assemble_response(
            (
                ThinkingPart("".join(self._thinking), self._signature, origin=ORIGIN),
                TextPart("".join(self._text)),
                *(draft.call() for draft in self._drafts),
            ),
            finish_reason=_FINISH_REASONS.get(self._finish, FinishReason.OTHER),
            usage=self.usage,
            model=self._model,
        )
        return whole_or_raise(response)

    def _parts(self, part: Mapping[str, Any]) -> Iterator[StreamPart]:
        text = part.get("text")
        if "functionCall" not in part:
            self._signature = part.get("thoughtSignature") or self._signature
        if text and part.get("thought"):
            self._thinking.append(text)
            yield ThinkingDelta(text)
        elif text:
            self._text.append(text)
            yield TextDelta(text)
        elif call := part.get("functionCall"):
            draft = CallDraft(
                len(self._drafts),
                call.get("id") or "",
                call.get("name") or "",
                part.get("thoughtSignature"),
            )
            self._drafts.append(draft)
            yield draft.start()
            yield draft.add(json_text(object_at(call, "args")))


def _contents(talk: Iterable[Message], *, signs: bool) -> list[Json]:
    contents: list[Json] = []
    for message in talk:
        role = "model" if message.role is Role.ASSISTANT else "user"
        parts = [sent for part in message.parts if (sent := _part(part)) is not None]
        _sign_text(message, parts)
        calls = [part for part in parts if "functionCall" in part]
        if signs and calls and not any("thoughtSignature" in part for part in calls):
            calls[0]["thoughtSignature"] = UNSIGNED
        if not parts:
            continue
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"].extend(parts)
        else:
            contents.append({"role": role, "parts": parts})
    return contents


def _sign_text(message: Message, parts: list[Json]) -> None:
    """Send a signature that came with text back with the text, or with an empty one."""
    signature = next(
        (
            part.signature
            for part in message.parts
            if isinstance(part, ThinkingPart) and part.origin == ORIGIN and part.signature
        ),
        None,
    )
    if signature is None:
        return
    texts = [part for part in parts if "text" in part]
    if not texts:
        texts = [{"text": ""}]
        parts[:0] = texts
    texts[-1]["thoughtSignature"] = signature


def _part(part: Part) -> Json | None:
    match part:
        case TextPart():
            return {"text": part.text} if part.text else None
        case ToolCall():
            call = {"id": part.id, "name": plain_name(part.name), "args": part.arguments}
            sent: Json = {"functionCall": call}
            return {**sent, "thoughtSignature": part.signature} if part.signature else sent
        case ToolResult():
            response = {"error" if part.is_error else "output": part.content}
            name = plain_name(part.tool_name)
            return {"functionResponse": {"id": part.call_id, "name": name, "response": response}}
        case ThinkingPart():
            return None
        case ImagePart():
            return _media(part, "image/png")
        case FilePart():
            return _media(part, "application/pdf")


def _media(part: ImagePart | FilePart, default: str) -> Json:
    if part.url is not None:
        return {"fileData": without_nulls({"fileUri": part.url, "mimeType": part.media_type})}
    return {"inlineData": {"mimeType": part.media_type or default, "data": data_of(part)}}


def _tool(schema: Any) -> Json:
    declared = {"name": schema.name, "description": schema.description}
    if not schema.parameters.get("properties"):
        return declared
    return {**declared, "parametersJsonSchema": schema.parameters}


def _tool_config(settings: ModelSettings) -> Json | None:
    choice = settings.tool_choice
    if choice is None:
        return None
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
    config: Json = {"mode": modes.get(choice, "ANY")}
    if choice not in modes:
        config["allowedFunctionNames"] = [choice]
    return {"functionCallingConfig": config}


def _generation_config(request: ModelRequest, model: str) -> Json:
    settings, form = request.settings, request.format
    formatted = form is not None and not request.tools
    return without_nulls(
        {
            "temperature": settings.temperature,
            "topP": settings.top_p,
            "maxOutputTokens": settings.max_tokens,
            "stopSequences": list(settings.stop) or None,
            "seed": settings.seed,
            "thinkingConfig": _thinking_config(settings.thinking, model),
            "responseMimeType": "application/json" if formatted else None,
            "responseJsonSchema": form.schema if form is not None and formatted else None,
        }
    )


def _thinking_config(effort: ThinkingEffort | None, model: str) -> Json | None:
    """Models up to 2.5 take a token count, newer ones a level. Some have a minimum."""
    if effort is None:
        return None
    shows = {"includeThoughts": effort is not ThinkingEffort.NONE}
    if _is_older(model):
        least = 128 if "pro" in model else 0
        return {**shows, "thinkingBudget": max(_BUDGETS[effort], least)}
    is_least = effort in (ThinkingEffort.NONE, ThinkingEffort.MINIMAL)
    return {**shows, "thinkingLevel": str(ThinkingEffort.LOW if is_least else effort)}


def _is_older(model: str) -> bool:
    return model.removeprefix("models/").startswith(("gemini-1", "gemini-2"))


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Convert usage. Google counts thoughts separately from the output; we include them."""
    thoughts = count(usage.get("thoughtsTokenCount"))
    prompt = count(usage.get("promptTokenCount")) + count(usage.get("toolUsePromptTokenCount"))
    return Usage(
        input_tokens=prompt,
        output_tokens=count(usage.get("candidatesTokenCount")) + thoughts,
        cached_tokens=count(usage.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )

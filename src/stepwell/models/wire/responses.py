"""OpenAI's Responses. Nothing is stored at the provider: each request carries the conversation,
with the encrypted reasoning of earlier turns.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from stepwell.errors import ModelError
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
    Usage,
)
from stepwell.models.faults import error_event
from stepwell.models.request import ModelRequest, ToolSchema
from stepwell.models.response import ModelResponse, StreamPart, TextDelta, ThinkingDelta
from stepwell.models.settings import ResponseFormat
from stepwell.models.wire.format import (
    CallDraft,
    Json,
    all_messages,
    assemble_response,
    count,
    data_url,
    empty_response,
    incomplete_stream,
    instruction_text,
    json_text,
    list_at,
    merge_extra_body,
    object_at,
    parse_call,
    plain_name,
    request_error,
    unsupported_setting,
    whole_or_raise,
    without_nulls,
)
from stepwell.models.wire.schema import strict_form

ORIGIN = "responses"
_WITHOUT_REASONING = ("gpt-3", "gpt-4", "chatgpt-", "ft:gpt-4", "ft:gpt-3")
_INCOMPLETE = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


class OpenAIResponses(Struct, frozen=True, kw_only=True):
    """The Responses format. ``summaries`` requests summaries of the reasoning, which OpenAI gives
    only to verified organizations.

    >>> OpenAIResponses().path("gpt-5", streaming=True)
    '/responses'
    """

    summaries: bool = False

    @property
    def name(self) -> str:
        """The name of this format."""
        return ORIGIN

    def path(self, model: str, *, streaming: bool) -> str:  # noqa: ARG002 - formats differ in it
        """Return the path, which is the same for every model."""
        return "/responses"

    def body(self, request: ModelRequest, model: str, *, streaming: bool) -> Json:
        """Return the JSON to post."""
        settings = request.settings
        for setting, value in (("stop", settings.stop or None), ("seed", settings.seed)):
            if value is not None:
                raise unsupported_setting("OpenAI's Responses format", setting, "use openai-chat")
        tools = [_tool(schema) for schema in request.tools]
        form = request.format
        reasons = not model.startswith(_WITHOUT_REASONING)
        summary = "auto" if self.summaries and reasons else None
        messages = all_messages(request)
        body = {
            "model": model,
            "input": [item for message in messages for item in _items(message, reasons)],
            "tools": tools or None,
            "tool_choice": _tool_choice(settings.tool_choice) if tools else None,
            "parallel_tool_calls": settings.parallel_tool_calls if tools else None,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_output_tokens": settings.max_tokens,
            "reasoning": without_nulls({"effort": settings.thinking, "summary": summary}) or None,
            "text": None if form is None else {"format": _response_format(form)},
            "store": False,
            "include": ["reasoning.encrypted_content"] if reasons else None,
            "stream": True if streaming else None,
        }
        return merge_extra_body(without_nulls(body), request)

    def response(self, data: Any) -> ModelResponse:
        """Parse a complete response."""
        usage = _usage(data.get("usage"))
        if data.get("status") in ("failed", "cancelled") or data.get("error"):
            raise _failure(data, usage)
        output = data.get("output")
        if not output and data.get("status") != "incomplete":
            raise empty_response("no output", usage)
        return _assemble(output or (), data, usage)

    def reader(self) -> "ResponsesReader":
        """Create a reader for one streamed response."""
        return ResponsesReader(self)


class ResponsesReader:
    """Yields the deltas. The complete response is in the final event."""

    def __init__(self, wire: OpenAIResponses) -> None:
        self._wire = wire
        self._drafts: list[CallDraft] = []
        self._by_index: dict[int | None, CallDraft] = {}
        self._items: list[Any] = []
        self._final: Mapping[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the final event has arrived."""
        return self._final is not None

    @property
    def usage(self) -> Usage:
        """The usage, which only the final event reports."""
        return Usage() if self._final is None else _usage(self._final.get("usage"))

    @property
    def may_be_over(self) -> bool:
        """The same as ``is_over``, since every stream has a final event."""
        return self.is_over

    def read(self, event: Any) -> Iterable[StreamPart]:
        """Return the parts in one event."""
        match event and event.get("type"):
            case "response.output_text.delta":
                return (TextDelta(event["delta"]),) if event["delta"] else ()
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return (ThinkingDelta(event["delta"]),) if event["delta"] else ()
            case "response.output_item.added" if event["item"].get("type") == "function_call":
                return self._start_call(event)
            case "response.function_call_arguments.delta":
                draft = self._by_index.get(event.get("output_index"))
                return (draft.add(event["delta"]),) if draft and event["delta"] else ()
            case "response.output_item.done":
                self._items.append(event["item"])
            case "response.completed" | "response.incomplete" | "response.failed":
                self._final = event["response"]
            case "error":
                raise error_event("the provider", event)
            case _:
                pass
        return ()

    def response(self) -> ModelResponse:
        """Return the response."""
        if self._final is None:
            raise incomplete_stream("response.completed", Usage())
        if not self._final.get("output") and self._items:  # some servers omit it in the final event
            return self._wire.response({**self._final, "output": self._items})
        return self._wire.response(self._final)

    def _start_call(self, event: Mapping[str, Any]) -> Iterator[StreamPart]:
        item = event["item"]
        draft = CallDraft(len(self._drafts), item.get("call_id") or "", item.get("name") or "")
        self._drafts.append(draft)
        self._by_index[event.get("output_index")] = (
            draft  # without an index, deltas continue the newest call
        )
        yield draft.start()


def _assemble(output: Iterable[Any], data: Mapping[str, Any], usage: Usage) -> ModelResponse:
    parts: list[Part] = []
    refusal: list[str] = []
    for item in output:
        match item.get("type"):
            case "message":
                for content in list_at(item, "content"):
                    parts.append(TextPart(content.get("text") or ""))
                    refusal.append(content.get("refusal") or "")
            case "function_call":
                parts.append(
                    parse_call(
                        item.get("call_id") or "", item.get("name") or "", item.get("arguments")
                    )
                )
            case "reasoning":
                parts.append(_thinking(item))
            case _:
                pass
    response = assemble_response(
        parts,
        finish_reason=_finish_reason(data),
        usage=usage,
        model=data.get("model"),
    )
    return whole_or_raise(response, refusal="".join(refusal))


def _finish_reason(data: Mapping[str, Any]) -> FinishReason:
    if data.get("status") != "incomplete":
        return FinishReason.STOP
    why = object_at(data, "incomplete_details").get("reason")
    return _INCOMPLETE.get(why or "", FinishReason.OTHER)


def _failure(data: Mapping[str, Any], usage: Usage) -> ModelError:
    error = error_event("the provider", {"error": object_at(data, "error")})
    error.usage = usage
    return error


def _thinking(item: Mapping[str, Any]) -> ThinkingPart:
    pieces = item.get("summary") or list_at(item, "content")
    return ThinkingPart(
        "\n\n".join(piece.get("text") or "" for piece in pieces),
        signature=item.get("encrypted_content"),
        id=item.get("id"),
        origin=ORIGIN,
    )


def _items(message: Message, reasons: bool) -> Iterator[Json]:
    match message.role:
        case Role.TOOL:
            if (result := message.tool_result) is not None:
                yield {
                    "type": "function_call_output",
                    "call_id": result.call_id,
                    "output": result.content,
                }
        case Role.ASSISTANT:
            items = list(_assistant_items(message, reasons))
            while items and items[-1].get("type") == "reasoning":
                items.pop()  # cut off while thinking: an item must follow reasoning
            yield from items
        case Role.USER:
            yield {"role": "user", "content": [_part(part) for part in message.parts]}
        case _:
            yield {"role": str(message.role), "content": instruction_text(message)}


def _assistant_items(message: Message, reasons: bool) -> Iterator[Json]:
    for part in message.parts:
        match part:
            case ThinkingPart() if reasons and part.origin == ORIGIN and part.signature:
                summary = [{"type": "summary_text", "text": part.text}] if part.text else []
                yield without_nulls(
                    {
                        "type": "reasoning",
                        "id": part.id,
                        "summary": summary,
                        "encrypted_content": part.signature,
                    }
                )
            case TextPart() if part.text:
                content = {"type": "output_text", "text": part.text}
                yield {"type": "message", "role": "assistant", "content": [content]}
            case ToolCall():
                yield {
                    "type": "function_call",
                    "call_id": part.id,
                    "name": plain_name(part.name),
                    "arguments": json_text(part.arguments),
                }
            case _:
                pass


def _part(part: Any) -> Json:
    match part:
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case ImagePart():
            url = data_url(part, "image/png")
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case FilePart() if part.url is not None:
            return {"type": "input_file", "file_url": part.url}
        case FilePart():
            return {
                "type": "input_file",
                "filename": part.name or "file",
                "file_data": data_url(part, "application/pdf"),
            }
        case _:
            raise request_error(f"a user message can't contain a {type(part).__name__}")


def _tool(schema: ToolSchema) -> Json:
    return {
        "type": "function",
        "name": schema.name,
        "description": schema.description,
        "parameters": schema.parameters,
        "strict": False,
    }


def _tool_choice(choice: str | None) -> str | Json | None:
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "name": choice}


def _response_format(form: ResponseFormat) -> Json:
    if form.schema is None:
        return {"type": "json_object"}
    schema, strict = strict_form(form.schema, form.strict)
    return {"type": "json_schema", "name": form.name, "schema": schema, "strict": strict}


def _usage(usage: Any) -> Usage:
    if not usage:
        return Usage()
    of_input = object_at(usage, "input_tokens_details")
    of_output = object_at(usage, "output_tokens_details")
    return Usage(
        input_tokens=count(usage.get("input_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        cached_tokens=count(of_input.get("cached_tokens")),
        cache_write_tokens=count(of_input.get("cache_write_tokens")),
        reasoning_tokens=count(of_output.get("reasoning_tokens")),
    )

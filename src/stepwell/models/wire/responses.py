"""OpenAI's Responses. Nothing is stored at the provider: each request carries the conversation,
and encrypted reasoning is sent back so that a model goes on thinking where it was.
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
    assembled,
    compact,
    count,
    data_url,
    empty,
    incomplete,
    instruction_text,
    json_text,
    listed,
    parsed_call,
    plain_name,
    refused,
    section,
    sequence_of,
    unsupported,
    whole_or_raise,
    with_extra,
)
from stepwell.models.wire.schema import strict_form

ORIGIN = "responses"
_WITHOUT_REASONING = ("gpt-3", "gpt-4", "chatgpt-", "ft:gpt-4", "ft:gpt-3")
_INCOMPLETE = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


class OpenAIResponses(Struct, frozen=True, kw_only=True):
    """The format. ``summaries`` asks for the reasoning in words, which OpenAI only gives to
    organisations that it has verified.

    >>> OpenAIResponses().path("gpt-5", streaming=True)
    '/responses'
    """

    summaries: bool = False

    @property
    def name(self) -> str:
        """The word for this format."""
        return ORIGIN

    def path(self, model: str, *, streaming: bool) -> str:  # noqa: ARG002 - formats differ in it
        """The same for every model."""
        return "/responses"

    def body(self, request: ModelRequest, model: str, *, streaming: bool) -> Json:
        """The JSON to post."""
        settings = request.settings
        for setting, value in (("stop", settings.stop or None), ("seed", settings.seed)):
            if value is not None:
                raise unsupported("OpenAI's Responses format", setting, "use openai-chat")
        tools = [_tool(schema) for schema in request.tools]
        form = request.format
        reasons = not model.startswith(_WITHOUT_REASONING)
        summary = "auto" if self.summaries and reasons else None
        asked = sequence_of(request)
        body = {
            "model": model,
            "input": [item for message in asked for item in _items(message, reasons)],
            "tools": tools or None,
            "tool_choice": _tool_choice(settings.tool_choice) if tools else None,
            "parallel_tool_calls": settings.parallel_tool_calls if tools else None,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_output_tokens": settings.max_tokens,
            "reasoning": compact({"effort": settings.thinking, "summary": summary}) or None,
            "text": None if form is None else {"format": _response_format(form)},
            "store": False,
            "include": ["reasoning.encrypted_content"] if reasons else None,
            "stream": True if streaming else None,
        }
        return with_extra(compact(body), request)

    def response(self, data: Any) -> ModelResponse:
        """The response in a whole answer."""
        usage = _usage(data.get("usage"))
        if data.get("status") in ("failed", "cancelled") or data.get("error"):
            raise _failed(data, usage)
        output = data.get("output")
        if not output and data.get("status") != "incomplete":
            raise empty("no output", usage)
        return _assembled(output or (), data, usage)

    def reader(self) -> "ResponsesReader":
        """A reader for one streamed response."""
        return ResponsesReader(self)


class ResponsesReader:
    """Tells the deltas; the whole response is in the stream's last event."""

    def __init__(self, wire: OpenAIResponses) -> None:
        self._wire = wire
        self._drafts: list[CallDraft] = []
        self._by_index: dict[int | None, CallDraft] = {}
        self._items: list[Any] = []
        self._final: Mapping[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the last event has come."""
        return self._final is not None

    @property
    def usage(self) -> Usage:
        """Only the last event tells it."""
        return Usage() if self._final is None else _usage(self._final.get("usage"))

    @property
    def may_be_over(self) -> bool:
        """Only when it is: every stream has a last event."""
        return self.is_over

    def read(self, event: Any) -> Iterable[StreamPart]:
        """The parts in one event."""
        match event and event.get("type"):
            case "response.output_text.delta":
                return (TextDelta(event["delta"]),) if event["delta"] else ()
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return (ThinkingDelta(event["delta"]),) if event["delta"] else ()
            case "response.output_item.added" if event["item"].get("type") == "function_call":
                return self._call_started(event)
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
        """The whole response."""
        if self._final is None:
            raise incomplete("response.completed", Usage())
        if not self._final.get("output") and self._items:  # some servers leave it out at the end
            return self._wire.response({**self._final, "output": self._items})
        return self._wire.response(self._final)

    def _call_started(self, event: Mapping[str, Any]) -> Iterator[StreamPart]:
        item = event["item"]
        draft = CallDraft(len(self._drafts), item.get("call_id") or "", item.get("name") or "")
        self._drafts.append(draft)
        self._by_index[event.get("output_index")] = draft  # without one, the newest goes on
        yield draft.start()


def _assembled(output: Iterable[Any], data: Mapping[str, Any], usage: Usage) -> ModelResponse:
    parts: list[Part] = []
    refusal: list[str] = []
    for item in output:
        match item.get("type"):
            case "message":
                for content in listed(item, "content"):
                    parts.append(TextPart(content.get("text") or ""))
                    refusal.append(content.get("refusal") or "")
            case "function_call":
                parts.append(
                    parsed_call(
                        item.get("call_id") or "", item.get("name") or "", item.get("arguments")
                    )
                )
            case "reasoning":
                parts.append(_thinking(item))
            case _:
                pass
    response = assembled(
        parts,
        finish_reason=_finish_reason(data),
        usage=usage,
        model=data.get("model"),
    )
    return whole_or_raise(response, refusal="".join(refusal))


def _finish_reason(data: Mapping[str, Any]) -> FinishReason:
    if data.get("status") != "incomplete":
        return FinishReason.STOP
    why = section(data, "incomplete_details").get("reason")
    return _INCOMPLETE.get(why or "", FinishReason.OTHER)


def _failed(data: Mapping[str, Any], usage: Usage) -> ModelError:
    error = error_event("the provider", {"error": section(data, "error")})
    error.usage = usage
    return error


def _thinking(item: Mapping[str, Any]) -> ThinkingPart:
    pieces = item.get("summary") or listed(item, "content")
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
                items.pop()  # the model was cut off while it thought; nothing belongs to it
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
                yield compact(
                    {
                        "type": "reasoning",
                        "id": part.id,
                        "summary": summary,
                        "encrypted_content": part.signature,
                    }
                )
            case TextPart() if part.text:
                said = {"type": "output_text", "text": part.text}
                yield {"type": "message", "role": "assistant", "content": [said]}
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
            raise refused(f"a user's message can't carry a {type(part).__name__}")


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
    of_input = section(usage, "input_tokens_details")
    of_output = section(usage, "output_tokens_details")
    return Usage(
        input_tokens=count(usage.get("input_tokens")),
        output_tokens=count(usage.get("output_tokens")),
        cached_tokens=count(of_input.get("cached_tokens")),
        cache_write_tokens=count(of_input.get("cache_write_tokens")),
        reasoning_tokens=count(of_output.get("reasoning_tokens")),
    )

"""OpenAI's chat completions, the format of most providers and local servers."""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from stepwell.messages import (
    FilePart,
    ImagePart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
)
from stepwell.models.request import ModelRequest
from stepwell.models.response import ModelResponse
from stepwell.models.settings import ResponseFormat
from stepwell.models.wire.chat_completions_response import ORIGIN, ChatReader, whole_response
from stepwell.models.wire.format import (
    Json,
    data_of,
    data_url,
    format_instruction,
    instruction_text,
    json_text,
    merge_extra_body,
    plain_name,
    request_error,
    without_nulls,
)
from stepwell.models.wire.schema import strict_form


class ChatCompletions(Struct, frozen=True, kw_only=True):
    """Chat completions, with the options in which servers differ.

    >>> ChatCompletions().path("any", streaming=False)
    '/chat/completions'
    """

    max_tokens_field: str = "max_tokens"
    has_developer_role: bool = False
    replays_thinking: bool = False
    """Whether to send the model's reasoning back in messages with tool calls."""
    formats_with_tools: bool = False
    """Whether a response format works together with tools. Many servers enforce the format by a
    grammar that excludes tool calls; for them it becomes an instruction."""
    user_after_tools: bool = True
    """Whether a user message may follow a tool result."""
    asks_for_usage: bool = True
    """Whether a stream reports its usage only on request."""
    seed_field: str = "seed"

    @property
    def name(self) -> str:
        """The name of this format."""
        return ORIGIN

    def path(self, model: str, *, streaming: bool) -> str:  # noqa: ARG002 - formats differ in it
        """Return the path, which is the same for every model."""
        return "/chat/completions"

    def body(self, request: ModelRequest, model: str, *, streaming: bool) -> Json:
        """Return the JSON to post."""
        settings, form = request.settings, request.format
        tools = [_tool(schema) for schema in request.tools]
        in_words = tools and not self.formats_with_tools
        words = format_instruction(form.schema) if form is not None and in_words else ""
        asks_for_usage = streaming and self.asks_for_usage
        body = {
            "model": model,
            "messages": self._messages(request, words),
            "tools": tools or None,
            "tool_choice": _tool_choice(settings.tool_choice) if tools else None,
            "parallel_tool_calls": settings.parallel_tool_calls if tools else None,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            self.max_tokens_field: settings.max_tokens,
            "stop": list(settings.stop) or None,
            self.seed_field: settings.seed,
            "reasoning_effort": settings.thinking,
            "response_format": None if form is None or words else _response_format(form),
            "stream": True if streaming else None,
            "stream_options": {"include_usage": True} if asks_for_usage else None,
        }
        return merge_extra_body(without_nulls(body), request)

    def response(self, data: Any) -> ModelResponse:
        """Parse a complete response."""
        return whole_response(data)

    def reader(self) -> ChatReader:
        """Create a reader for one streamed response."""
        return ChatReader()

    def _messages(self, request: ModelRequest, form: str) -> list[Json]:
        sent: list[Json] = []
        for message in (*request.context.messages, *request.messages):
            self._append(sent, self._wire_messages(message))
        asked = request.instruction
        if asked is not None and self.has_developer_role:
            self._append(sent, self._wire_messages(asked))
        elif asked is not None:  # templates of local models take a system message only at the start
            self._append(sent, [{"role": "user", "content": _content(asked)}])
        return _add_format(sent, form) if form else sent

    def _append(self, sent: list[Json], messages: Iterable[Json]) -> None:
        for message in messages:
            after_tool = bool(sent) and sent[-1]["role"] == "tool"
            if after_tool and message["role"] == "user" and not self.user_after_tools:
                sent.append({"role": "assistant", "content": "OK"})
            sent.append(message)

    def _wire_messages(self, message: Message) -> Iterator[Json]:
        match message.role:
            case Role.ASSISTANT:
                yield self._assistant(message)
            case Role.TOOL:
                result = message.tool_result
                if result is not None:
                    content = result.content
                    yield {"role": "tool", "tool_call_id": result.call_id, "content": content}
            case Role.DEVELOPER if not self.has_developer_role:
                yield {"role": "system", "content": instruction_text(message)}
            case Role.USER:
                yield {"role": "user", "content": _content(message)}
            case _:
                yield {"role": str(message.role), "content": instruction_text(message)}

    def _assistant(self, message: Message) -> Json:
        calls = [_wire_call(call) for call in message.tool_calls]
        sent: Json = {"role": "assistant", "content": message.text or (None if calls else "")}
        if calls:
            sent["tool_calls"] = calls
        thought = "".join(
            part.text
            for part in message.parts
            if isinstance(part, ThinkingPart) and part.origin == ORIGIN
        )
        if self.replays_thinking and thought and calls:
            sent["reasoning_content"] = thought
        return sent


def _add_format(sent: list[Json], form: str) -> list[Json]:
    """Add the format instruction at the start, where the prompt stays the same between steps."""
    if sent and sent[0]["role"] in ("system", "developer"):
        return [{**sent[0], "content": f"{sent[0]['content']}\n\n{form}"}, *sent[1:]]
    return [{"role": "system", "content": form}, *sent]


def _content(message: Message) -> str | list[Json]:
    if all(isinstance(part, TextPart) for part in message.parts):
        return message.text
    return [_part(part) for part in message.parts]


def _part(part: Any) -> Json:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": data_url(part, "image/png")}}
        case FilePart():
            if part.url is not None and part.data is None:
                raise request_error(
                    "chat completions take files as data, not by URL; give data=..."
                )
            data_of(part)
            url = data_url(FilePart(data=part.data, media_type=part.media_type), "application/pdf")
            return {"type": "file", "file": {"filename": part.name or "file", "file_data": url}}
        case _:
            raise request_error(f"a user message can't contain a {type(part).__name__}")


def _tool(schema: Any) -> Json:
    function = {
        "name": schema.name,
        "description": schema.description,
        "parameters": schema.parameters,
    }
    return {"type": "function", "function": function}


def _tool_choice(choice: str | None) -> str | Json | None:
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _response_format(form: ResponseFormat) -> Json:
    if form.schema is None:
        return {"type": "json_object"}
    schema, strict = strict_form(form.schema, form.strict)
    named = {"name": form.name, "schema": schema, "strict": strict}
    return {"type": "json_schema", "json_schema": named}


def _wire_call(call: ToolCall) -> Json:
    function = {"name": plain_name(call.name), "arguments": json_text(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}

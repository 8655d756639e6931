"""Anthropic's Messages, with prompt-cache marks and signed thinking, which is sent back as is."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from stepwell.messages import (
    FinishReason,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    Usage,
)
from stepwell.models.request import ModelRequest
from stepwell.models.response import ModelResponse, StreamPart, TextDelta, ThinkingDelta
from stepwell.models.settings import ModelSettings, ResponseFormat, ThinkingEffort
from stepwell.models.wire.format import (
    CallDraft,
    Json,
    Prompt,
    assemble_response,
    count,
    empty_response,
    format_instruction,
    incomplete_stream,
    instruction_text,
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
from stepwell.models.wire.messages_prompt import ORIGIN, turns_of
from stepwell.models.wire.schema import anthropic_form

VERSION = "2023-06-01"
"""Newer versions refuse temperature and top_p."""

DEFAULT_MAX_TOKENS = 8192
"""The format requires a limit. This is the default."""

_BUDGETS = {
    ThinkingEffort.MINIMAL: 1024,
    ThinkingEffort.LOW: 4096,
    ThinkingEffort.MEDIUM: 12_288,
    ThinkingEffort.HIGH: 20_480,  # leaves room for the response within Opus 4's limit of 32,000
}
_NAMED_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2})(?!\d))?")
_NEWEST = (99, 0)
_FINISH_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
}


class AnthropicMessages(Struct, frozen=True, kw_only=True):
    """The Messages format.

    ``cache_ttl`` is the lifetime of prompt cache entries: ``5m``, ``1h``, or None for no cache.
    ``thinking_budgets`` is for models without adaptive thinking, which need a token count; None
    decides by the model's name.
    """

    cache_ttl: str | None = "5m"
    thinking_budgets: bool | None = None

    @property
    def name(self) -> str:
        """The name of this format."""
        return ORIGIN

    def path(self, model: str, *, streaming: bool) -> str:  # noqa: ARG002 - formats differ in it
        """Return the path, which is the same for every model."""
        return "/v1/messages"

    def body(self, request: ModelRequest, model: str, *, streaming: bool) -> Json:
        """Return the JSON to post."""
        settings, form = request.settings, request.format
        if settings.seed is not None:
            raise unsupported_setting("Anthropic's Messages format", "seed")
        prompt = Prompt.of(request)
        thinking, output = self._thinking(settings, _version(model))
        tools, choice = _tools(request, prompt.talk)
        texts = (instruction_text(message) for message in prompt.instructions)
        system: list[Json] = [{"type": "text", "text": text} for text in texts if text.strip()]
        if form is not None:
            promised = _enforceable_schema(form, _version(model))
            if promised is not None:
                output["format"] = {"type": "json_schema", "schema": promised}
            else:
                system.append({"type": "text", "text": format_instruction(form.schema)})
        body = {
            "model": model,
            "max_tokens": settings.max_tokens or _max_tokens(thinking),
            "tools": tools or None,
            "system": system or None,
            "messages": turns_of(prompt, request.instruction, (tools, system), self.cache_ttl),
            "tool_choice": choice,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "stop_sequences": list(settings.stop) or None,
            "thinking": thinking,
            "output_config": output or None,
            "stream": True if streaming else None,
        }
        return merge_extra_body(without_nulls(body), request)

    def response(self, data: Any) -> ModelResponse:
        """Parse a complete response."""
        usage = _usage(object_at(data, "usage"))
        if data.get("stop_reason") is None and not data.get("content"):
            raise empty_response("no content", usage)
        return _assemble(list_at(data, "content"), data.get("stop_reason"), usage, data)

    def reader(self) -> "MessagesReader":
        """Create a reader for one streamed response."""
        return MessagesReader()

    def _thinking(
        self, settings: ModelSettings, version: tuple[int, int]
    ) -> tuple[Json | None, Json]:
        effort = settings.thinking
        if effort is None:
            return None, {}
        if effort is ThinkingEffort.NONE:
            return {"type": "disabled"}, {}
        if version < (4, 6) if self.thinking_budgets is None else self.thinking_budgets:
            return {"type": "enabled", "budget_tokens": _budget(effort, settings.max_tokens)}, {}
        level = "low" if effort is ThinkingEffort.MINIMAL else str(effort)
        return {"type": "adaptive"}, {"effort": level}


class MessagesReader:
    """Collects the blocks of one response."""

    def __init__(self) -> None:
        self._blocks: dict[int, Json] = {}
        self._drafts: dict[int, CallDraft] = {}
        self._counts: Json = {}
        self._message: Mapping[str, Any] = {}
        self._stop_reason: str | None = None
        self.is_over = False

    @property
    def may_be_over(self) -> bool:
        """The same as ``is_over``, since every stream has a final event."""
        return self.is_over

    def read(self, event: Any) -> Iterable[StreamPart]:
        """Return the parts in one event."""
        match event and event.get("type"):
            case "content_block_delta":
                return self._delta(event["index"], event["delta"])
            case "content_block_start":
                return self._start_block(event["index"], event["content_block"])
            case "message_start":
                self._message = event["message"]
                self._count(self._message.get("usage"))
            case "message_delta":
                self._stop_reason = event["delta"].get("stop_reason") or self._stop_reason
                self._count(event.get("usage"))
            case "message_stop":
                self.is_over = True
            case _:
                pass
        return ()

    @property
    def usage(self) -> Usage:
        """The usage so far: input comes at the start, output near the end."""
        return _usage(self._counts)

    def response(self) -> ModelResponse:
        """Return the response."""
        usage = self.usage
        if not self.is_over or self._stop_reason is None:
            raise incomplete_stream("message_stop", usage)
        for index, draft in self._drafts.items():
            self._blocks[index]["input"] = "".join(draft.pieces) or self._blocks[index].get("input")
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        return _assemble(blocks, self._stop_reason, usage, self._message)

    def _start_block(self, index: int, block: Mapping[str, Any]) -> Iterator[StreamPart]:
        self._blocks[index] = dict(block)
        if block.get("type") == "tool_use":
            draft = CallDraft(len(self._drafts), block.get("id") or "", block.get("name") or "")
            self._drafts[index] = draft
            yield draft.start()
        elif block.get("text"):
            yield TextDelta(block["text"])

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterable[StreamPart]:
        block = self._blocks[index]
        match delta.get("type"):
            case "text_delta":
                return self._append_piece(block, "text", delta["text"], TextDelta)
            case "thinking_delta":
                return self._append_piece(block, "thinking", delta["thinking"], ThinkingDelta)
            case "signature_delta":
                block["signature"] = delta["signature"]  # always complete
            case "input_json_delta":
                # Server-side tools have no draft.
                piece, draft = delta["partial_json"], self._drafts.get(index)
                return (draft.add(piece),) if piece and draft else ()
            case _:
                pass
        return ()

    def _append_piece(
        self, block: Json, field: str, piece: str, part: type[TextDelta | ThinkingDelta]
    ) -> Iterable[StreamPart]:
        if not piece:
            return ()
        block.setdefault("pieces", [block.get(field) or ""]).append(piece)
        return (part(piece),)

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        self._counts.update({k: v for k, v in (usage or {}).items() if v is not None})


def _assemble(
    blocks: Iterable[Any], stop_reason: str | None, usage: Usage, message: Mapping[str, Any]
) -> ModelResponse:
    parts: list[Part] = []
    for block in blocks:
        whole = "".join(block["pieces"]) if "pieces" in block else None
        match block.get("type"):
            case "text":
                parts.append(TextPart(block.get("text") or "" if whole is None else whole))
            case "tool_use":
                parts.append(parse_call(block["id"], block["name"], block.get("input")))
            case "thinking":
                thought = block.get("thinking") or "" if whole is None else whole
                parts.append(ThinkingPart(thought, block.get("signature"), origin=ORIGIN))
            case "redacted_thinking":
                parts.append(ThinkingPart("", block.get("data"), origin=ORIGIN, redacted=True))
            case _:
                pass
    response = assemble_response(
        parts,
        finish_reason=_FINISH_REASONS.get(stop_reason or "", FinishReason.OTHER),
        usage=usage,
        model=message.get("model"),
    )
    refusal = (response.text or "(no words)") if stop_reason == "refusal" else ""
    return whole_or_raise(response, refusal=refusal)


def _version(model: str) -> tuple[int, int]:
    """Return the version in a Claude model's name. Without one it counts as the newest."""
    named = _NAMED_VERSION.search(model)
    return _NEWEST if named is None else (int(named[1]), int(named[2] or 0))


def _enforceable_schema(form: ResponseFormat, version: tuple[int, int]) -> Json | None:
    """Return the schema to enforce, or None if the format must become an instruction."""
    if not form.schema or not form.strict or version < (4, 5):
        return None
    return anthropic_form(form.schema)


def _tools(request: ModelRequest, talk: Iterable[Message]) -> tuple[list[Json], Json | None]:
    """Return the tools and the tool choice. Anthropic refuses a conversation with calls but no
    tools, so tools that were called are then declared with the choice ``none``."""
    if request.tools:
        return [_tool(schema) for schema in request.tools], _tool_choice(request.settings)
    called = dict.fromkeys(plain_name(call.name) for message in talk for call in message.tool_calls)
    named: list[Json] = [{"name": name, "input_schema": {"type": "object"}} for name in called]
    return named, {"type": "none"} if named else None


def _tool(schema: Any) -> Json:
    return {
        "name": schema.name,
        "description": schema.description,
        "input_schema": schema.parameters,
    }


def _tool_choice(settings: ModelSettings) -> Json | None:
    choice, parallel = settings.tool_choice, settings.parallel_tool_calls
    if choice is None and parallel is None:
        return None
    words = {None: "auto", "auto": "auto", "none": "none", "required": "any"}
    chosen = {"type": words[choice]} if choice in words else {"type": "tool", "name": choice}
    if parallel is not None and choice != "none":
        chosen["disable_parallel_tool_use"] = not parallel  # pyright: ignore[reportArgumentType]
    return chosen


def _budget(effort: ThinkingEffort, max_tokens: int | None) -> int:
    budget = _BUDGETS[effort]
    if max_tokens is not None and max_tokens <= budget:
        raise request_error(
            f"max_tokens ({max_tokens}) must be above the {budget} tokens of thinking={effort}; "
            "raise it or lower the effort"
        )
    return budget


def _max_tokens(thinking: Json | None) -> int:
    """Return the default limit plus the thinking budget."""
    return DEFAULT_MAX_TOKENS + ((thinking or {}).get("budget_tokens") or 0)


def _usage(usage: Mapping[str, Any]) -> Usage:
    """Convert usage. Anthropic counts cached tokens separately from the input; we include them."""
    read = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    details = object_at(usage, "output_tokens_details")
    return Usage(
        input_tokens=count(usage.get("input_tokens")) + read + written,
        output_tokens=count(usage.get("output_tokens")),
        cached_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count(details.get("thinking_tokens")),
    )

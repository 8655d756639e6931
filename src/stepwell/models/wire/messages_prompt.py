"""Conversations as Anthropic's turns of blocks, with prompt-cache marks.

Marks follow the instructions (and so the tools), other stable messages, the end of the previous
request, and the end of this one: at most the four that are allowed. From step to step only the tail
is new; the rest is a cache hit.
"""

from collections.abc import Iterator

from stepwell.messages import (
    FilePart,
    ImagePart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from stepwell.models.wire.format import (
    Json,
    Prompt,
    data_of,
    plain_id,
    plain_name,
    request_error,
)

ORIGIN = "messages"
"""The origin of this format's signatures."""


def turns_of(
    prompt: Prompt,
    instruction: Message | None,
    stable: tuple[list[Json], list[Json]],
    cache_ttl: str | None,
) -> list[Json]:
    """Return the conversation as turns, with cache marks on the stable prefix. ``stable`` has the
    tools and the instructions, whose last block is marked too."""
    turns, ends = _turns(prompt.talk)
    if cache_ttl is not None:
        tools, system = stable
        blocks = [(system or tools)[-1:]] if system or tools else []
        marked = {ends[index] for index in _mark_after(prompt) if index in ends}
        blocks += [turns[turn]["content"][block : block + 1] for turn, block in sorted(marked)]
        for block in blocks:
            block[0]["cache_control"] = _mark(cache_ttl)
    for block in _blocks(instruction) if instruction is not None else ():
        _append_block(turns, "user", block)
    return turns


def _mark(ttl: str) -> Json:
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}


def _mark_after(prompt: Prompt) -> Iterator[int]:
    """Yield the messages after which to set marks: the end of the stable context, of the previous
    request, and of this one."""
    if prompt.stable:
        yield prompt.stable - 1
    assistants = (
        index for index in range(len(prompt.talk) - 1, 0, -1) if prompt.talk[index].is_assistant()
    )
    last_answer = next(assistants, None)
    if last_answer is not None:
        yield last_answer - 1
    if prompt.talk:
        yield len(prompt.talk) - 1


def _turns(talk: tuple[Message, ...]) -> tuple[list[Json], dict[int, tuple[int, int]]]:
    """Return user and assistant turns, and the last block of each message."""
    turns: list[Json] = []
    ends: dict[int, tuple[int, int]] = {}
    for index, message in enumerate(talk):
        role = "assistant" if message.role is Role.ASSISTANT else "user"
        for block in _blocks(message):
            _append_block(turns, role, block)
        if turns:
            ends[index] = (len(turns) - 1, len(turns[-1]["content"]) - 1)
    return turns, ends


def _blocks(message: Message) -> list[Json]:
    blocks = [block for part in message.parts if (block := _block(part)) is not None]
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks.pop()  # cut off while thinking: a message can't end with it
    return blocks


def _append_block(turns: list[Json], role: str, block: Json) -> None:
    """Append a block, to the last turn if it has the same role."""
    if not turns or turns[-1]["role"] != role:
        turns.append({"role": role, "content": []})
    turns[-1]["content"].append(block)


def _block(part: Part) -> Json | None:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text} if part.text.strip() else None
        case ToolCall():
            known_as = {"id": plain_id(part.id), "name": plain_name(part.name)}
            return {"type": "tool_use", **known_as, "input": part.arguments}
        case ToolResult():
            block: Json = {"type": "tool_result", "tool_use_id": plain_id(part.call_id)}
            if part.content.strip():
                block["content"] = part.content
            return {**block, "is_error": True} if part.is_error else block
        case ThinkingPart():
            return _thought(part)
        case ImagePart():
            return {"type": "image", "source": _source(part, "image/png")}
        case FilePart():
            document = {"type": "document", "source": _source(part, "application/pdf")}
            return {**document, "title": part.name} if part.name else document


def _thought(part: ThinkingPart) -> Json | None:
    if part.origin != ORIGIN or not part.signature:
        return None
    if part.redacted:
        return {"type": "redacted_thinking", "data": part.signature}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _source(part: ImagePart | FilePart, default: str) -> Json:
    if part.url is not None:
        return {"type": "url", "url": part.url}
    media_type = part.media_type or default
    if media_type.startswith("text/"):
        raise request_error("text files are sent as text; put their content into a TextPart")
    return {"type": "base64", "media_type": media_type, "data": data_of(part)}

"""What a ReAct model writes and reads: the decision as JSON, its schema and its check, the
instruction that explains it, and the conversation as plain text. Only pure functions; for the
ReAct driver.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast, overload

from msgspec import Struct, json

from stepwell.messages import Message, Part, Role, TextPart, ThinkingPart, ToolCall, ToolResult
from stepwell.models import ResponseFormat, ToolSchema

CALL_TOOL = "call_tool"
FINAL_ANSWER = "final_answer"
THOUGHT_ORIGIN = "react"
"""Marks the thoughts of decisions among the thinking parts of a message."""

SHOWN_OF_A_REPLY = 200


class ReActDecision(Struct, frozen=True, kw_only=True):
    """What the model wants: to call a tool, or, without a call, to answer."""

    thought: str = ""
    call: ToolCall | None = None
    answer: str = ""


class Unusable(Struct, frozen=True):
    """A reply that is no decision, and what is wrong with it, in words the model can act on."""

    problem: str


def read_decision(
    text: str, tools: Sequence[str] = (), *, needs_answer: bool = True
) -> ReActDecision | Unusable:
    """The decision in a reply; Markdown fences and words around the JSON do no harm.

    >>> read_decision('{"type": "final_answer", "answer": "4"}').answer
    '4'
    >>> read_decision('{"type": "final_answer"}').problem
    'field "answer" must be text that is not empty, got null'
    """
    found = _json_object(text)
    if isinstance(found, Unusable):
        return found
    thought = found.get("thought") or ""
    if not isinstance(thought, str):
        return Unusable(f'field "thought" must be text, got {_quote(thought)}')
    match found.get("type"):
        case "call_tool":
            return _call(found, thought, tools)
        case "final_answer":
            return _answer(found, thought, needs_answer)
        case other:
            words = f'"{CALL_TOOL}" or "{FINAL_ANSWER}"'
            return Unusable(f'field "type" must be {words}, got {_quote(other)}')


def _call(found: Mapping[str, Any], thought: str, tools: Sequence[str]) -> ReActDecision | Unusable:
    tool = found.get("tool")
    if not isinstance(tool, str) or not tool.strip():
        known = ", ".join(tools) or "(none)"
        return Unusable(f'field "tool" must name a tool, got {_quote(tool)}; tools: {known}')
    given: Any = found.get("args")
    arguments = _decode(given) if isinstance(given, str) else given
    if arguments is None or arguments == "":
        arguments = {}
    malformed = None if isinstance(arguments, dict) else _json(given)
    call = ToolCall(
        id="",
        name=tool.strip(),
        arguments=cast("dict[str, Any]", arguments) if malformed is None else {},
        malformed=malformed,
    )
    return ReActDecision(thought=thought, call=call)


def _answer(found: Mapping[str, Any], thought: str, needs_answer: bool) -> ReActDecision | Unusable:
    answer: Any = found.get("answer")
    if not needs_answer:
        return ReActDecision(thought=thought)
    is_number = isinstance(answer, int | float)
    if is_number or (answer and isinstance(answer, dict | list)):  # many forget to quote it
        answer = _json(answer)
    if not isinstance(answer, str) or not answer.strip():
        return Unusable(f'field "answer" must be text that is not empty, got {_quote(answer)}')
    return ReActDecision(thought=thought, answer=answer)


def _json_object(text: str) -> "dict[str, Any] | Unusable":
    if not text.strip():
        return Unusable("the reply is empty")
    found = _decode(text)
    if not isinstance(found, dict):
        found = _decode(text[text.find("{") : text.rfind("}") + 1])
    if not isinstance(found, dict):
        return Unusable(f"the reply is not a JSON object: {text.strip():.{SHOWN_OF_A_REPLY}}")
    return cast("dict[str, Any]", found)


def _decode(text: str) -> Any:
    """The JSON value in a text; the text itself if there is none."""
    try:
        return json.decode(text)
    except (ValueError, RecursionError):
        return text


def _quote(value: Any) -> str:
    return f"{_json(value):.{SHOWN_OF_A_REPLY}}"


def _json(value: Any) -> str:
    return json.encode(value, enc_hook=_plain_value).decode()


def _plain_value(value: Any) -> Any:
    """Arguments of a history that other code wrote may be any mapping, and hold anything."""
    return dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else str(value)


def decision_format(tools: Sequence[str], *, needs_answer: bool = True) -> ResponseFormat:
    """The schema of a decision; without tools only a final answer fits.

    It is not strict: a strict schema can't leave the arguments open. What is not needed can be
    left out, since some providers refuse the empty text as a choice of tool.
    """
    properties: dict[str, Any] = {"thought": {"type": "string"}}
    required = ["thought", "type"]
    properties["type"] = {"type": "string", "enum": [FINAL_ANSWER]}
    if tools:
        properties["type"] = {"type": "string", "enum": [CALL_TOOL, FINAL_ANSWER]}
        properties["tool"] = {"type": "string", "enum": list(tools)}
        properties["args"] = {"type": "object", "additionalProperties": True}
    if needs_answer:
        properties["answer"] = {"type": "string"}
        required += [] if tools else ["answer"]
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return ResponseFormat(schema=schema, name="decision", strict=False)


def format_instruction(
    tools: Sequence[ToolSchema], *, needs_answer: bool, answer_format: ResponseFormat | None
) -> Message:
    """The instruction that tells a model how to decide, and what tools there are."""
    final = {"thought": "...", "type": FINAL_ANSWER}
    lines = [
        "You work in steps. Reply to every message with one JSON object and nothing else, without "
        "Markdown. Think in its field thought.",
    ]
    if tools:
        call: dict[str, Any] = {"thought": "...", "type": CALL_TOOL, "tool": "<name>", "args": {}}
        lines += [
            f"To call one tool: {_json(call)}, with args that fit the tool's schema.",
            "You then get its result in a message that begins with Observation. If it begins "
            "with ERROR, correct the call or do without it. Never make up an observation.",
        ]
    if needs_answer:
        lines.append(f"To answer the user: {_json({**final, 'answer': '<all you have to say>'})}")
        if answer_format is not None:
            schema = "" if answer_format.schema is None else f" fits {_json(answer_format.schema)}"
            lines.append(
                f"The answer must be the text of a JSON object that{schema or ' is valid'}."
            )
    else:
        lines.append(f"Once you can answer the user: {_json(final)}; you are then asked to answer.")
    lines.append("Tools:" if tools else "There are no tools.")
    lines += [
        _json({"tool": t.name, "description": t.description, "args": t.parameters}) for t in tools
    ]
    return Message.system("\n".join(lines), id="react:instruction")


class PlainMessages(Sequence[Message]):
    """A conversation as a model without native tool calling can read it: only text.

    A view: a message is rewritten when it is read, one for one, and the history is not copied.
    """

    __slots__ = ("_messages",)

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return map(in_plain_text, self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return PlainMessages(self._messages[index])
        return in_plain_text(self._messages[index])

    def __repr__(self) -> str:
        return f"PlainMessages({list(self)!r})"


def in_plain_text(message: Message) -> Message:
    """What the model said as the decision it was, and tool results as observations.

    >>> call = ToolCall(id="c1", name="add", arguments={"a": 1})
    >>> in_plain_text(Message.assistant("Hm.", [call])).text
    '{"thought":"Hm.","type":"call_tool","tool":"add","args":{"a":1}}'
    >>> in_plain_text(Message.tool(ToolResult(call_id="c1", tool_name="add", content="3"))).text
    'Observation: 3'
    """
    if message.role is Role.ASSISTANT:
        said = "\n".join(_json(decision) for decision in _decisions(message))
        return _rewritten(message, Role.ASSISTANT, said) if said else message
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if message.role is Role.TOOL or results:
        return _rewritten(message, Role.USER, "\n".join(_observation(r) for r in results))
    return message


def _rewritten(message: Message, role: Role, text: str) -> Message:
    """Text first, then what has no words; a provider's own thinking is not sent to another turn."""
    rewritten = ThinkingPart | ToolCall | ToolResult
    kept: Iterable[Part] = (part for part in message.parts if not isinstance(part, rewritten))
    if role is Role.ASSISTANT:
        kept = (part for part in kept if not isinstance(part, TextPart))
    parts = (TextPart(text), *kept) if text else tuple(kept)
    return Message(role=role, parts=parts, id=message.id, metadata=message.metadata)


def _decisions(message: Message) -> Iterator[dict[str, Any]]:
    thought = "".join(
        part.text
        for part in message.parts
        if isinstance(part, ThinkingPart) and part.origin == THOUGHT_ORIGIN
    )
    calls, text = message.tool_calls, message.text
    for call in calls:
        arguments = call.arguments if call.malformed is None else call.malformed
        yield {
            "thought": thought or text,
            "type": CALL_TOOL,
            "tool": call.name,
            "args": arguments,
        }
    if text and not calls:
        yield {"thought": thought, "type": FINAL_ANSWER, "answer": text}


def _observation(result: ToolResult) -> str:
    if not result.is_error:
        return f"Observation: {result.content}"
    return f"Observation: ERROR: {result.content.removeprefix('Error: ')}"

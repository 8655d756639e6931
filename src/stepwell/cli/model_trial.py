"""Tests whether a model answers, streams, calls a tool and reports its usage."""

from typing import Any

from msgspec import Struct, to_builtins

from stepwell.cli.terminal import one_line, seconds
from stepwell.clock import Clock
from stepwell.errors import ModelError
from stepwell.messages import Message, Role, ToolResult
from stepwell.models import (
    Model,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ResponseEnd,
    TextDelta,
    ThinkingDelta,
    ToolSchema,
)
from stepwell.models.attempts import close, parts_of

MOST_TOKENS = 1000
"""Enough for models that think before they answer."""
_PROMPT = "Look up the weather in Oslo with the tool get_weather, then tell it in one sentence."
_RESULT = "Sunny, 21 degrees."
_TOOL = ToolSchema(
    name="get_weather",
    description="The weather in a city, now.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)


class TrialCheck(Struct, frozen=True):
    """One check and its result."""

    name: str
    is_good: bool
    words: str


class Trial(Struct, frozen=True, kw_only=True):
    """The results for one model."""

    model: str
    checks: tuple[TrialCheck, ...] = ()
    fault: str | None = None
    """The error that ended the trial, with a hint."""

    @property
    def is_good(self) -> bool:
        """Whether everything works that agents need."""
        return self.fault is None and all(check.is_good for check in self.checks)

    def as_data(self) -> dict[str, Any]:
        """Return JSON-ready data."""
        return {"is_good": self.is_good, **to_builtins(self)}


class _TrialTurn(Struct, frozen=True, kw_only=True):
    response: ModelResponse
    chunks: int
    first_seconds: float | None
    seconds: float


async def try_model(model: Model, clock: Clock) -> Trial:
    """Run two small turns: one that should call a tool, and one that should report its result."""
    asked = (Message.user(_PROMPT),)
    try:
        first = await _turn(model, asked, clock)
    except ModelError as error:
        return Trial(model=model.name, fault=_explain(error))
    calls = first.response.tool_calls
    checks = [_call_check(first.response)]
    if not calls:
        return Trial(model=model.name, checks=(*_text_checks(first), *checks, *_sums(first)))
    said = Message(
        id="trial:said",
        role=Role.ASSISTANT,
        parts=first.response.parts or (*first.response.thinking, *calls),
    )
    results = [
        Message(
            id=f"trial:{call.id}",
            role=Role.TOOL,
            parts=(ToolResult(call_id=call.id, tool_name=call.name, content=_RESULT),),
        )
        for call in calls
    ]
    try:
        second = await _turn(model, (*asked, said, *results), clock)
    except ModelError as error:
        return Trial(model=model.name, checks=tuple(checks), fault=_explain(error))
    return Trial(model=model.name, checks=(*_text_checks(second), *checks, *_sums(first, second)))


async def _turn(model: Model, messages: tuple[Message, ...], clock: Clock) -> _TrialTurn:
    request = ModelRequest(
        messages=messages, tools=(_TOOL,), settings=ModelSettings(max_tokens=MOST_TOKENS)
    )
    began, first, chunks = clock.monotonic(), None, 0
    response: ModelResponse | None = None
    parts = parts_of(model, request)
    try:
        async for part in parts:
            if first is None:
                first = clock.monotonic() - began
            match part:
                case TextDelta() | ThinkingDelta():
                    chunks += 1
                case ResponseEnd():
                    response = part.response
                case _:
                    pass
    finally:
        await close(parts)
    if response is None:
        raise ModelError(f"{model.name}: the stream ended without its last message")
    took = clock.monotonic() - began
    return _TrialTurn(response=response, chunks=chunks, first_seconds=first, seconds=took)


def _text_checks(turn: _TrialTurn) -> tuple[TrialCheck, ...]:
    text = turn.response.text
    words = one_line(text, 80) if text else "no text"
    first = f"first part after {seconds(turn.first_seconds)}, all after {seconds(turn.seconds)}"
    pieces = f"{turn.chunks} piece{'' if turn.chunks == 1 else 's'}, {first}"
    # One piece is not a stream, but it is enough for an agent.
    return TrialCheck("text", bool(text), words), TrialCheck("streaming", turn.chunks > 0, pieces)


def _call_check(response: ModelResponse) -> TrialCheck:
    if not response.tool_calls:
        return TrialCheck(
            "tool calling",
            False,
            "it answered without calling the tool; agents need a model that calls tools",
        )
    call = response.tool_calls[0]
    is_right = call.name == _TOOL.name and "city" in call.arguments and call.malformed is None
    words = f"{call.name} with {dict(call.arguments)}"
    return TrialCheck("tool calling", is_right, words if is_right else f"called wrongly: {words}")


def _sums(*turns: _TrialTurn) -> tuple[TrialCheck, ...]:
    sent = sum(turn.response.usage.input_tokens for turn in turns)
    received = sum(turn.response.usage.output_tokens for turn in turns)
    cost = sum(turn.response.cost for turn in turns)
    usage = f"{sent} tokens in, {received} out"
    price = f"${cost:.6f}" if cost else "price unknown, so max_cost has no effect; use max_tokens"
    return (
        TrialCheck(
            "usage", sent + received > 0, usage if sent + received else "it reports no usage"
        ),
        TrialCheck("cost", True, price),
    )


def _explain(error: ModelError) -> str:
    hints = {
        "authentication": "check the key in its environment variable",
        "not_found": "check the name of the model, and the address",
        "connect": "check the address, and that the server runs",
        "quota": "the account is out of credit",
        "rate_limit": "wait a little and try again",
    }
    hint = hints.get(str(error.kind))
    return f"{error.kind}: {error}" + (f"; {hint}" if hint else "")

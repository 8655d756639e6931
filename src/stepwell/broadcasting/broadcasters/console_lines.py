"""The wording of console lines, one function per type of envelope, and text without escapes."""

from collections.abc import Callable, Mapping
from typing import Any

from stepwell.journal.envelope import EnvelopeType
from stepwell.journal.status import BroadcastStatus
from stepwell.state import ToolOutcome
from stepwell.text import truncate
from stepwell.text.hidden_characters import replace_hidden

Part = tuple[str, str]
"""A text and the code of its colour, or an empty one."""

DIM, RED, GREEN, YELLOW, CYAN = "2", "31", "32", "33", "36"

LONGEST_PART = 500

_ON_ONE_LINE = str.maketrans("\n\t", "  ")


def harmless_text(text: str) -> str:
    """Return the text with control and hidden characters as escapes; line breaks stay.

    >>> harmless_text("red: \\x1b[31m")
    'red: \\\\x1b[31m'
    """
    return replace_hidden(text.replace("\r", ""), _spell)


def _spell(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(value: object) -> str:
    """Return the same on one line, truncated.

    >>> one_line("two\\nlines")
    'two lines'
    """
    return harmless_text(truncate(str(value), LONGEST_PART)).translate(_ON_ONE_LINE)


def line_parts(envelope: Mapping[str, Any], payload: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return the line for an envelope; of an unknown type, the name."""
    wording = _WORDINGS.get(str(envelope.get("type")))
    return ((one_line(envelope.get("type")), ""),) if wording is None else wording(payload)


def _status(payload: Mapping[str, Any]) -> tuple[Part, ...]:
    status = one_line(payload.get("status"))
    parts = [f" (was {one_line(payload.get('previous_status'))})"]
    if payload.get("step_count"):
        parts.append(f" after {_plural(payload['step_count'], 'step')}")
    reason, error = payload.get("reason") or "", payload.get("error_message") or ""
    reasons = (payload.get("stop_reason"), reason, "" if error in reason else error)
    parts += [f": {one_line(text)}" for text in reasons if text]
    for waiting in payload.get("waits_for") or ():
        parts.append(f"; waits for {one_line(waiting['kind'])}: {one_line(waiting['prompt'])}")
    return (status, _STATUS_COLORS.get(status, "")), ("".join(parts), "")


def _step_started(payload: Mapping[str, Any]) -> tuple[Part, ...]:
    tools = ", ".join(payload.get("available_tools") or ()) or "none"
    messages = _plural(payload.get("message_count", 0), "message")
    return (
        (one_line(f"step {payload.get('step_number')}"), ""),
        (one_line(f" ({messages}; tools: {tools})"), DIM),
    )


def _step_completed(payload: Mapping[str, Any]) -> tuple[Part, ...]:
    usage: Mapping[str, Any] = payload.get("usage") or {}
    tokens = _plural(usage.get("total", 0), "token")
    facts = [str(payload.get("finish_reason") or "no finish reason"), tokens, _duration(payload)]
    errors = "; ".join(payload.get("error_messages") or ())
    count = payload.get("errors")
    return (
        (one_line(f"step {payload.get('step_number')} done"), ""),
        (one_line(f" ({', '.join(facts)})"), DIM),
        (f" {_plural(count, 'error')}: {one_line(errors)}" if count else "", RED),
    )


def _tool_started(payload: Mapping[str, Any]) -> tuple[Part, ...]:
    summary = one_line(payload.get("args_summary", ""))
    return (("tool ", ""), (one_line(payload.get("tool_name")), CYAN), (f"({summary})", ""))


def _tool_completed(payload: Mapping[str, Any]) -> tuple[Part, ...]:
    outcome = str(payload.get("outcome") or "failed")
    word, color = one_line(outcome.replace("_", " ")), YELLOW if outcome in _NO_FAULT else RED
    if payload.get("success"):
        word, color = "ok", GREEN
    text = payload.get("result_summary") if payload.get("success") else payload.get("error")
    return (
        ("tool ", ""),
        (one_line(payload.get("tool_name")), CYAN),
        (f" {word}", color),
        (f" after {_duration(payload)}", DIM),
        (f": {one_line(text)}" if text else "", ""),
    )


def _continuation(payload: Mapping[str, Any]) -> tuple[Part, ...]:
    word = "goes on" if payload.get("should_continue") else "stops"
    reason = payload.get("stop_reason")
    votes = "; ".join(
        one_line(f"{vote['criterion']} {vote['decision']} ({vote['reason']})")
        for vote in payload.get("evaluations") or ()
    )
    return (
        (word if reason is None else f"{word}: {one_line(reason)}", ""),
        (f", resolved by {one_line(payload.get('resolved_by'))}; votes: {votes or 'none'}", DIM),
    )


def _plural(count: Any, noun: str) -> str:
    return f"{one_line(count)} {noun}{'' if count == 1 else 's'}"


def _duration(payload: Mapping[str, Any]) -> str:
    milliseconds = float(payload.get("duration_ms") or 0)
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"


_NO_FAULT = {
    ToolOutcome.BLOCKED,
    ToolOutcome.CANCELLED,
    ToolOutcome.NOT_RUN,
    ToolOutcome.PENDING,
}
"""Outcomes that are neither a success nor a fault."""

_STATUS_COLORS: Mapping[str, str] = {
    BroadcastStatus.COMPLETED: GREEN,
    BroadcastStatus.FAILED: RED,
    BroadcastStatus.CANCELLED: YELLOW,
    BroadcastStatus.STOPPED: YELLOW,
    BroadcastStatus.PAUSED: YELLOW,
}

_WORDINGS: Mapping[str, Callable[[Mapping[str, Any]], tuple[Part, ...]]] = {
    EnvelopeType.AGENT_STATUS: _status,
    EnvelopeType.AGENT_STEP_STARTED: _step_started,
    EnvelopeType.AGENT_STEP_COMPLETED: _step_completed,
    EnvelopeType.AGENT_TOOL_STARTED: _tool_started,
    EnvelopeType.AGENT_TOOL_COMPLETED: _tool_completed,
    EnvelopeType.AGENT_CONTINUATION: _continuation,
}

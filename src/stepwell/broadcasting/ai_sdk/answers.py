"""Finds the answer to one question in what ``useChat`` posts. Used by the library and the server.

An approval names its question itself; the output of a call counts for the questions that the stop
part of its message names.
"""

from collections.abc import Sequence
from typing import Any

from stepwell.broadcasting.ai_sdk.history import ToolPart, UiMessage
from stepwell.state import Approval, PendingKind


def find_answer(
    messages: Sequence[UiMessage], *, question_id: str, kind: str, call_id: str | None
) -> tuple[Any] | None:
    """Return the answer to that very question, or None if the messages hold none."""
    newest = ((m, part) for m in reversed(messages) if (part := m.tool_part(call_id)))
    found = next(newest, None)
    if call_id is None or found is None:
        return None
    message, part = found
    if kind == PendingKind.APPROVAL:
        return _approval(part, question_id)
    if question_id not in message.asked:
        return None
    if part.state == "output-available":
        return (part.output,)
    return (part.error_text,) if part.state == "output-error" else None


def _approval(part: ToolPart, question_id: str) -> tuple[Approval] | None:
    given = part.approval
    if part.state != "approval-responded" or given.get("id") != question_id:
        return None
    if given.get("approved") is True:
        return (Approval.granted(),)
    return (Approval.denied(str(given.get("reason") or "")),)

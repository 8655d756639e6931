"""Finds the answer to one question in what ``useChat`` posts. Used by the library and the server.

An approval names its question itself; the output of a call counts for the question that the stop
part of its message names with that call.
"""

from collections.abc import Sequence
from typing import Any

from stepwell.protocols.ai_sdk.history import ToolPart, UiMessage
from stepwell.state import Approval, PendingKind


def find_answer(messages: Sequence[UiMessage], *, question_id: str, kind: str) -> tuple[Any] | None:
    """Return the answer to that very question, or None if the messages hold none."""
    newest = reversed(messages)
    if kind == PendingKind.APPROVAL:
        parts = (part for message in newest for part in reversed(message.tools))
        approved = next((part for part in parts if part.approval.get("id") == question_id), None)
        return None if approved is None else _read_approval(approved)
    message = next((message for message in newest if question_id in message.asked), None)
    tools = () if message is None else reversed(message.tools)
    call_id = None if message is None else message.asked[question_id]
    part = next((part for part in tools if part.call_id == call_id), None)
    if part is None:
        return None
    if part.state == "output-available":
        return (part.output,)
    return (part.error_text,) if part.state == "output-error" else None


def _read_approval(part: ToolPart) -> tuple[Approval] | None:
    if part.state != "approval-responded":
        return None
    if part.approval.get("approved") is True:
        return (Approval.granted(),)
    return (Approval.denied(str(part.approval.get("reason") or "")),)

"""Envelopes by hand for the tests of the message list, and its messages in short."""

from collections.abc import Sequence
from typing import Any

from tests.message_list import MessageList, empty_list, messages, received

Json = dict[str, Any]


def envelope(seq: int, type: str, execution: str = "e1", **payload: Any) -> Json:
    return {
        "id": f"envelope-{seq}",
        "seq": seq,
        "type": f"agent.{type}",
        "session_id": "s",
        "execution_id": execution,
        "timestamp": "2026-01-16T10:05:00.123Z",
        "payload": {"agent_id": "a", "parent_execution_id": None, **payload},
    }


def chunk(seq: int, index: int, content: str, step: int = 1, last: bool = False) -> Json:
    told = {"content": content, "is_complete": last, "chunk_index": index}
    return envelope(seq, "stream.chunk", step_number=step, **told)


def started(seq: int, call_id: str, step: int = 1, **more: Any) -> Json:
    told = {"tool_name": "look", "tool_call_id": call_id, "args_summary": "at: 'home'", **more}
    return envelope(seq, "tool.started", step_number=step, **told)


def completed(
    seq: int, call_id: str, result: str | None = "found", error: str | None = None
) -> Json:
    told = {"tool_name": "look", "tool_call_id": call_id, "success": error is None}
    return envelope(seq, "tool.completed", **told, error=error, result_summary=result)


def state(seq: int, word: str, execution: str = "e1", **more: Any) -> Json:
    return envelope(seq, "status", execution, status=word, step_count=1, **more)


def listed(envelopes: Sequence[Any], list: MessageList | None = None) -> MessageList:
    list = empty_list() if list is None else list
    for one in envelopes:
        list = received(list, one)
    return list


def blocks(list: MessageList) -> list[Json]:
    return [one for one in messages(list) if one["role"] == "tool"]


def shown(list: MessageList) -> list[str]:
    """One line for each message."""
    return [f"{one['role']}: {one.get('name', '')}{one['content']}" for one in messages(list)]

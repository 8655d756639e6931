"""The rules that AG-UI clients hold a stream to, in Python: shapes, order, and the list they build.

Shapes are those of the package ag-ui-protocol; order and list follow the JavaScript client, which
the integration tests run.
"""

from typing import Any

from ag_ui.core import Event
from pydantic import BaseModel, TypeAdapter

ANY_EVENT: TypeAdapter[Any] = TypeAdapter(Event)
OPENS = {
    "TEXT_MESSAGE_START": ("TEXT_MESSAGE_END", "messageId"),
    "TOOL_CALL_START": ("TOOL_CALL_END", "toolCallId"),
    "REASONING_START": ("REASONING_END", "messageId"),
    "REASONING_MESSAGE_START": ("REASONING_MESSAGE_END", "messageId"),
    "STEP_STARTED": ("STEP_FINISHED", "stepName"),
    "SUBAGENT_STARTED": ("SUBAGENT_FINISHED", "subagentRunId"),
}
CONTINUES = {
    "TEXT_MESSAGE_CONTENT": ("TEXT_MESSAGE_END", "messageId"),
    "TOOL_CALL_ARGS": ("TOOL_CALL_END", "toolCallId"),
    "REASONING_MESSAGE_CONTENT": ("REASONING_MESSAGE_END", "messageId"),
}
CLOSES = dict(OPENS.values()) | {"SUBAGENT_ERROR": "subagentRunId"}


def checked(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The client's list after these events; fails where a client would."""
    for event in events:
        _assert_known(ANY_EVENT.validate_python(event))
        assert event.get("delta") != ""
    assert events[0]["type"] == "RUN_STARTED"
    ends = [e["type"] for e in events if e["type"] in ("RUN_FINISHED", "RUN_ERROR")]
    assert ends == [events[-1]["type"]]
    still_open = _open_at_the_end(events)
    assert events[-1]["type"] == "RUN_ERROR" or not still_open
    return _listed(events)


def _assert_known(value: Any) -> None:
    """Fields that the protocol does not know are dropped by clients."""
    if isinstance(value, BaseModel):
        assert not value.model_extra
        for name in type(value).model_fields:
            _assert_known(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            _assert_known(item)


def _open_at_the_end(events: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    still_open: set[tuple[Any, ...]] = set()
    owners: dict[tuple[str, str], str | None] = {}
    for event in events:
        kind, owner = event["type"], event.get("subagentRunId")
        if kind in OPENS:
            closing, field = OPENS[kind]
            key = (closing, event[field], owner)
            assert key not in still_open
            still_open.add(key)
            assert owners.setdefault((closing, event[field]), owner) == owner or "STEP" in kind
        elif kind in CONTINUES:
            closing, field = CONTINUES[kind]
            assert (closing, event[field], owner) in still_open
        elif kind in CLOSES:
            closing = "SUBAGENT_FINISHED" if kind == "SUBAGENT_ERROR" else kind
            key = (closing, event[CLOSES[kind]], owner)
            assert key in still_open
            still_open.remove(key)
    return still_open


def _listed(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    for event in events:
        match event["type"]:
            case "TEXT_MESSAGE_START":
                if not _find(listed, event["messageId"]):
                    listed.append({"id": event["messageId"], "role": event["role"], "content": ""})
            case "TEXT_MESSAGE_CONTENT":
                message = _find(listed, event["messageId"])
                assert message is not None
                message["content"] = message.get("content", "") + event["delta"]
            case "TOOL_CALL_START":
                assert not any(c["id"] == event["toolCallId"] for m in listed for c in _calls(m))
                message = _find(listed, event["parentMessageId"])
                if message is None:
                    message = {"id": event["parentMessageId"], "role": "assistant"}
                    listed.append(message)
                assert message["role"] == "assistant"
                message.setdefault("toolCalls", []).append({"id": event["toolCallId"]})
            case "TOOL_CALL_RESULT":
                assert not _find(listed, event["messageId"])
                result = {"id": event["messageId"], "role": "tool", "content": event["content"]}
                _insert(listed, {**result, "toolCallId": event["toolCallId"]})
            case "MESSAGES_SNAPSHOT":
                new = {message["id"]: message for message in event["messages"]}
                assert len(new) == len(event["messages"])
                kept = [new.pop(m["id"]) for m in listed if m["id"] in new]
                listed = [*kept, *new.values()]
            case _:
                pass
    return listed


def _insert(listed: list[dict[str, Any]], result: dict[str, Any]) -> None:
    place = next(
        index
        for index, message in enumerate(listed)
        if any(call["id"] == result["toolCallId"] for call in _calls(message))
    )
    place += 1
    while place < len(listed) and listed[place]["role"] == "tool":
        place += 1
    listed.insert(place, result)


def _find(listed: list[dict[str, Any]], message_id: str) -> dict[str, Any] | None:
    return next((message for message in listed if message["id"] == message_id), None)


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message.get("toolCalls", [])

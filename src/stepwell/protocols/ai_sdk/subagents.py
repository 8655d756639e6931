"""Subagents in a UI message: one data part each, beside the text of the agent that spawned them."""

from typing import Any

from stepwell.journal import Entry
from stepwell.journal.envelope import (
    StatusPayload,
    StepStartedPayload,
    StreamChunkPayload,
    ToolCompletedPayload,
    ToolStartedPayload,
)
from stepwell.journal.status import BroadcastStatus
from stepwell.protocols.ai_sdk.values import sendable, sendable_text
from stepwell.protocols.call_ids import CallIds
from stepwell.protocols.client_stream import WireEvent
from stepwell.protocols.entries import spawn_of
from stepwell.state import ToolOutcome


class SubagentParts:
    """Translates the entries of subagents, and ignores those of other agents."""

    def __init__(self, root_call_ids: CallIds) -> None:
        self.root: tuple[str, str] | None = None
        """The execution and the agent id of the root agent."""
        self._parts: dict[str, WireEvent] = {}
        """The parts that the client has, by execution."""
        self._cut_off: set[str] = set()
        self._root_call_ids = root_call_ids
        self._call_ids: dict[str, CallIds] = {}
        self._response_ids: dict[str, str] = {}
        """The id of the message that holds the calls of a step, by execution."""

    def chunks(self, entry: Entry) -> list[WireEvent]:
        """Return the chunks for an entry of a subagent."""
        id = entry.execution_id
        if id in self._cut_off:
            return []
        start = [] if id in self._parts else self._begin_part(entry)
        part = self._parts.get(id)
        return [] if part is None else [*start, *self._translate(entry, part)]

    def cut_off(self) -> list[WireEvent]:
        """End the running subagents: their step begins again without them."""
        under_way = BroadcastStatus.PROCESSING.value
        ids = [id for id, part in self._parts.items() if part["status"] == under_way]
        self._cut_off.update(ids)
        ended = BroadcastStatus.CANCELLED.value
        return [chunk for id in ids for chunk in self._change_part(id, status=ended)]

    def _translate(self, entry: Entry, part: WireEvent) -> list[WireEvent]:
        id, payload = entry.execution_id, entry.payload
        match payload:
            case StepStartedPayload():
                self._response_ids[id] = f"{id}:{payload.step_number}:0"
                return []
            case StreamChunkPayload() if payload.content:
                data = {"agent_id": part["agent_id"], "delta": sendable_text(payload.content)}
                return [{"type": "data-stepwell-subagent-text", "data": data, "transient": True}]
            case ToolStartedPayload():
                return self._tool(id, payload.tool_call_id, payload.tool_name, "running")
            case ToolCompletedPayload():
                return self._tool(id, payload.tool_call_id, payload.tool_name, _word(payload))
            case StatusPayload() if payload.status is not BroadcastStatus.PROCESSING:
                text = sendable_text(payload.last_response or "")
                ended = {"status": payload.status.value, "steps": payload.step_count}
                return self._change_part(id, text=text, **ended)
            case _:
                return []

    def _begin_part(self, entry: Entry) -> list[WireEvent]:
        payload, parent_id = entry.payload, entry.payload.parent_execution_id or ""
        parent_agent_id = self._agent_id(parent_id)
        if parent_agent_id is None:
            return []
        parent_call_ids = self._call_ids.get(parent_id, self._root_call_ids)
        self._call_ids[entry.execution_id] = CallIds()
        spawn = spawn_of(entry)
        self._parts[entry.execution_id] = sendable(
            {
                "agent_id": payload.agent_id,
                "parent_agent_id": parent_agent_id,
                "tool_call_id": parent_call_ids.newest(payload.parent_tool_call_id or ""),
                "name": payload.agent_name or "subagent",
                "prompt": spawn.prompt,
                "depth": spawn.depth,
                "status": BroadcastStatus.PROCESSING.value,
                "steps": 0,
                "tools": [],
                "text": "",
            }
        )
        return self._change_part(entry.execution_id)

    def _agent_id(self, execution_id: str) -> str | None:
        if self.root is not None and self.root[0] == execution_id:
            return self.root[1]
        part = self._parts.get(execution_id)
        return None if part is None else part["agent_id"]

    def _tool(self, id: str, call_id: str, name: str, status: str) -> list[WireEvent]:
        part, ids = self._parts[id], self._call_ids[id]
        wire_id = ids.newest(call_id)
        if status == "running" and _statuses(part).get(wire_id) != "waiting":
            wire_id = ids.of_call(call_id, self._response_ids.get(id, ""))
        others = [tool for tool in part["tools"] if tool["tool_call_id"] != wire_id]
        shown = {"tool_call_id": wire_id, "name": name, "status": status}
        return self._change_part(id, tools=[*others, sendable(shown)])

    def _change_part(self, id: str, **changes: Any) -> list[WireEvent]:
        self._parts[id] = part = {**self._parts[id], **changes}
        return [{"type": "data-stepwell-subagent", "id": part["agent_id"], "data": part}]


def _statuses(part: WireEvent) -> dict[str, str]:
    return {tool["tool_call_id"]: tool["status"] for tool in part["tools"]}


def _word(payload: ToolCompletedPayload) -> str:
    match payload.outcome:
        case ToolOutcome.PENDING:
            return "waiting"
        case ToolOutcome.BLOCKED:
            return "blocked"
        case _:
            return "completed" if payload.success else "failed"

"""Subagents in a UI message: one data part each, beside the text of the agent that spawned them."""

from typing import Any

from stepwell.broadcasting.ai_sdk.values import sendable, sendable_text
from stepwell.broadcasting.call_ids import CallIds
from stepwell.broadcasting.client_stream import Told
from stepwell.events import (
    AgentEvent,
    AgentFinished,
    AgentStepStarted,
    StreamEventReceived,
    SubagentCompleted,
    SubagentSpawning,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.journal.envelope import BroadcastStatus
from stepwell.state import ToolOutcome


class SubagentParts:
    """Translates the events about and of subagents; of other agents it tells nothing."""

    def __init__(self, root_call_ids: CallIds) -> None:
        self._parts: dict[str, Told] = {}
        self._root_call_ids = root_call_ids
        self._call_ids: dict[str, CallIds] = {}
        self._response_ids: dict[str, str] = {}
        """By agent, the id of the message that holds the calls of its step."""

    def chunks(self, event: AgentEvent) -> list[Told]:
        """What an event changes in a subagent's part."""
        match event:
            case SubagentSpawning():
                return self._spawned(event)
            case SubagentCompleted():
                done = {"status": BroadcastStatus.of(event.status).value, "steps": event.steps}
                return self._changed(event.child_agent_id, **done)
            case AgentStepStarted():
                response_id = f"{event.execution_id}:{event.step_number}:0"
                self._response_ids[event.agent_id] = response_id
                return []
            case StreamEventReceived() if event.content and event.agent_id in self._parts:
                return [_delta(event)]
            case ToolCallStarted():
                return self._tool(event.agent_id, event.call_id, event.tool, "running")
            case ToolCallCompleted():
                return self._tool(event.agent_id, event.call_id, event.tool, _word(event))
            case ToolCallBlocked():
                return self._tool(event.agent_id, event.call_id, event.tool, "blocked")
            case AgentFinished():
                text = sendable_text(event.final_response or "")
                return self._changed(event.agent_id, text=text)
            case _:
                return []

    def _spawned(self, event: SubagentSpawning) -> list[Told]:
        parent_call_ids = self._call_ids.get(event.agent_id, self._root_call_ids)
        self._call_ids[event.child_agent_id] = CallIds()
        self._parts[event.child_agent_id] = sendable(
            {
                "agent_id": event.child_agent_id,
                "parent_agent_id": event.agent_id,
                "tool_call_id": parent_call_ids.newest(event.call_id),
                "name": event.name,
                "prompt": event.prompt,
                "depth": event.depth,
                "status": BroadcastStatus.PROCESSING.value,
                "steps": 0,
                "tools": [],
                "text": "",
            }
        )
        return self._changed(event.child_agent_id)

    def _tool(self, agent_id: str, call_id: str, name: str, status: str) -> list[Told]:
        part = self._parts.get(agent_id)
        if part is None:
            return []
        ids, statuses = self._call_ids[agent_id], _statuses(part)
        wire_id = ids.newest(call_id)
        if status in ("running", "blocked") and statuses.get(wire_id) != "waiting":
            wire_id = ids.of_call(call_id, self._response_ids.get(agent_id, ""))
        others = [tool for tool in part["tools"] if tool["tool_call_id"] != wire_id]
        entry = {"tool_call_id": wire_id, "name": name, "status": status}
        return self._changed(agent_id, tools=[*others, sendable(entry)])

    def _changed(self, agent_id: str, **changes: Any) -> list[Told]:
        part = self._parts.get(agent_id)
        if part is None:
            return []
        self._parts[agent_id] = part = {**part, **changes}
        return [{"type": "data-stepwell-subagent", "id": agent_id, "data": part}]


def _statuses(part: Told) -> dict[str, str]:
    return {tool["tool_call_id"]: tool["status"] for tool in part["tools"]}


def _word(event: ToolCallCompleted) -> str:
    if event.outcome == ToolOutcome.PENDING:
        return "waiting"
    return "completed" if event.success else "failed"


def _delta(event: StreamEventReceived) -> Told:
    data = {"agent_id": event.agent_id, "delta": sendable_text(event.content)}
    return {"type": "data-stepwell-subagent-text", "data": data, "transient": True}

"""The envelopes of one execution's log, turned back into the events that they were made of: what
the translators of AG-UI and the AI SDK understand. Pure but for what it remembers of subagents.

What an envelope shortens, the arguments and results of tools, is looked up by whoever calls.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from stepwell.continuation import AgentStatus
from stepwell.events import (
    AgentEvent,
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    AgentStepStarted,
    EventSource,
    StreamEventReceived,
    SubagentCompleted,
    SubagentSpawning,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.journal.envelope import BroadcastStatus, EnvelopeType
from stepwell.messages import FinishReason, ToolCall, Usage
from stepwell.sessions.records import LoggedEvent
from stepwell.state import ToolOutcome

_BLOCKED = "Error: Blocked: "


class KnownCall(Struct, frozen=True, kw_only=True):
    """A tool call, and what came of it if that is known."""

    call: ToolCall
    has_result: bool = False
    value: Any = None


class _Agent(Struct, frozen=True, kw_only=True):
    source: EventSource
    name: str = ""
    call_id: str = ""
    parent: EventSource | None = None
    depth: int = 0


class LogEvents:
    """Reads the log of one execution and of its subagents."""

    def __init__(self, execution_id: str, agent_id: str) -> None:
        root = EventSource(agent_id=agent_id, parent_agent_id=None, execution_id=execution_id)
        self._agents = {execution_id: _Agent(source=root)}
        self._root = root
        self._open: dict[str, _Agent] = {}

    def is_of_root(self, event: LoggedEvent) -> bool:
        """Whether it is of the execution itself, not of a subagent."""
        return event.execution_id == self._root.execution_id

    def events(self, event: LoggedEvent, known: KnownCall | None) -> list[AgentEvent]:
        """What happened; nothing for other executions, and for a call of which nothing is known."""
        payload = event.payload
        begun = self._begun(event)
        agent = self._agents.get(event.execution_id or "")
        if agent is None:
            return []
        head: dict[str, Any] = {"source": agent.source, "at": event.created_at}
        match event.type:
            case EnvelopeType.STEP_STARTED:
                told: AgentEvent | None = AgentStepStarted(
                    **head,
                    step_number=payload["step_number"],
                    message_count=payload["message_count"],
                    available_tools=tuple(payload["available_tools"]),
                )
            case EnvelopeType.STEP_COMPLETED:
                told = _step_completed(head, payload)
            case EnvelopeType.STREAM_CHUNK:
                told = StreamEventReceived(
                    **head,
                    step_number=payload["step_number"],
                    content=payload["content"],
                    chunk_index=payload["chunk_index"],
                    is_complete=payload["is_complete"],
                )
            case EnvelopeType.TOOL_STARTED:
                told = None if known is None else _started(head, payload, known.call)
            case EnvelopeType.TOOL_COMPLETED:
                told = None if known is None else _completed(head, payload, known)
            case EnvelopeType.STATUS:
                return [*begun, *self._status(agent, head, payload)]
            case _:
                told = None
        return begun if told is None else [*begun, told]

    def cut_off(self, event: LoggedEvent) -> list[AgentEvent]:
        """What a step that begins anew leaves behind: subagents that will not end."""
        at, status = event.created_at, AgentStatus.CANCELLED
        cut: list[AgentEvent] = [self._ended(one, at, status, 0) for one in self._open.values()]
        self._open.clear()
        return cut

    def _begun(self, event: LoggedEvent) -> list[AgentEvent]:
        """A subagent that was not heard of before."""
        parent = self._agents.get(event.payload.get("parent_execution_id") or "")
        child_id = event.execution_id or ""
        if parent is None or child_id in self._agents:
            return []
        payload = event.payload
        source = EventSource(
            agent_id=payload["agent_id"],
            parent_agent_id=parent.source.agent_id,
            execution_id=child_id,
        )
        agent = self._agents[child_id] = self._open[child_id] = _Agent(
            source=source,
            name=payload.get("agent_name") or "subagent",
            call_id=payload.get("parent_tool_call_id") or "",
            parent=parent.source,
            depth=parent.depth + 1,
        )
        spawning = SubagentSpawning(
            source=parent.source,
            at=event.created_at,
            name=agent.name,
            prompt="",
            depth=agent.depth,
            max_depth=agent.depth,
            call_id=agent.call_id,
            child_agent_id=source.agent_id,
        )
        return [spawning]

    def _status(
        self, agent: _Agent, head: Mapping[str, Any], payload: Mapping[str, Any]
    ) -> list[AgentEvent]:
        status = BroadcastStatus(payload["status"])
        if status in (BroadcastStatus.IDLE, BroadcastStatus.PROCESSING):
            return []
        word = AgentStatus(status.value)
        told: list[AgentEvent] = []
        if word is AgentStatus.FAILED:
            error = payload.get("error_message") or payload.get("reason") or "it failed"
            steps = payload["step_count"]
            told.append(
                AgentFailed(
                    **head, status=word, steps_completed=steps, exception_type="", error=error
                )
            )
        if agent.parent is None:
            return told  # its end is told with its last state
        self._open.pop(agent.source.execution_id, None)
        told.append(_finished(head, payload, word))
        return [*told, self._ended(agent, head["at"], word, payload["step_count"])]

    def _ended(
        self, agent: _Agent, at: datetime, status: AgentStatus, steps: int
    ) -> SubagentCompleted:
        return SubagentCompleted(
            source=agent.parent or self._root,
            at=at,
            name=agent.name,
            status=status,
            steps=steps,
            usage=Usage(),
            depth=agent.depth,
            max_depth=agent.depth,
            call_id=agent.call_id,
            child_agent_id=agent.source.agent_id,
        )


def _step_completed(head: Mapping[str, Any], payload: Mapping[str, Any]) -> AgentStepCompleted:
    reason = payload.get("finish_reason")
    return AgentStepCompleted(
        **head,
        step_number=payload["step_number"],
        has_tool_calls=payload["has_tool_calls"],
        error_count=payload["errors"],
        errors=tuple(payload["error_messages"]),
        usage=Usage(),
        finish_reason=None if reason is None else FinishReason(reason),
        duration_ms=payload["duration_ms"],
    )


def _started(
    head: Mapping[str, Any], payload: Mapping[str, Any], call: ToolCall
) -> ToolCallStarted:
    return ToolCallStarted(
        **head,
        tool=payload["tool_name"],
        args=call.arguments,
        call_id=payload["tool_call_id"],
        step_number=payload["step_number"],
    )


def _completed(
    head: Mapping[str, Any], payload: Mapping[str, Any], known: KnownCall
) -> AgentEvent | None:
    call_id, error = payload["tool_call_id"], payload.get("error")
    if payload["outcome"] == ToolOutcome.BLOCKED:
        return ToolCallBlocked(
            **head,
            tool=payload["tool_name"],
            args=known.call.arguments,
            call_id=call_id,
            reason=(error or "").removeprefix(_BLOCKED),
        )
    is_waiting = payload["outcome"] == ToolOutcome.PENDING
    if not known.has_result and error is None and not is_waiting:
        return None
    return ToolCallCompleted(
        **head,
        tool=payload["tool_name"],
        call_id=call_id,
        success=payload["success"],
        error=error,
        value=known.value,
        started_at=head["at"],
        completed_at=head["at"],
        duration_ms=payload["duration_ms"],
        outcome=payload["outcome"],
    )


def _finished(
    head: Mapping[str, Any], payload: Mapping[str, Any], status: AgentStatus
) -> AgentFinished:
    return AgentFinished(
        **head,
        status=status,
        stop_reason=None,
        outcome=None,
        total_steps=payload["step_count"],
        total_usage=Usage(),
        duration_ms=0.0,
        final_response=payload.get("last_response"),
    )

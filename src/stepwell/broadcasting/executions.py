"""Which execution an event belongs to, and what of it is under way. Only the adapter uses it."""

import logging
from collections.abc import Iterator
from typing import TypedDict

from stepwell.broadcasting.envelope import BroadcastStatus
from stepwell.continuation import ContinuationOutcome
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentStepStarted,
    StreamEventReceived,
    SubagentSpawning,
    ToolCallStarted,
)

logger = logging.getLogger("stepwell.broadcasting")


class Whose(TypedDict):
    """The fields that every payload begins with."""

    agent_id: str
    parent_execution_id: str | None
    parent_tool_call_id: str | None


class TrackedExecution:
    """One execution as user interfaces see it: its id, its parent, its status, what is open."""

    def __init__(
        self,
        id: str,
        *,
        agent_id: str = "",
        parent: "TrackedExecution | None" = None,
        parent_tool_call_id: str | None = None,
    ) -> None:
        self.id = id
        """As it is broadcast."""
        self.agent_id = agent_id
        self.parent = parent
        self.parent_tool_call_id = parent_tool_call_id
        self.children: list[TrackedExecution] = []
        self.status = BroadcastStatus.IDLE
        self.steps = 0
        """How many are completed."""
        self.step_number = 1
        """Of the step in flight."""
        self.outcome: ContinuationOutcome | None = None
        self.open_calls: dict[str, ToolCallStarted] = {}
        self.given_up_calls: set[str] = set()
        """Calls that were told as completed without a result; one that comes late is not told."""
        self.open_text: StreamEventReceived | None = None
        """The newest chunk of a response that is not complete."""

    @property
    def whose(self) -> Whose:
        """Whose payload it is."""
        return {
            "agent_id": self.agent_id,
            "parent_execution_id": None if self.parent is None else self.parent.id,
            "parent_tool_call_id": self.parent_tool_call_id,
        }

    def unfinished(self, call_id: str | None = None) -> Iterator["TrackedExecution"]:
        """Its subagents that have no terminal status; with a call, those that it still runs."""
        for child in self.children:
            if child.status.is_terminal:
                continue
            is_wanted = call_id is None or (
                child.parent_tool_call_id == call_id and child.status is not BroadcastStatus.PAUSED
            )
            if is_wanted:
                yield child


class Executions:
    """The one execution that an adapter serves, with its subagents and theirs.

    The first root execution that is heard to begin is the one; others on the same bus, and their
    subagents, are strangers.
    """

    def __init__(self, root_id: str) -> None:
        self.root = TrackedExecution(root_id)
        self._known: dict[str, TrackedExecution] = {}
        self._spawned: dict[str, tuple[TrackedExecution, str]] = {}
        self._strangers: set[str] = set()

    def of(self, event: AgentEvent) -> TrackedExecution | None:
        """The execution the event belongs to; None for strangers."""
        known = self._known.get(event.execution_id)
        if known is not None:
            return known
        if event.parent_agent_id is not None:
            return self._child(event)
        if not isinstance(event, AgentExecutionStarted | AgentStepStarted):
            return None
        if self._known:
            self._tell_of_stranger(event)
            return None
        self.root.agent_id = event.agent_id
        self._known[event.execution_id] = self.root
        return self.root

    def note_spawning(self, event: SubagentSpawning) -> None:
        """Whose subagent it will be that begins next, and for which call."""
        parent = self.of(event)
        if parent is not None:
            self._spawned[event.child_agent_id] = (parent, event.call_id)
        elif any(known.agent_id == event.agent_id for known in self._known.values()):
            # The same state runs twice at once; only the call tells the subagents apart.
            self._strangers.add(event.child_agent_id)

    def _child(self, event: AgentEvent) -> TrackedExecution | None:
        parent, call_id = self._spawned.get(event.agent_id) or (self._parent_by_agent(event), None)
        if parent is None:
            return None
        child = TrackedExecution(
            event.execution_id,
            agent_id=event.agent_id,
            parent=parent,
            parent_tool_call_id=call_id,
        )
        parent.children.append(child)
        self._known[event.execution_id] = child
        return child

    def _parent_by_agent(self, event: AgentEvent) -> TrackedExecution | None:
        """For those who don't listen to spawning: the parent is known, its call is not."""
        if event.agent_id in self._strangers:
            return None
        known = self._known.values()
        return next((one for one in known if one.agent_id == event.parent_agent_id), None)

    def _tell_of_stranger(self, event: AgentEvent) -> None:
        if isinstance(event, AgentExecutionStarted) and self.root.status.is_terminal:
            logger.info(
                "execution %s is not broadcast: the adapter served %s; call reset() before the "
                "next run",
                event.execution_id,
                self.root.id,
            )

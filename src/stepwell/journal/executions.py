"""Finds the execution of an event, and tracks what is open in it. For the projector only."""

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, TypedDict

from stepwell.continuation import ContinuationOutcome
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentStepStarted,
    StreamEventReceived,
    SubagentSpawning,
    ToolCallStarted,
)
from stepwell.journal.envelope import Spawn, StatusPayload
from stepwell.journal.status import BroadcastStatus

logger = logging.getLogger("stepwell.broadcasting")


class Whose(TypedDict):
    """The fields that every payload begins with."""

    agent_id: str
    agent_name: str | None
    parent_execution_id: str | None
    parent_tool_call_id: str | None


class TrackedExecution:
    """One execution as user interfaces see it: its id, its parent, its status, what is open."""

    def __init__(
        self,
        id: str,
        *,
        agent_id: str = "",
        agent_name: str | None = None,
        parent: "TrackedExecution | None" = None,
        parent_tool_call_id: str | None = None,
        spawn: Spawn | None = None,
    ) -> None:
        self.id = id
        """The id in envelopes."""
        self.agent_id = agent_id
        self.agent_name = agent_name
        self.parent = parent
        self.parent_tool_call_id = parent_tool_call_id
        self.spawn = spawn
        """How it was spawned, until its first entry."""
        self.children: list[TrackedExecution] = []
        self.status = BroadcastStatus.IDLE
        self.steps = 0
        """The number of completed steps."""
        self.step_number = 1
        """The number of the current step."""
        self.outcome: ContinuationOutcome | None = None
        self.open_calls: dict[str, ToolCallStarted] = {}
        self.given_up_calls: set[str] = set()
        """Calls published as completed without a result; a late result is not published."""
        self.open_text: StreamEventReceived | None = None
        """The newest chunk of a response that is not complete."""
        self.unsent_end: tuple[StatusPayload, datetime] | None = None
        """The status that the last decision leads to, until an end event."""

    @property
    def whose(self) -> Whose:
        """The fields that say whose payload it is."""
        return {
            "agent_id": self.agent_id,
            "agent_name": self.agent_name,
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

    It is the first root execution that begins; others on the same bus are ignored.
    """

    def __init__(self, root_id: str | None) -> None:
        """Without an id, the root has the id of its events."""
        self.root = TrackedExecution(root_id or "")
        self.only_agent_id: str | None = None
        """The only agent to serve; None for any."""
        self.hears_beginnings = False
        """Whether the start of an execution is an event here. If so, a step without it belongs to a
        run that had begun before, perhaps another user's; if not, the first step starts one."""
        self._newest: AgentEvent | None = None
        self._known: dict[str, TrackedExecution] = {}
        self._earlier: frozenset[str] = frozenset()
        self._spawned: dict[str, _Spawned] = {}
        self._strangers: set[str] = set()
        self._has_warned = False

    def start_over(self, root_id: str) -> None:
        """Forget the execution, and serve the next one under this id."""
        self.root = TrackedExecution(root_id)
        if self._known:  # else it was reset before without a run since
            self._earlier = frozenset(self._known)
        self._known = {}
        self._spawned = {}
        self._strangers = set()
        self._has_warned = False

    def of(self, event: AgentEvent) -> TrackedExecution | None:
        """Return the execution of the event; None for others, and for an event that came before, as
        from a wiretap and a single handler."""
        if event is self._newest:
            return None
        self._newest = event
        known = self._known.get(event.execution_id)
        if known is not None:
            return known
        if event.execution_id in self._earlier and not isinstance(event, AgentExecutionStarted):
            return None  # it continues although nobody follows it
        if event.parent_agent_id is not None:
            return self._child(event)
        if not self._begins(event):
            return None
        if self._known:
            self._warn_of_other_execution(event)
            return None
        self.root.agent_id = event.agent_id
        self.root.id = self.root.id or event.execution_id
        self._known[event.execution_id] = self.root
        return self.root

    def find(self, event: AgentEvent) -> TrackedExecution | None:
        """Return the execution of the event, if it is known."""
        return self._known.get(event.execution_id)

    def all(self) -> tuple[TrackedExecution, ...]:
        """Return the known executions: the root, its subagents and theirs."""
        return tuple(self._known.values())

    def note_spawning(self, event: SubagentSpawning) -> None:
        """Note the parent and the call of the subagent that begins next."""
        if event is self._newest:
            return
        parent = self.of(event)
        if parent is not None:
            spawn = Spawn(prompt=event.prompt, depth=event.depth)
            spawned = _Spawned(parent, event.call_id, event.name, spawn)
            self._spawned[event.child_agent_id] = spawned
        elif any(known.agent_id == event.agent_id for known in self._known.values()):
            # The same state runs twice at once; only the call distinguishes the subagents.
            self._strangers.add(event.child_agent_id)

    def _begins(self, event: AgentEvent) -> bool:
        if self.only_agent_id not in (None, event.agent_id):
            return False
        if isinstance(event, AgentStepStarted):
            return not self.hears_beginnings
        return isinstance(event, AgentExecutionStarted)

    def _child(self, event: AgentEvent) -> TrackedExecution | None:
        unheard = _Spawned(self._parent_by_agent(event), None, None)
        spawned = self._spawned.get(event.agent_id, unheard)
        if spawned.parent is None:
            return None
        child = TrackedExecution(
            event.execution_id,
            agent_id=event.agent_id,
            agent_name=spawned.name,
            parent=spawned.parent,
            parent_tool_call_id=spawned.call_id,
            spawn=spawned.spawn,
        )
        spawned.parent.children.append(child)
        self._known[event.execution_id] = child
        return child

    def _parent_by_agent(self, event: AgentEvent) -> TrackedExecution | None:
        """Return the parent for listeners without the spawning event; its call is unknown."""
        if event.agent_id in self._strangers:
            return None
        known = self._known.values()
        return next((one for one in known if one.agent_id == event.parent_agent_id), None)

    def _warn_of_other_execution(self, event: AgentEvent) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        logger.warning(
            "execution %s is not broadcast: the adapter serves %s; call reset() before its next "
            "run, and where several runs share an agent, give each its own adapter with "
            "agent.wiretap(adapter.wiretap(state))",
            event.execution_id,
            self.root.id,
        )


class _Spawned(NamedTuple):
    parent: TrackedExecution | None
    call_id: str | None
    name: str | None
    spawn: Spawn | None = None

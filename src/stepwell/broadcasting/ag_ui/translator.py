"""The events of a run as AG-UI events (protocol 1.0): plain dicts, in the order its client checks.

Pure: it is told what happened and returns what to send. ``stream.py`` runs an agent with it.
"""

from collections.abc import Iterable

from stepwell.broadcasting.ag_ui.ending import STOP_EVENT, stop_value, terminal_event
from stepwell.broadcasting.ag_ui.messages import ADDED_RESULT, waiting_note, wire_messages
from stepwell.broadcasting.ag_ui.speaker import Speaker
from stepwell.broadcasting.client_stream import Told
from stepwell.continuation import AgentStatus
from stepwell.events import (
    AgentEvent,
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    AgentStepStarted,
    InferenceResponseReceived,
    StreamEventReceived,
    SubagentCompleted,
    SubagentSpawning,
    ThinkingReceived,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallProgressed,
    ToolCallStarted,
)
from stepwell.messages import Message, Usage
from stepwell.state import AgentState, ToolOutcome
from stepwell.tools.formatting import as_text

PROTOCOL_VERSION = "1.0"


class AgUiTranslator:
    """Turns one run into AG-UI events.

    Call ``start`` with the state that is run, ``events`` with each event of the run and of its
    subagents, ``step`` with the state after each step, and ``finish`` with the result.

    >>> state = AgentState.empty().with_user_message("Hello")
    >>> [event["type"] for event in AgUiTranslator("thread", "run").start(state)]
    ['RUN_STARTED', 'MESSAGES_SNAPSHOT']
    """

    def __init__(self, thread_id: str, run_id: str) -> None:
        self._run = {"threadId": thread_id, "runId": run_id}
        self._root = Speaker()
        self._speakers: dict[str, Speaker] = {}
        self._resumed: frozenset[str] = frozenset()
        self._settled = 0
        self._begun: AgentState | None = None
        self._is_open = False

    def start(self, state: AgentState, /) -> list[Told]:
        """RUN_STARTED, and the conversation as it is stored, so that ids agree from here on."""
        begun = self._started()
        self._begun = state
        self._speakers[state.agent_id] = self._root
        messages = list(state.messages)
        self._root.know(messages)
        self._settled = len(messages)
        self._resumed = frozenset(answered.call.id for answered in state.answered)
        if messages:
            # A client puts a result behind its call, but what else is new at the end of its list.
            begun += [_added(m, wire) for m, wire in _wired(messages) if m.metadata == ADDED_RESULT]
            begun.append(_snapshot(state))
        return begun

    def events(self, event: AgentEvent, /) -> list[Told]:
        """What to send for one event; nothing for those of agents that are not of this run."""
        begun = [] if self._is_open else self._started()
        if not self._speakers:
            self._speakers[event.agent_id] = self._root
        speaker = self._speakers.get(event.agent_id)
        if speaker is None:
            return begun
        at = int(event.at.timestamp() * 1000)
        told = self._told(event, speaker)
        return [*begun, *({**wire, "timestamp": at} for wire in told)]

    def step(self, state: AgentState, /) -> list[Told]:
        """What the history got in a step beside what was told: calls that were never started,
        messages of hooks. A list that can't be made right by adding is sent whole."""
        caught_up = [*self._root.step_finished(), *self._caught_up(state)]
        changed_before, self._resumed = bool(self._resumed), frozenset()
        told, stored = self._root.told, state.messages
        if changed_before or len(told) != len(stored) or not self._is_settled(state):
            caught_up += self._whole(state)
        self._settled = len(stored)
        return caught_up

    def finish(self, state: AgentState, /) -> list[Told]:
        """The end: all that is open is closed, the history as it is stored, and why it ended."""
        begun = [] if self._is_open else self._started()
        closed = [e for s in self._below(self._root) for e in self._cut_off(s)]
        caught_up = [*self._root.step_finished(), *self._caught_up(state)]
        ending = terminal_event(
            state, run=self._run, error=self._root.answer, used=self._used(state)
        )
        stop = self._root.tells(STOP_EVENT, stop_value(state))
        return [*begun, *closed, *caught_up, *self._whole(state), stop, ending]

    def fail(self, message: str, code: str, /) -> list[Told]:
        """The end of a run that has no result at all."""
        begun = [] if self._is_open else self._started()
        return [*begun, {"type": "RUN_ERROR", "message": message, "code": code}]

    # Events

    def _told(self, event: AgentEvent, speaker: Speaker) -> list[Told]:
        match event:
            case AgentStepStarted():
                return speaker.step_started(event.step_number)
            case StreamEventReceived():
                message_id = f"{event.execution_id}:{event.step_number}:0"
                said = speaker.says(message_id, event.content) if event.content else []
                return [*said, *speaker.quiet()] if event.is_complete else said
            case ThinkingReceived():
                message_id = f"{event.execution_id}:{event.step_number}:0"
                return speaker.thinks(message_id, event.content)
            case InferenceResponseReceived():
                return speaker.quiet()
            case AgentStepCompleted():
                return speaker.step_finished()
            case AgentFailed():
                speaker.answer = event.error
                return []
            case AgentFinished():
                if event.status is not AgentStatus.FAILED:
                    speaker.answer = event.final_response or ""
                return []
            case SubagentSpawning():
                return self._spawned(event, speaker)
            case SubagentCompleted():
                return self._ended(event)
            case _:
                return self._told_of_call(event, speaker)

    def _told_of_call(self, event: AgentEvent, speaker: Speaker) -> list[Told]:
        prefix = f"{event.execution_id}:{speaker.step_number}"
        message_id = f"{prefix}:0"
        match event:
            case ToolCallStarted() if not self._runs_again(event.call_id, speaker):
                return speaker.calls(event.tool, event.call_id, message_id, event.args)
            case ToolCallBlocked() if not self._runs_again(event.call_id, speaker):
                called = speaker.calls(event.tool, event.call_id, message_id, event.args)
                why = f"Error: Blocked: {event.reason}"
                return [*called, *speaker.gets(event.call_id, why, prefix)]
            case ToolCallCompleted() if not self._runs_again(event.call_id, speaker):
                if event.outcome == ToolOutcome.PENDING:
                    return []  # It waits for a person; what is shown for it comes with the state.
                content = as_text(event.value) if event.error is None else event.error
                if event.note and event.error is None:
                    content += f"\n\n{event.note}"
                return speaker.gets(event.call_id, content, prefix)
            case ToolCallProgressed():
                progress = {
                    "toolCallId": speaker.call_ids.newest(event.call_id),
                    "message": event.message,
                    "fraction": event.fraction,
                }
                return [speaker.tells("stepwell.progress", progress)]
            case _:
                return []

    def _runs_again(self, call_id: str, speaker: Speaker) -> bool:
        """A call that waited is on the client's side already, with a result that says so; a second
        result would double it. The snapshot after the step brings the new one."""
        return speaker is self._root and call_id in self._resumed

    # Subagents

    def _spawned(self, event: SubagentSpawning, parent: Speaker) -> list[Told]:
        child = self._speakers[event.child_agent_id] = Speaker(event.child_agent_id)
        started = {
            "type": "SUBAGENT_STARTED",
            "subagentRunId": event.child_agent_id,
            "name": event.name,
            "description": event.prompt,
            "parentToolCallId": parent.call_ids.newest(event.call_id),
        }
        child.is_open = True
        if parent is not self._root:
            started["parentSubagentRunId"] = event.agent_id
        return [started]

    def _ended(self, event: SubagentCompleted) -> list[Told]:
        child = self._speakers.get(event.child_agent_id)
        if child is None or not child.is_open:
            return []
        child.is_open = False
        named = {"subagentRunId": event.child_agent_id}
        closed = child.step_finished()
        match event.status:
            case AgentStatus.FAILED | AgentStatus.CANCELLED:
                why = child.answer or f"the subagent ended as {event.status}"
                error = {"type": "SUBAGENT_ERROR", **named, "message": why}
                return [*closed, {**error, "code": event.status.value}]
            case AgentStatus.PAUSED:
                outcome = {"type": "suspended"}
            case _:
                outcome = {"type": "success"}
        finished: Told = {"type": "SUBAGENT_FINISHED", **named, "outcome": outcome}
        return [*closed, {**finished, "result": child.answer} if child.answer else finished]

    def _below(self, root: Speaker) -> Iterable[tuple[str, Speaker]]:
        return [(id, s) for id, s in self._speakers.items() if s is not root and s.is_open]

    def _cut_off(self, named: tuple[str, Speaker]) -> list[Told]:
        subagent_run_id, child = named
        child.is_open = False
        error = {"type": "SUBAGENT_ERROR", "subagentRunId": subagent_run_id}
        return [*child.step_finished(), {**error, "message": "the subagent was cut off"}]

    # The history

    def _caught_up(self, state: AgentState) -> list[Told]:
        """Events for what the newest messages hold and nobody told."""
        events: list[Told] = []
        waiting = {pending.call_id for pending in state.pending}
        last_said = ""
        for message in state.messages[self._settled :]:
            result = message.tool_result
            if result is not None:
                note = waiting_note() if result.call_id in waiting else None
                prefix = last_said.removesuffix(":0")
                events += self._root.gets(result.call_id, result.content, prefix, note)
                continue
            if not self._root.knows(message.id) and (message.text or not message.tool_calls):
                events += self._root.says(message.id, message.text, message.role)
                events += self._root.quiet()
            for call in message.tool_calls:
                events += self._root.calls(call.name, call.id, message.id, call.arguments)
            last_said = message.id
        return events

    def _is_settled(self, state: AgentState) -> bool:
        """Whether the newest messages are where the client has them."""
        start = max(0, self._settled - 1)
        newest = [message.id for message in state.messages[start:]]
        return self._root.told[start:] == newest

    def _whole(self, state: AgentState) -> list[Told]:
        """The history as it is stored. A client keeps what it has in its place and puts what is
        new at the end; if that would not give the order of the history, its list is emptied."""
        stored = [message.id for message in state.messages]
        known = set(stored)
        kept = [id for id in self._root.told if id in known]
        already = set(kept)
        would_be = [*kept, *(id for id in stored if id not in already)]
        self._root.has_now(stored)
        if would_be == stored:
            return [_snapshot(state)]
        return [_snapshot(state.with_messages(())), _snapshot(state)]

    def _used(self, state: AgentState) -> Usage:
        """What this run used, of what its execution used."""
        before = None if self._begun is None else self._begun.execution
        if self._begun is None or before is None or state.execution is None:
            return state.usage
        is_same = before.id == state.execution.id
        return state.usage - self._begun.usage if is_same else state.usage

    def _started(self) -> list[Told]:
        self._is_open = True
        return [{"type": "RUN_STARTED", **self._run, "protocolVersion": PROTOCOL_VERSION}]


def _snapshot(state: AgentState) -> Told:
    waiting = {pending.call_id for pending in state.pending if pending.call_id is not None}
    return {"type": "MESSAGES_SNAPSHOT", "messages": wire_messages(state.messages, waiting)}


def _wired(messages: list[Message]) -> Iterable[tuple[Message, Told]]:
    return zip(messages, wire_messages(messages), strict=True)


def _added(message: Message, wire: Told) -> Told:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": message.id,
        "toolCallId": wire["toolCallId"],
        "content": wire["content"],
        "role": "tool",
    }

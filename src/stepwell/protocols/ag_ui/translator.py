"""The entries of a run as AG-UI events (protocol 1.0): plain dicts, in the order its client checks.

Pure: it is given entries and states and returns what to send. ``stream.py`` runs an agent with it,
and the app server gives it what is stored.
"""

from collections.abc import Iterable

from stepwell.journal import Entry
from stepwell.journal.envelope import (
    StatusPayload,
    StepCompletedPayload,
    StepStartedPayload,
    StreamChunkPayload,
    ThinkingPayload,
    ToolCompletedPayload,
    ToolProgressPayload,
    ToolStartedPayload,
)
from stepwell.journal.status import BroadcastStatus
from stepwell.messages import Message, Usage
from stepwell.protocols.ag_ui.ending import STOP_EVENT, stop_value, terminal_event
from stepwell.protocols.ag_ui.messages import ADDED_RESULT, waiting_note, wire_messages
from stepwell.protocols.ag_ui.speaker import Speaker
from stepwell.protocols.client_stream import WireEvent
from stepwell.protocols.entries import call_arguments, call_value, spawn_of
from stepwell.state import AgentState, ToolOutcome
from stepwell.tools.formatting import as_text

PROTOCOL_VERSION = "1.0"


class AgUiTranslator:
    """Turns one run into AG-UI events.

    Call ``start`` with the state that is run, ``translate`` with each entry of the run and of its
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
        self._cut_off_ids: set[str | None] = set()
        """Subagents of a step that began again."""
        self._is_open = False

    def start(self, state: AgentState, /) -> list[WireEvent]:
        """RUN_STARTED, and the conversation as it is stored, so that ids agree from here on."""
        self._begun = state
        return [*self._started(), *self._begin_with(state)]

    def restart(self, state: AgentState, /) -> list[WireEvent]:
        """The open step is closed, and the client's list is again what is stored."""
        closed = [*self._cut_off_subagents(), *self._root.step_finished()]
        self._root, self._speakers = Speaker(), {}
        return [*closed, *self._begin_with(state)]

    def _begin_with(self, state: AgentState) -> list[WireEvent]:
        messages = list(state.messages)
        self._root.know(messages)
        self._settled = len(messages)
        self._resumed = frozenset(answered.call.id for answered in state.answered)
        if not messages:
            return []
        # A client puts a result behind its call, but what else is new at the end of its list.
        added = [_added(m, wire) for m, wire in _wired(messages) if m.metadata == ADDED_RESULT]
        return [*added, _snapshot(state)]

    def translate(self, entry: Entry, /) -> list[WireEvent]:
        """What to send for one entry; nothing for those of agents that are not of this run."""
        begun = [] if self._is_open else self._started()
        known = self._speakers.get(entry.execution_id)
        if known is not None:
            told = self._translate(entry, known)
        elif entry.payload.parent_execution_id is None:
            self._speakers[entry.execution_id] = self._root
            told = self._translate(entry, self._root)
        else:
            told = self._begin_subagent(entry)
        at = int(entry.at.timestamp() * 1000)
        return [*begun, *({**wire, "timestamp": at} for wire in told)]

    def step(self, state: AgentState, /) -> list[WireEvent]:
        """What the history got in a step beside what was told: calls that were never started,
        messages of hooks. A list that can't be made right by adding is sent whole."""
        caught_up = [*self._root.step_finished(), *self._caught_up(state)]
        changed_before, self._resumed = bool(self._resumed), frozenset()
        told, stored = self._root.told, state.messages
        if changed_before or len(told) != len(stored) or not self._is_settled(state):
            caught_up += self._whole(state)
        self._settled = len(stored)
        return caught_up

    def finish(self, state: AgentState, /) -> list[WireEvent]:
        """The end: all that is open is closed, the history as it is stored, and why it ended."""
        begun = [] if self._is_open else self._started()
        closed = self._cut_off_subagents()
        caught_up = [*self._root.step_finished(), *self._caught_up(state)]
        ending = terminal_event(
            state, run=self._run, error=self._root.answer, used=self._used(state)
        )
        stop = self._root.tells(STOP_EVENT, stop_value(state))
        return [*begun, *closed, *caught_up, *self._whole(state), stop, ending]

    def fail(self, message: str, code: str, /) -> list[WireEvent]:
        """The end of a run that has no result at all."""
        begun = [] if self._is_open else self._started()
        return [*begun, {"type": "RUN_ERROR", "message": message, "code": code}]

    # Entries

    def _translate(self, entry: Entry, speaker: Speaker) -> list[WireEvent]:
        message_id = f"{entry.execution_id}:{speaker.step_number}:0"
        match entry.payload:
            case StepStartedPayload(step_number=number):
                return speaker.step_started(number)
            case StreamChunkPayload() as payload:
                response_id = f"{entry.execution_id}:{payload.step_number}:0"
                said = speaker.says(response_id, payload.content) if payload.content else []
                return [*said, *speaker.quiet()] if payload.is_complete else said
            case ThinkingPayload() as payload:
                response_id = f"{entry.execution_id}:{payload.step_number}:0"
                return speaker.thinks(response_id, payload.content)
            case StepCompletedPayload():
                return speaker.step_finished()
            case StatusPayload() as payload:
                return self._change_status(payload, speaker)
            case ToolStartedPayload() as payload:
                if self._runs_again(payload.tool_call_id, speaker):
                    return []
                args = call_arguments(entry)
                return speaker.calls(payload.tool_name, payload.tool_call_id, message_id, args)
            case ToolCompletedPayload() as payload:
                return self._complete_call(entry, payload, speaker)
            case ToolProgressPayload() as payload:
                progress = {
                    "toolCallId": speaker.call_ids.newest(payload.tool_call_id),
                    "message": payload.message,
                    "fraction": payload.fraction,
                }
                return [speaker.tells("stepwell.progress", progress)]
            case _:
                return []

    def _complete_call(
        self, entry: Entry, payload: ToolCompletedPayload, speaker: Speaker
    ) -> list[WireEvent]:
        if payload.outcome is ToolOutcome.PENDING:
            return []  # It waits for a person; what is shown for it comes with the state.
        if speaker is self._root and payload.outcome is ToolOutcome.CANCELLED:
            return []  # What a call that was cut off came to is said by the state.
        if self._runs_again(payload.tool_call_id, speaker):
            return []
        content = payload.error
        if content is None:
            content = as_text(call_value(entry))
            if payload.note:
                content += f"\n\n{payload.note}"
        prefix = f"{entry.execution_id}:{speaker.step_number}"
        return speaker.gets(payload.tool_call_id, content, prefix)

    def _runs_again(self, call_id: str, speaker: Speaker) -> bool:
        """A call that waited is on the client's side already, with a result that says so; a second
        result would double it. The snapshot after the step brings the new one."""
        return speaker is self._root and call_id in self._resumed

    def _change_status(self, payload: StatusPayload, speaker: Speaker) -> list[WireEvent]:
        match payload.status:
            case BroadcastStatus.IDLE | BroadcastStatus.PROCESSING:
                return []
            case BroadcastStatus.FAILED:
                speaker.answer = payload.error_message or ""
            case _:
                speaker.answer = payload.last_response or ""
        return [] if speaker is self._root else self._end_subagent(payload.status, speaker)

    # Subagents

    def _begin_subagent(self, entry: Entry) -> list[WireEvent]:
        payload = entry.payload
        parent = self._speakers.get(payload.parent_execution_id or "")
        if parent is None or payload.agent_id in self._cut_off_ids:
            return []
        child = self._speakers[entry.execution_id] = Speaker(payload.agent_id)
        started = {
            "type": "SUBAGENT_STARTED",
            "subagentRunId": payload.agent_id,
            "name": payload.agent_name or "subagent",
            "description": spawn_of(entry).prompt,
            "parentToolCallId": parent.call_ids.newest(payload.parent_tool_call_id or ""),
        }
        if parent.run_id is not None:
            started["parentSubagentRunId"] = parent.run_id
        return [started, *self._translate(entry, child)]

    def _end_subagent(self, status: BroadcastStatus, child: Speaker) -> list[WireEvent]:
        if not child.is_open:
            return []
        child.is_open = False
        named = {"subagentRunId": child.run_id}
        closed = child.step_finished()
        match status:
            case BroadcastStatus.FAILED | BroadcastStatus.CANCELLED:
                why = child.answer or f"the subagent ended as {status}"
                error = {"type": "SUBAGENT_ERROR", **named, "message": why}
                return [*closed, {**error, "code": status.value}]
            case BroadcastStatus.PAUSED:
                outcome = {"type": "suspended"}
            case _:
                outcome = {"type": "success"}
        finished: WireEvent = {"type": "SUBAGENT_FINISHED", **named, "outcome": outcome}
        return [*closed, {**finished, "result": child.answer} if child.answer else finished]

    def _cut_off_subagents(self) -> list[WireEvent]:
        """End those that are still open: no entry will."""
        events: list[WireEvent] = []
        for child in self._speakers.values():
            if child is self._root or not child.is_open:
                continue
            child.is_open = False
            self._cut_off_ids.add(child.run_id)
            error = {"type": "SUBAGENT_ERROR", "subagentRunId": child.run_id}
            events += [*child.step_finished(), {**error, "message": "the subagent was cut off"}]
        return events

    # The history

    def _caught_up(self, state: AgentState) -> list[WireEvent]:
        """Events for what the newest messages hold and nobody told."""
        events: list[WireEvent] = []
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

    def _whole(self, state: AgentState) -> list[WireEvent]:
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

    def _started(self) -> list[WireEvent]:
        self._is_open = True
        return [{"type": "RUN_STARTED", **self._run, "protocolVersion": PROTOCOL_VERSION}]


def _snapshot(state: AgentState) -> WireEvent:
    waiting = {pending.call_id for pending in state.pending if pending.call_id is not None}
    return {"type": "MESSAGES_SNAPSHOT", "messages": wire_messages(state.messages, waiting)}


def _wired(messages: list[Message]) -> Iterable[tuple[Message, WireEvent]]:
    return zip(messages, wire_messages(messages), strict=True)


def _added(message: Message, wire: WireEvent) -> WireEvent:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": message.id,
        "toolCallId": wire["toolCallId"],
        "content": wire["content"],
        "role": "tool",
    }

"""Translates the entries of a run into AG-UI events (protocol 1.0), in the order its client checks.

Pure: it takes entries and states and returns plain dicts to send. ``stream.py`` runs an agent with
it; the app server passes it what is stored.
"""

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
from stepwell.protocols.ag_ui.messages import ADDED_RESULT, waiting_note, wire_messages
from stepwell.protocols.ag_ui.run_end import STOP_EVENT, stop_value, terminal_event
from stepwell.protocols.ag_ui.speaker import Speaker
from stepwell.protocols.client_stream import WireEvent
from stepwell.protocols.entries import call_arguments, call_value, spawn_of
from stepwell.state import AgentState, ToolOutcome
from stepwell.tools.result_text import as_text

PROTOCOL_VERSION = "1.0"


class AgUiTranslator:
    """Translates one run into AG-UI events.

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
        self._first_state: AgentState | None = None
        self._cut_off_ids: set[str | None] = set()
        """Subagents of a step that began again."""
        self._is_open = False

    def start(self, state: AgentState, /) -> list[WireEvent]:
        """Return RUN_STARTED and the stored conversation, so that ids agree from here on."""
        self._first_state = state
        return [*self._start_run(), *self._begin_with(state)]

    def restart(self, state: AgentState, /) -> list[WireEvent]:
        """Close the open step and reset the client's list to what is stored."""
        closed = [*self._cut_off_subagents(), *self._root.finish_step()]
        self._root, self._speakers = Speaker(), {}
        return [*closed, *self._begin_with(state)]

    def _begin_with(self, state: AgentState) -> list[WireEvent]:
        messages = list(state.messages)
        self._root.learn_messages(messages)
        self._settled = len(messages)
        self._resumed = frozenset(answered.call.id for answered in state.answered)
        if not messages:
            return []
        # A client inserts a result after its call, and appends everything else that is new.
        wires = zip(messages, wire_messages(messages), strict=True)
        added = [_result_event(m, wire) for m, wire in wires if m.metadata == ADDED_RESULT]
        return [*added, _snapshot(state)]

    def translate(self, entry: Entry, /) -> list[WireEvent]:
        """Return what to send for an entry; nothing for agents that are not part of this run."""
        start = [] if self._is_open else self._start_run()
        known = self._speakers.get(entry.execution_id)
        if known is not None:
            events = self._translate(entry, known)
        elif entry.payload.parent_execution_id is None:
            self._speakers[entry.execution_id] = self._root
            events = self._translate(entry, self._root)
        else:
            events = self._begin_subagent(entry)
        at = int(entry.at.timestamp() * 1000)
        return [*start, *({**wire, "timestamp": at} for wire in events)]

    def step(self, state: AgentState, /) -> list[WireEvent]:
        """Return what a step added to the history without an event: calls that never started,
        messages of hooks. A list that appending can't fix is sent as a snapshot."""
        caught_up = [*self._root.finish_step(), *self._catch_up(state)]
        changed_before, self._resumed = bool(self._resumed), frozenset()
        stored = state.messages
        if (
            changed_before
            or len(self._root.message_ids) != len(stored)
            or not self._is_settled(state)
        ):
            caught_up += self._snapshot_events(state)
        self._settled = len(stored)
        return caught_up

    def finish(self, state: AgentState, /) -> list[WireEvent]:
        """Close what is open, and return the stored history and why the run ended."""
        start = [] if self._is_open else self._start_run()
        closed = self._cut_off_subagents()
        caught_up = [*self._root.finish_step(), *self._catch_up(state)]
        ending = terminal_event(
            state, run=self._run, error=self._root.answer, used=self._usage_of_run(state)
        )
        stop = self._root.custom_event(STOP_EVENT, stop_value(state))
        return [*start, *closed, *caught_up, *self._snapshot_events(state), stop, ending]

    def fail(self, message: str, code: str, /) -> list[WireEvent]:
        """Return the end of a run that has no result."""
        start = [] if self._is_open else self._start_run()
        return [*start, {"type": "RUN_ERROR", "message": message, "code": code}]

    # Entries

    def _translate(self, entry: Entry, speaker: Speaker) -> list[WireEvent]:
        message_id = f"{entry.execution_id}:{speaker.step_number}:0"
        match entry.payload:
            case StepStartedPayload(step_number=number):
                return speaker.start_step(number)
            case StreamChunkPayload() as payload:
                response_id = f"{entry.execution_id}:{payload.step_number}:0"
                said = speaker.say(response_id, payload.content) if payload.content else []
                return [*said, *speaker.close_text()] if payload.is_complete else said
            case ThinkingPayload() as payload:
                response_id = f"{entry.execution_id}:{payload.step_number}:0"
                return speaker.think(response_id, payload.content)
            case StepCompletedPayload():
                return speaker.finish_step()
            case StatusPayload() as payload:
                return self._change_status(payload, speaker)
            case ToolStartedPayload() as payload:
                if self._runs_again(payload.tool_call_id, speaker):
                    return []
                args = call_arguments(entry)
                return speaker.call(payload.tool_name, payload.tool_call_id, message_id, args)
            case ToolCompletedPayload() as payload:
                return self._complete_call(entry, payload, speaker)
            case ToolProgressPayload() as payload:
                progress = {
                    "toolCallId": speaker.call_ids.newest(payload.tool_call_id),
                    "message": payload.message,
                    "fraction": payload.fraction,
                }
                return [speaker.custom_event("stepwell.progress", progress)]
            case _:
                return []

    def _complete_call(
        self, entry: Entry, payload: ToolCompletedPayload, speaker: Speaker
    ) -> list[WireEvent]:
        if payload.outcome is ToolOutcome.PENDING:
            return []  # it waits for a person; the state shows it
        if speaker is self._root and payload.outcome is ToolOutcome.CANCELLED:
            return []  # the state says how a call that was cut off ended
        if self._runs_again(payload.tool_call_id, speaker):
            return []
        content = payload.error
        if content is None:
            content = as_text(call_value(entry))
            if payload.note:
                content += f"\n\n{payload.note}"
        prefix = f"{entry.execution_id}:{speaker.step_number}"
        return speaker.finish_call(payload.tool_call_id, content, prefix)

    def _runs_again(self, call_id: str, speaker: Speaker) -> bool:
        """Whether the client has the call already, with a result that says that it waits. A second
        result would duplicate it; the snapshot after the step has the new one."""
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
        closed = child.finish_step()
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
        """End the subagents that are still open: no entry will."""
        events: list[WireEvent] = []
        for child in self._speakers.values():
            if child is self._root or not child.is_open:
                continue
            child.is_open = False
            self._cut_off_ids.add(child.run_id)
            error = {"type": "SUBAGENT_ERROR", "subagentRunId": child.run_id}
            events += [*child.finish_step(), {**error, "message": "the subagent was cut off"}]
        return events

    # The history

    def _catch_up(self, state: AgentState) -> list[WireEvent]:
        """Return events for new messages that had none."""
        events: list[WireEvent] = []
        waiting = {pending.call_id for pending in state.pending}
        last_said = ""
        for message in state.messages[self._settled :]:
            result = message.tool_result
            if result is not None:
                note = waiting_note() if result.call_id in waiting else None
                prefix = last_said.removesuffix(":0")
                events += self._root.finish_call(result.call_id, result.content, prefix, note)
                continue
            if not self._root.has_message(message.id) and (message.text or not message.tool_calls):
                events += self._root.say(message.id, message.text, message.role)
                events += self._root.close_text()
            for call in message.tool_calls:
                events += self._root.call(call.name, call.id, message.id, call.arguments)
            last_said = message.id
        return events

    def _is_settled(self, state: AgentState) -> bool:
        """Whether the client has the newest messages in the same order."""
        start = max(0, self._settled - 1)
        newest = [message.id for message in state.messages[start:]]
        return self._root.message_ids[start:] == newest

    def _snapshot_events(self, state: AgentState) -> list[WireEvent]:
        """Return a snapshot of the stored history. A client keeps the order of what it has and
        appends the rest; if that would not give the stored order, its list is emptied first."""
        stored = [message.id for message in state.messages]
        known = set(stored)
        kept = [id for id in self._root.message_ids if id in known]
        already = set(kept)
        would_be = [*kept, *(id for id in stored if id not in already)]
        self._root.replace_messages(stored)
        if would_be == stored:
            return [_snapshot(state)]
        return [_snapshot(state.with_messages(())), _snapshot(state)]

    def _usage_of_run(self, state: AgentState) -> Usage:
        """Return what this run used, of what its execution used."""
        before = None if self._first_state is None else self._first_state.execution
        if self._first_state is None or before is None or state.execution is None:
            return state.usage
        is_same = before.id == state.execution.id
        return state.usage - self._first_state.usage if is_same else state.usage

    def _start_run(self) -> list[WireEvent]:
        self._is_open = True
        return [{"type": "RUN_STARTED", **self._run, "protocolVersion": PROTOCOL_VERSION}]


def _snapshot(state: AgentState) -> WireEvent:
    waiting = {pending.call_id for pending in state.pending if pending.call_id is not None}
    return {"type": "MESSAGES_SNAPSHOT", "messages": wire_messages(state.messages, waiting)}


def _result_event(message: Message, wire: WireEvent) -> WireEvent:
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": message.id,
        "toolCallId": wire["toolCallId"],
        "content": wire["content"],
        "role": "tool",
    }

"""Translates the entries of one run into chunks of an AI SDK UI message stream. Pure."""

from collections.abc import Mapping
from typing import Any

from stepwell.continuation import AgentStatus
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
from stepwell.messages import FinishReason
from stepwell.protocols.ai_sdk.step_text import SUPERSEDED, AttemptText, TextChange
from stepwell.protocols.ai_sdk.stop import Stop
from stepwell.protocols.ai_sdk.subagents import SubagentParts
from stepwell.protocols.ai_sdk.values import sendable, sendable_text
from stepwell.protocols.call_ids import CallIds
from stepwell.protocols.client_stream import WireEvent
from stepwell.protocols.entries import call_arguments, call_value
from stepwell.state import AgentState, ToolExecution, ToolOutcome

SUPERSEDED_PART = "data-stepwell-superseded"
"""Names a text part that a later attempt at its step replaced."""
NO_RESULT = "Error: the call has no result, because the step that ran it did not end well."


class AiSdkTranslator:
    """Returns the chunks for each entry, for the state after each step, and for the end of a run.

    >>> from stepwell.agent import Agent
    >>> from stepwell.journal import Projector
    >>> from stepwell.testing import ScriptedModel
    >>> agent, projector = Agent(ScriptedModel(["Hello."])), Projector()
    >>> translator, entries = AiSdkTranslator("m1"), []
    >>> stop = agent.wiretap(lambda event: entries.extend(projector.entries(event)))
    >>> state = agent.run_sync("Hi")
    >>> chunks = [chunk for entry in entries for chunk in translator.translate(entry)]
    >>> chunks += translator.finish(state)
    >>> [chunk["type"] for chunk in chunks][:5]
    ['start', 'start-step', 'text-start', 'text-delta', 'text-end']
    >>> chunks[-1]
    {'type': 'finish', 'finishReason': 'stop'}
    """

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._answered = frozenset[str]()
        """The calls that a resumed run continues; the client has them already."""
        self._waiting: set[str] = set()
        """The calls that wait for a person; a later step continues them."""
        self._call_ids = CallIds()
        self._response_id = ""
        """The id of the message that holds the calls of this step."""
        self._subagents = SubagentParts(self._call_ids)
        self._is_started = False
        self._step_number = 0
        self._step_is_open = False
        self._step_is_recorded = False
        self._has_text = False
        self._shows_tools = False
        """Whether the step that the client shows last has tool calls."""
        self._block: tuple[str, str] | None = None
        self._block_count = 0
        self._settled: dict[str, bool] = {}
        """The calls of this step by their ids on the wire, and whether each has its result."""
        self._last_finish: FinishReason | None = None
        self._failure: str | None = None
        self._ending: Stop | None = None
        """How the run ended, according to its newest status."""
        self._text = AttemptText()
        self._text_id = ""
        """The id of the newest text part."""
        self._is_restarting = False

    def start(self, state: AgentState, /) -> list[WireEvent]:
        """Return the chunks before the run."""
        self._answered = frozenset(answered.call.id for answered in state.answered)
        self._waiting = {asked.call_id for asked in state.pending if asked.call_id is not None}
        self._call_ids.learn(state.messages)
        return self._start_message()

    def translate(self, entry: Entry, /) -> list[WireEvent]:
        """Return the chunks for an entry."""
        if entry.payload.parent_execution_id is not None:
            return self._subagents.chunks(entry)
        self._subagents.root = (entry.execution_id, entry.payload.agent_id)
        start = self._start_message()
        return [*start, *self._translate(entry)]

    def _translate(self, entry: Entry) -> list[WireEvent]:
        match entry.payload:
            case StepStartedPayload(step_number=number):
                return self._next_step(entry.execution_id, number)
            case StreamChunkPayload() as payload:
                said = self._say(self._text.add(payload.content, is_open=self._text_is_open))
                return [*said, *self._end_text()] if payload.is_complete else said
            case ThinkingPayload(content=text):
                return self._append_delta("reasoning", text)
            case StepCompletedPayload() as payload:
                self._last_finish = payload.finish_reason
                return self._close_block()
            case StatusPayload() as payload:
                self._ending = Stop.of_status(payload, entry.execution_id)
                self._failure = payload.error_message or self._failure
            case ToolStartedPayload() as payload:
                return self._call(payload.tool_call_id, payload.tool_name, call_arguments(entry))
            case ToolCompletedPayload() as payload:
                return self._complete_call(entry, payload)
            case ToolProgressPayload() as payload:
                return [_progress(payload, self._call_ids.newest(payload.tool_call_id))]
            case _:
                pass
        return []

    def restart(self, state: AgentState, /) -> list[WireEvent]:
        """Hold back the text of the step that begins again while it equals what was sent: a client
        can't remove text."""
        del state
        self._is_restarting = True
        self._text.begin_again()
        return self._subagents.cut_off()

    def step(self, state: AgentState, /) -> list[WireEvent]:
        """Return what a step has that no event announced: calls that never began."""
        step = state.current_step
        if step is None or self._step_is_recorded or state.step_count != self._step_number:
            return []
        self._step_is_recorded = True
        chunks: list[WireEvent] = []
        if self._text.is_held or (step.text and not self._has_text):
            chunks = self._say(self._text.settle(step.text, is_open=self._text_is_open))
        chunks += self._close_block()
        for execution in step.tool_executions:
            chunks += self._of_execution(execution)
        return chunks

    def finish(self, state: AgentState, /) -> list[WireEvent]:
        """Return the last chunks of a run that has a result."""
        chunks = [*self._start_message(), *self.step(state), *self._unresumed_calls(state)]
        return [*chunks, *self._end(Stop.of_state(state))]

    def fail(self, message: str, _code: str, /) -> list[WireEvent]:
        """Return the last chunks of a run that broke off; its terminal status counts, if it has
        one."""
        ending = self._ending
        has_ended = ending is not None and ending.status is not BroadcastStatus.PROCESSING
        stop = ending if ending is not None and has_ended else Stop.of_fault(message)
        return [*self._start_message(), *self._end(stop, message)]

    def _end(self, stop: Stop, error: str | None = None) -> list[WireEvent]:
        """Return the end. The client reads nothing after an error, so only ``finish`` follows
        it."""
        stop = stop.with_wire_ids(self._call_ids)
        chunks = [*self._close_step(stop), *self._separate_stop(stop), stop.part(), stop.metadata()]
        if error is None and stop.status is BroadcastStatus.FAILED:
            error = self._failure or stop.explanation
        if error is not None:
            chunks.append({"type": "error", "errorText": sendable_text(error)})
        elif stop.status is BroadcastStatus.CANCELLED:
            chunks.append({"type": "abort", "reason": sendable_text(stop.explanation)})
        reason = "error" if error is not None else stop.finish_reason(self._last_finish)
        return [*chunks, {"type": "finish", "finishReason": reason}]

    # Steps

    def _start_message(self) -> list[WireEvent]:
        if self._is_started:
            return []
        self._is_started = True
        return [{"type": "start", "messageId": self._message_id}]

    def _next_step(self, execution_id: str, number: int) -> list[WireEvent]:
        if self._is_restarting:
            self._is_restarting = False
            return []  # the client keeps what it has of the step
        chunks = self._close_step(None)
        if self._step_number != 0:
            self._answered = frozenset(self._waiting)  # ids of calls may come again
        self._step_number, self._step_is_recorded, self._has_text = number, False, False
        self._response_id = f"{execution_id}:{number}:0"
        self._settled = {}
        self._text = AttemptText()
        return chunks

    def _open_step(self) -> list[WireEvent]:
        """Open a step when it first shows something: calls that a person answered run in a step
        without a model turn, which belongs to the client's step that made them."""
        if self._step_is_open:
            return []
        self._step_is_open, self._shows_tools = True, False
        return [{"type": "start-step"}]

    def _close_step(self, stop: Stop | None) -> list[WireEvent]:
        chunks = self._close_block()
        waits = map(self._call_ids.newest, self._waiting) if stop is None else stop.waiting_calls
        waiting, approvals = set(waits), {} if stop is None else stop.approvals
        for call_id in [call_id for call_id, done in self._settled.items() if not done]:
            if call_id in approvals:
                request = {"type": "tool-approval-request", "approvalId": approvals[call_id]}
                chunks.append({**request, "toolCallId": call_id})
            elif call_id not in waiting:
                chunks += self._output(call_id, value=None, error=NO_RESULT)
        if self._step_is_open:
            chunks.append({"type": "finish-step"})
        self._step_is_open = False
        return chunks

    def _separate_stop(self, stop: Stop) -> list[WireEvent]:
        """Give the stop a step of its own if the last one shows only finished tools: a client that
        sends automatically once all tools have results would restart a stopped run forever."""
        if not self._shows_tools or stop.waiting_calls:
            return []
        return [{"type": "start-step"}, {"type": "finish-step"}]

    def _unresumed_calls(self, state: AgentState) -> list[WireEvent]:
        """Return the results of answered calls in a run that ended before it continued them."""
        chunks: list[WireEvent] = []
        if state.status is AgentStatus.PAUSED:
            return chunks
        calls = {call.id: call for message in state.messages for call in message.tool_calls}
        results = {r.call_id: r for m in state.messages if (r := m.tool_result) is not None}
        for call_id in sorted(self._answered):
            call, result = calls.get(call_id), results.get(call_id)
            if self._call_ids.newest(call_id) in self._settled or call is None or result is None:
                continue
            chunks += self._call(call_id, call.name, call.arguments)
            error = result.content if result.is_error else None
            chunks += self._result(call_id, value=result.content, error=error)
        return chunks

    # Text and reasoning

    def _append_delta(self, kind: str, delta: str) -> list[WireEvent]:
        if not delta:
            return []
        chunks = self._open_step()
        if self._block is None or self._block[0] != kind:
            chunks += self._close_block()
            self._block_count += 1
            self._block = (kind, f"{self._message_id}:{self._step_number}:{self._block_count}")
            chunks.append({"type": f"{kind}-start", "id": self._block[1]})
        self._has_text = self._has_text or kind == "text"
        chunks.append(
            {"type": f"{kind}-delta", "id": self._block[1], "delta": sendable_text(delta)}
        )
        return chunks

    @property
    def _text_is_open(self) -> bool:
        return self._block is not None and self._block[0] == "text"

    def _say(self, change: TextChange) -> list[WireEvent]:
        superseded = self._supersede() if change.supersedes else []
        added = self._append_delta("text", change.text)
        if self._block is not None and self._text_is_open:
            self._text_id = self._block[1]
        return [*superseded, *added]

    def _supersede(self) -> list[WireEvent]:
        """Mark the text part that another attempt replaces."""
        mark = {"type": SUPERSEDED_PART, "id": self._text_id, "data": {"text_id": self._text_id}}
        if not self._text_is_open:
            return [mark]
        self._block = None
        end = {"type": "text-end", "id": self._text_id, "providerMetadata": SUPERSEDED}
        return [end, mark]

    def _end_text(self) -> list[WireEvent]:
        ended = self._say(self._text.end(is_open=self._text_is_open))
        return [*ended, *self._close_block()]

    def _close_block(self) -> list[WireEvent]:
        if self._block is None:
            return []
        kind, block_id = self._block
        self._block = None
        return [{"type": f"{kind}-end", "id": block_id}]

    # Tool calls

    def _complete_call(self, entry: Entry, payload: ToolCompletedPayload) -> list[WireEvent]:
        call_id = payload.tool_call_id
        match payload.outcome:
            case ToolOutcome.PENDING:
                self._waiting.add(call_id)
                return []
            case ToolOutcome.CANCELLED:
                return []  # the state says how a call that was cut off ended
            case ToolOutcome.BLOCKED:
                return self._refuse_call(call_id, payload.error or "")
            case _:
                pass
        if self._settled.get(self._call_ids.newest(call_id)) is not False:
            return []
        if payload.error is not None:
            return self._result(call_id, value=None, error=payload.error)
        result = self._result(call_id, value=call_value(entry), error=None)
        return [*result, *_note(payload.note, self._call_ids.newest(call_id))]

    def _of_execution(self, execution: ToolExecution) -> list[WireEvent]:
        call = execution.call
        chunks = self._call(call.id, call.name, call.arguments)
        if execution.outcome is ToolOutcome.PENDING:
            self._waiting.add(call.id)
            return chunks
        if self._settled[self._call_ids.newest(call.id)]:
            return chunks
        if execution.was_blocked:
            return chunks + self._refuse_call(call.id, execution.text)
        error = execution.text if execution.is_error else None
        return chunks + self._result(call.id, value=execution.value, error=error)

    def _call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> list[WireEvent]:
        was_waiting = call_id in self._answered
        if was_waiting:
            wire_id = self._call_ids.newest(call_id)
        else:
            wire_id = self._call_ids.of_call(call_id, self._response_id)
        if wire_id in self._settled:
            return []
        chunks = [] if was_waiting and not self._step_is_open else self._open_step()
        self._settled[wire_id], self._shows_tools = False, True
        call = {"toolCallId": wire_id, "toolName": name, "dynamic": True}
        return [
            *chunks,
            *self._close_block(),
            {"type": "tool-input-start", **call},
            {"type": "tool-input-available", **call, "input": sendable(arguments)},
        ]

    def _refuse_call(self, call_id: str, text: str) -> list[WireEvent]:
        """Deny a call that waited for approval; any other refusal is an error result."""
        if call_id not in self._answered:
            return self._result(call_id, value=None, error=text)
        self._waiting.discard(call_id)
        wire_id = self._call_ids.newest(call_id)
        self._settled[wire_id] = True
        return [{"type": "tool-output-denied", "toolCallId": wire_id}]

    def _result(self, call_id: str, *, value: Any, error: str | None) -> list[WireEvent]:
        self._waiting.discard(call_id)
        return self._output(self._call_ids.newest(call_id), value=value, error=error)

    def _output(self, wire_id: str, *, value: Any, error: str | None) -> list[WireEvent]:
        self._settled[wire_id] = True
        call = {"toolCallId": wire_id, "dynamic": True}
        if error is not None:
            return [{"type": "tool-output-error", **call, "errorText": sendable_text(error)}]
        return [{"type": "tool-output-available", **call, "output": sendable(value)}]


def _note(note: str | None, wire_id: str) -> list[WireEvent]:
    """Return the part for a note to the model beside a result; the output stays plain data."""
    if not note:
        return []
    data = {"tool_call_id": wire_id, "note": sendable_text(note)}
    return [{"type": "data-stepwell-note", "id": wire_id, "data": data}]


def _progress(payload: ToolProgressPayload, wire_id: str) -> WireEvent:
    data = {"tool_call_id": wire_id, "message": payload.message, "fraction": payload.fraction}
    return {"type": "data-stepwell-progress", "data": sendable(data), "transient": True}

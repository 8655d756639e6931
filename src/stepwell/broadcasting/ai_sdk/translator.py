"""Translates the events of one run into chunks of an AI SDK UI message stream. Pure."""

from collections.abc import Mapping
from typing import Any

from stepwell.broadcasting.ai_sdk.stop import Stop
from stepwell.broadcasting.ai_sdk.subagents import SubagentParts
from stepwell.broadcasting.ai_sdk.values import sendable, sendable_text
from stepwell.broadcasting.call_ids import CallIds
from stepwell.broadcasting.client_stream import Told
from stepwell.continuation import AgentStatus
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    AgentStepStarted,
    InferenceRequestStarted,
    StreamEventReceived,
    SubagentCompleted,
    SubagentSpawning,
    ThinkingReceived,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallProgressed,
    ToolCallStarted,
)
from stepwell.journal.envelope import BroadcastStatus
from stepwell.messages import FinishReason
from stepwell.state import AgentState, ToolExecution, ToolOutcome

NO_RESULT = "Error: the call has no result, because the step that ran it did not end well."


class AiSdkTranslator:
    """Gives the chunks for each event, for the state after each step, and for the end of a run.

    >>> from stepwell.agent import Agent
    >>> from stepwell.testing import ScriptedModel
    >>> agent, translator = Agent(ScriptedModel(["Hello."])), AiSdkTranslator("m1")
    >>> told = []
    >>> stop = agent.wiretap(lambda event: told.extend(translator.events(event)))
    >>> told += translator.finish(agent.run_sync("Hi"))
    >>> [chunk["type"] for chunk in told][:5]
    ['start', 'start-step', 'text-start', 'text-delta', 'text-end']
    >>> told[-1]
    {'type': 'finish', 'finishReason': 'stop'}
    """

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._answered = frozenset[str]()
        """The calls that a resumed run takes up again; the client knows them already."""
        self._waiting: set[str] = set()
        """The calls that wait for a person; a later step takes them up again."""
        self._root: str | None = None
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
        self._finished: AgentFinished | None = None

    def start(self, state: AgentState, /) -> list[Told]:
        """What the client is told before the run."""
        self._root = state.agent_id
        self._answered = frozenset(answered.call.id for answered in state.answered)
        self._waiting = {asked.call_id for asked in state.pending if asked.call_id is not None}
        self._call_ids.learn(state.messages)
        return self._started()

    def events(self, event: AgentEvent, /) -> list[Told]:
        """What an event tells the client."""
        self._root = self._root or event.agent_id
        if event.agent_id != self._root or isinstance(event, SubagentSpawning | SubagentCompleted):
            return self._subagents.chunks(event)
        match event:
            case AgentExecutionStarted():
                return self._started()
            case AgentStepStarted():
                return self._next_step(event)
            case InferenceRequestStarted():
                return self._step_begun()
            case StreamEventReceived():
                told = self._told("text", event.content)
                return [*told, *self._block_closed()] if event.is_complete else told
            case ThinkingReceived():
                return self._told("reasoning", event.content)
            case AgentStepCompleted():
                self._last_finish = event.finish_reason
                return self._block_closed()
            case AgentFailed():
                self._failure = event.error
            case AgentFinished():
                self._finished = event
            case _:
                return self._of_tool(event)
        return []

    def step(self, state: AgentState, /) -> list[Told]:
        """What the state after a step tells that no event did: calls that were never begun."""
        step = state.current_step
        if step is None or self._step_is_recorded or state.step_count != self._step_number:
            return []
        self._step_is_recorded = True
        chunks = self._block_closed()
        if step.text and not self._has_text:
            chunks += [*self._told("text", step.text), *self._block_closed()]
        for execution in step.tool_executions:
            chunks += self._of_execution(execution)
        return chunks

    def finish(self, state: AgentState, /) -> list[Told]:
        """The last chunks of a run that has a result."""
        chunks = [*self._started(), *self.step(state), *self._not_taken_up(state)]
        return [*chunks, *self._ended(Stop.of_state(state))]

    def fail(self, message: str, _code: str, /) -> list[Told]:
        """The last chunks of a run that broke off. If its terminal event was told, it is enough."""
        if self._finished is not None:
            return [*self._started(), *self._ended(Stop.of_event(self._finished), message)]
        return [*self._started(), *self._ended(Stop.of_fault(message), message)]

    def _ended(self, stop: Stop, error: str | None = None) -> list[Told]:
        """The client reads nothing behind an error, so it comes last but one."""
        stop = stop.with_wire_ids(self._call_ids)
        chunks = [*self._step_closed(stop), *self._apart(stop), stop.part(), stop.metadata()]
        if error is None and stop.status is BroadcastStatus.FAILED:
            error = self._failure or stop.explanation
        if error is not None:
            chunks.append({"type": "error", "errorText": sendable_text(error)})
        elif stop.status is BroadcastStatus.CANCELLED:
            chunks.append({"type": "abort", "reason": sendable_text(stop.explanation)})
        reason = "error" if error is not None else stop.finish_reason(self._last_finish)
        return [*chunks, {"type": "finish", "finishReason": reason}]

    # Steps

    def _started(self) -> list[Told]:
        if self._is_started:
            return []
        self._is_started = True
        return [{"type": "start", "messageId": self._message_id}]

    def _next_step(self, event: AgentStepStarted) -> list[Told]:
        chunks, number = self._step_closed(None), event.step_number
        if self._step_number not in (0, number):  # another worker may begin the same step anew
            self._answered = frozenset(self._waiting)  # ids of calls may come again
        self._step_number, self._step_is_recorded, self._has_text = number, False, False
        self._response_id = f"{event.execution_id}:{number}:0"
        self._settled = {}
        return chunks

    def _step_begun(self) -> list[Told]:
        """Not told before a step shows something: calls that a person answered run in a step
        without a model turn, which belongs to the client's step that made them."""
        if self._step_is_open:
            return []
        self._step_is_open, self._shows_tools = True, False
        return [{"type": "start-step"}]

    def _step_closed(self, stop: Stop | None) -> list[Told]:
        chunks = self._block_closed()
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

    def _apart(self, stop: Stop) -> list[Told]:
        """A step of its own for the stop, if the last one shows only finished tools: a client that
        sends by itself once all tools have results would start over and over what was stopped."""
        if not self._shows_tools or stop.waiting_calls:
            return []
        return [{"type": "start-step"}, {"type": "finish-step"}]

    def _not_taken_up(self, state: AgentState) -> list[Told]:
        """Calls that were answered, of a run that ended before they could go on."""
        chunks: list[Told] = []
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

    def _told(self, kind: str, delta: str) -> list[Told]:
        if not delta:
            return []
        chunks = self._step_begun()
        if self._block is None or self._block[0] != kind:
            chunks += self._block_closed()
            self._block_count += 1
            self._block = (kind, f"{self._message_id}:{self._step_number}:{self._block_count}")
            chunks.append({"type": f"{kind}-start", "id": self._block[1]})
        self._has_text = self._has_text or kind == "text"
        told = {"type": f"{kind}-delta", "id": self._block[1], "delta": sendable_text(delta)}
        return [*chunks, told]

    def _block_closed(self) -> list[Told]:
        if self._block is None:
            return []
        kind, block_id = self._block
        self._block = None
        return [{"type": f"{kind}-end", "id": block_id}]

    # Tool calls

    def _of_tool(self, event: AgentEvent) -> list[Told]:
        match event:
            case ToolCallStarted():
                return self._call(event.call_id, event.tool, event.args)
            case ToolCallProgressed():
                return [_progress(event, self._call_ids.newest(event.call_id))]
            case ToolCallCompleted():
                return self._completed(event)
            case ToolCallBlocked():
                chunks = self._call(event.call_id, event.tool, event.args)
                return chunks + self._refused(event.call_id, f"Error: Blocked: {event.reason}")
            case _:
                return []

    def _completed(self, event: ToolCallCompleted) -> list[Told]:
        if event.outcome == ToolOutcome.PENDING:
            self._waiting.add(event.call_id)
            return []
        if self._call_ids.newest(event.call_id) not in self._settled:
            return []
        return self._result(event.call_id, value=event.value, error=event.error)

    def _of_execution(self, execution: ToolExecution) -> list[Told]:
        call = execution.call
        chunks = self._call(call.id, call.name, call.arguments)
        if execution.outcome is ToolOutcome.PENDING:
            self._waiting.add(call.id)
            return chunks
        if self._settled[self._call_ids.newest(call.id)]:
            return chunks
        if execution.was_blocked:
            return chunks + self._refused(call.id, execution.text)
        error = execution.text if execution.is_error else None
        return chunks + self._result(call.id, value=execution.value, error=error)

    def _call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> list[Told]:
        was_waiting = call_id in self._answered
        if was_waiting:
            wire_id = self._call_ids.newest(call_id)
        else:
            wire_id = self._call_ids.of_call(call_id, self._response_id)
        if wire_id in self._settled:
            return []
        chunks = [] if was_waiting and not self._step_is_open else self._step_begun()
        self._settled[wire_id], self._shows_tools = False, True
        call = {"toolCallId": wire_id, "toolName": name, "dynamic": True}
        return [
            *chunks,
            *self._block_closed(),
            {"type": "tool-input-start", **call},
            {"type": "tool-input-available", **call, "input": sendable(arguments)},
        ]

    def _refused(self, call_id: str, text: str) -> list[Told]:
        """A person's no, if the call had waited for it; else what a hook said."""
        if call_id not in self._answered:
            return self._result(call_id, value=None, error=text)
        self._waiting.discard(call_id)
        wire_id = self._call_ids.newest(call_id)
        self._settled[wire_id] = True
        return [{"type": "tool-output-denied", "toolCallId": wire_id}]

    def _result(self, call_id: str, *, value: Any, error: str | None) -> list[Told]:
        self._waiting.discard(call_id)
        return self._output(self._call_ids.newest(call_id), value=value, error=error)

    def _output(self, wire_id: str, *, value: Any, error: str | None) -> list[Told]:
        self._settled[wire_id] = True
        told = {"toolCallId": wire_id, "dynamic": True}
        if error is not None:
            return [{"type": "tool-output-error", **told, "errorText": sendable_text(error)}]
        return [{"type": "tool-output-available", **told, "output": sendable(value)}]


def _progress(event: ToolCallProgressed, wire_id: str) -> Told:
    data = {"tool_call_id": wire_id, "message": event.message, "fraction": event.fraction}
    return {"type": "data-stepwell-progress", "data": sendable(data), "transient": True}

"""Turns the events of one execution, and of its subagents, into journal entries.

Pure and synchronous: it remembers what is open in the run, and has no queue, no clock and no ids
of its own. Library streams, broadcasters and the app server use the same one.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from stepwell.continuation import AgentStatus
from stepwell.events import (
    AgentEvent,
    AgentExecutionStarted,
    AgentFailed,
    AgentFinished,
    AgentStepCompleted,
    AgentStepStarted,
    ContinuationEvaluated,
    InferenceRetryScheduled,
    StreamEventReceived,
    SubagentSpawning,
    ThinkingReceived,
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallProgressed,
    ToolCallStarted,
)
from stepwell.journal import payloads
from stepwell.journal.config import ProjectionConfig
from stepwell.journal.entry import CallDetail, Entry
from stepwell.journal.envelope import (
    EnvelopeType,
    Payload,
    StatusPayload,
    StepStartedPayload,
    TransientType,
)
from stepwell.journal.executions import Executions, TrackedExecution
from stepwell.journal.status import BroadcastStatus

logger = logging.getLogger("stepwell.broadcasting")

STANDARD = ProjectionConfig()


class Projector:
    """Makes the entries of the first execution that begins after it was made or ``reset()``.

    Other executions on the same event bus are left out, and so is an event that is given twice in
    a row.

    >>> from stepwell.agent import Agent
    >>> from stepwell.testing import ScriptedModel
    >>> agent, projector, made = Agent(ScriptedModel(["Four."])), Projector("execution-1"), []
    >>> stop = agent.wiretap(lambda event: made.extend(projector.entries(event)))
    >>> state = agent.run_sync("What is 2 + 2?")
    >>> [entry.type.value for entry in made if entry.type != "agent.stream.chunk"]
    ['agent.status', 'agent.step.started', 'agent.step.completed', 'agent.status']
    """

    def __init__(
        self, execution_id: str | None = None, config: ProjectionConfig = STANDARD
    ) -> None:
        """``execution_id`` is what the entries of the root agent are filed under: the one that its
        events bring, unless another is given."""
        self._config = config
        self._executions = Executions(execution_id)
        self._made: list[Entry] = []
        self._handlers: dict[type[AgentEvent], Callable[[TrackedExecution, Any], None]] = {
            AgentStepStarted: self._start_step,
            AgentStepCompleted: self._complete_step,
            ToolCallStarted: self._start_call,
            ToolCallCompleted: self._complete_call,
            ToolCallBlocked: self._block_call,
            ContinuationEvaluated: self._decide,
            StreamEventReceived: self._add_text,
            ThinkingReceived: self._add_thinking,
            ToolCallProgressed: self._add_progress,
            InferenceRetryScheduled: self._wait_for_provider,
            AgentFailed: self._fail,
            AgentFinished: self._finish,
        }

    @property
    def execution_id(self) -> str:
        """What the entries of the root agent are filed under."""
        return self._executions.root.id

    @property
    def status(self) -> BroadcastStatus:
        """Of the root agent; its subagents have their own."""
        return self._executions.root.status

    @property
    def event_types(self) -> tuple[type[AgentEvent], ...]:
        """The classes of events that make entries, or that it follows them by."""
        return (*self._handlers, AgentExecutionStarted, SubagentSpawning)

    def follow_only(self, agent_id: str) -> None:
        """Leave out the executions of other root agents, also after ``reset()``."""
        self._executions.only_agent_id = agent_id

    def expect_beginnings(self) -> None:
        """From now on an execution is only followed from its ``AgentExecutionStarted`` on; without
        this its first step will do."""
        self._executions.hears_beginnings = True

    def follows(self, event: AgentEvent) -> bool:
        """Whether it is of an execution that has entries here."""
        return self._executions.find(event) is not None

    def is_root(self, event: AgentEvent) -> bool:
        """Whether it is of the root agent's execution."""
        return self._executions.find(event) is self._executions.root

    # Entries

    def entries(self, event: AgentEvent) -> tuple[Entry, ...]:
        """Return the entries that the event makes, in order; none for other executions."""
        if isinstance(event, SubagentSpawning):
            self._executions.note_spawning(event)
            return ()
        handler = self._handlers.get(type(event))
        if handler is None and not isinstance(event, AgentExecutionStarted):
            return ()
        run = self._executions.of(event)
        if handler is not None and run is not None:
            handler(run, event)
        return self._take()

    def change_status(
        self,
        status: BroadcastStatus,
        at: datetime,
        *,
        error: str | None = None,
        last_response: str | None = None,
    ) -> tuple[Entry, ...]:
        """Return the entries for a status that no event brings; none after a terminal one."""
        root = self._executions.root
        payload = payloads.status(root, status, error=error, last_response=last_response)
        self._move(root, payload, at)
        return self._take()

    def unsent_ends(self) -> tuple[Entry, ...]:
        """Return the statuses that follow from a last decision without an end event."""
        for run in self._executions.all():
            unsent, run.unsent_end = run.unsent_end, None
            if unsent is not None:
                self._follow(run, *unsent)
        return self._take()

    def reset(self, execution_id: str, at: datetime) -> tuple[Entry, ...]:
        """Get ready for the next execution and return what ends the one before."""
        ends = self.unsent_ends()
        root = self._executions.root
        self._close(root, at)
        if root.status in (BroadcastStatus.PROCESSING, BroadcastStatus.PAUSED):
            self._follow(root, payloads.left_by_reset(root), at)
        self._executions.start_over(execution_id)
        return (*ends, *self._take())

    def _take(self) -> tuple[Entry, ...]:
        made, self._made = self._made, []
        return tuple(made)

    def _add(
        self,
        run: TrackedExecution,
        type: EnvelopeType | TransientType,
        payload: Payload,
        at: datetime,
        detail: CallDetail | None = None,
    ) -> None:
        if run.spawn is not None and isinstance(payload, StatusPayload | StepStartedPayload):
            payload, run.spawn = replace(payload, spawned=run.spawn), None
        self._made.append(
            Entry(type=type, execution_id=run.id, at=at, payload=payload, detail=detail)
        )

    # Steps and text

    def _start_step(self, run: TrackedExecution, event: AgentStepStarted) -> None:
        self._close(run, event.at)
        run.step_number, run.steps = event.step_number, event.step_number - 1
        if run.status is not BroadcastStatus.PROCESSING:
            self._follow(run, payloads.status(run, BroadcastStatus.PROCESSING), event.at)
        self._add(run, EnvelopeType.AGENT_STEP_STARTED, payloads.step_started(run, event), event.at)

    def _complete_step(self, run: TrackedExecution, event: AgentStepCompleted) -> None:
        self._close(run, event.at)
        run.steps = event.step_number
        self._add(
            run, EnvelopeType.AGENT_STEP_COMPLETED, payloads.step_completed(run, event), event.at
        )

    def _decide(self, run: TrackedExecution, event: ContinuationEvaluated) -> None:
        self._close(run, event.at)
        run.outcome = event.outcome
        if self._config.include_continuation_trace:
            self._add(
                run, EnvelopeType.AGENT_CONTINUATION, payloads.continuation(run, event), event.at
            )
        if not event.outcome.should_continue:
            run.unsent_end = (payloads.decided_status(run, event), event.at)

    def _add_text(self, run: TrackedExecution, event: StreamEventReceived) -> None:
        if run.status.is_terminal or not self._config.include_stream_chunks:
            return
        if event.chunk_index == 0:
            self._close_text(run, event.at)
        run.open_text = None if event.is_complete else event
        self._add(run, EnvelopeType.AGENT_STREAM_CHUNK, payloads.stream_chunk(run, event), event.at)

    def _add_thinking(self, run: TrackedExecution, event: ThinkingReceived) -> None:
        self._add(run, TransientType.AGENT_THINKING, payloads.thinking(run, event), event.at)

    def _add_progress(self, run: TrackedExecution, event: ToolCallProgressed) -> None:
        self._add(
            run, TransientType.AGENT_TOOL_PROGRESS, payloads.tool_progress(run, event), event.at
        )

    def _wait_for_provider(self, run: TrackedExecution, event: InferenceRetryScheduled) -> None:
        reason = payloads.retry_text(event)
        payload = payloads.status(run, BroadcastStatus.PROCESSING, reason=reason)
        self._follow(run, payload, event.at)

    # Tool calls

    def _start_call(self, run: TrackedExecution, event: ToolCallStarted) -> None:
        self._close_text(run, event.at)
        self._give_up(run, event.call_id, event.at)
        run.given_up_calls.discard(event.call_id)
        run.open_calls[event.call_id] = event
        payload = payloads.tool_started(run, event, self._config)
        detail = CallDetail(args=event.args)
        self._add(run, EnvelopeType.AGENT_TOOL_STARTED, payload, event.at, detail)

    def _complete_call(self, run: TrackedExecution, event: ToolCallCompleted) -> None:
        if event.call_id in run.given_up_calls:
            return
        self._close_text(run, event.at)
        run.open_calls.pop(event.call_id, None)
        for child in run.unfinished(event.call_id):
            self._leave_behind(child, event.at, cancelled=True)
        payload = payloads.tool_completed(run, event)
        detail = CallDetail(value=event.value)
        self._add(run, EnvelopeType.AGENT_TOOL_COMPLETED, payload, event.at, detail)

    def _block_call(self, run: TrackedExecution, event: ToolCallBlocked) -> None:
        self._close_text(run, event.at)
        started = payloads.tool_started(run, event, self._config)
        detail = CallDetail(args=event.args)
        self._add(run, EnvelopeType.AGENT_TOOL_STARTED, started, event.at, detail)
        blocked = payloads.tool_blocked(run, event)
        self._add(run, EnvelopeType.AGENT_TOOL_COMPLETED, blocked, event.at, detail)

    # Ends

    def _fail(self, run: TrackedExecution, event: AgentFailed) -> None:
        self._close(run, event.at)
        run.unsent_end = None
        run.steps = event.steps_completed
        self._follow(run, payloads.failed_status(run, event), event.at)

    def _finish(self, run: TrackedExecution, event: AgentFinished) -> None:
        self._close(run, event.at)
        run.unsent_end = None
        run.steps = event.total_steps
        has_failed = run.status is BroadcastStatus.FAILED and event.status is AgentStatus.FAILED
        if not has_failed:
            self._follow(run, payloads.final_status(run, event), event.at)

    def _follow(self, run: TrackedExecution, payload: StatusPayload, at: datetime) -> None:
        """Add a status that an event brings, if statuses follow from events."""
        if self._config.auto_status_tracking:
            self._move(run, payload, at)
        elif payload.status.is_terminal:
            self._end_below(run, payload.status, at)

    def _move(self, run: TrackedExecution, payload: StatusPayload, at: datetime) -> None:
        """Add a status, unless the execution is over."""
        if run.status.is_terminal:
            logger.debug(
                "execution %s is %s; the status %s is not sent", run.id, run.status, payload.status
            )
            return
        if payload.status.is_terminal:
            self._close(run, at)
            self._end_below(run, payload.status, at)
        self._add(run, EnvelopeType.AGENT_STATUS, payload, at)
        run.status = payload.status

    def _end_below(self, run: TrackedExecution, status: BroadcastStatus, at: datetime) -> None:
        for child in run.unfinished():
            self._leave_behind(child, at, cancelled=status is BroadcastStatus.CANCELLED)

    def _leave_behind(self, run: TrackedExecution, at: datetime, *, cancelled: bool) -> None:
        """End a subagent without an end event whose parent or call is over."""
        self._close(run, at)
        self._follow(run, payloads.left_behind(run, cancelled=cancelled), at)

    def _close(self, run: TrackedExecution, at: datetime) -> None:
        """End the text and the calls that are open: between steps there are none."""
        self._close_text(run, at)
        for call_id in tuple(run.open_calls):
            self._give_up(run, call_id, at)

    def _close_text(self, run: TrackedExecution, at: datetime) -> None:
        """End a response that broke off and has no last chunk of its own."""
        newest, run.open_text = run.open_text, None
        if newest is not None:
            self._add(run, EnvelopeType.AGENT_STREAM_CHUNK, payloads.last_chunk(run, newest), at)

    def _give_up(self, run: TrackedExecution, call_id: str, at: datetime) -> None:
        """End a call that will have no result any more."""
        call = run.open_calls.pop(call_id, None)
        if call is not None:
            run.given_up_calls.add(call_id)
            payload = payloads.tool_given_up(run, call, at)
            self._add(run, EnvelopeType.AGENT_TOOL_COMPLETED, payload, at)

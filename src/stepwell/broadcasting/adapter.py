"""Broadcasts the journal entries of one execution, and of its subagents, as envelopes.

The projector makes the entries; here they get ids and numbers and go into the queues of the
broadcasters. Whether they arrive is for the deliveries. No handler waits, and none raises.
"""

import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.checks import (
    checked_number,
    checked_text,
    refuse_what_cannot_broadcast,
)
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.broadcasting.delivery.delivery import Delivery
from stepwell.broadcasting.outbox import Flush, Outbox
from stepwell.clock import Clock, SystemClock
from stepwell.continuation import AgentStatus
from stepwell.errors import ConfigurationError, text_of
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
    ToolCallBlocked,
    ToolCallCompleted,
    ToolCallStarted,
)
from stepwell.ids import IdFactory, new_id
from stepwell.journal.projector import Projector
from stepwell.journal.status import BroadcastStatus
from stepwell.state import AgentState

logger = logging.getLogger("stepwell.broadcasting")

STANDARD = BroadcastConfig.standard()


class AgentEventEnvelopeAdapter:
    """Broadcasts one execution of an agent, with its subagents, as envelopes.

    It serves the first execution that begins after it was made or ``reset()``; other executions on
    the same bus are left out. Where an agent serves several users, ``wiretap(state)`` says whose
    execution that is. The end of a run waits a moment until all was sent; ``flush()`` waits as long
    as it takes.

    >>> from stepwell.agent import Agent
    >>> from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
    >>> from stepwell.testing import ScriptedModel
    >>> agent, screen = Agent(ScriptedModel(["Four."])), RecordingBroadcaster()
    >>> adapter = AgentEventEnvelopeAdapter(screen, "session-1", "execution-1")
    >>> stop_listening = agent.wiretap(adapter.wiretap())
    >>> state = agent.run_sync("What is 2 + 2?")
    >>> [status["payload"]["status"] for status in screen.of_type("agent.status")]
    ['processing', 'completed']
    """

    def __init__(
        self,
        broadcaster: CanBroadcastAgentEvents,
        session_id: str,
        execution_id: str,
        config: BroadcastConfig = STANDARD,
        *,
        channel: str | None = None,
        first_seq: int = 1,
        new_id: IdFactory = new_id,
        clock: Clock | None = None,
    ) -> None:
        """``channel`` is ``agent.{session_id}`` unless another is given. ``first_seq`` is for a
        session that goes on in another process: the ``next_seq`` of the adapter before. ``clock``
        is for statuses that no event brings; events know their time."""
        owner = type(self).__name__
        refuse_what_cannot_broadcast(owner, broadcaster)
        if not isinstance(config, BroadcastConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{owner}: config is {config!r:.80}; give a BroadcastConfig, such as "
                "BroadcastConfig.debug()"
            )
        self.config = config
        channel = f"agent.{session_id}" if channel is None else channel
        self._outbox = Outbox(
            broadcaster,
            config,
            session_id=checked_text(owner, "session_id", session_id),
            channel=checked_text(owner, "channel", channel),
            first_seq=checked_number(owner, "first_seq", first_seq),
            new_id=new_id,
        )
        self._clock = clock or SystemClock()
        self._projector = Projector(checked_text(owner, "execution_id", execution_id), config)
        self._lock = threading.Lock()
        """A status by hand may come from another thread."""
        self._handlers: dict[type[AgentEvent], Callable[[Any], Awaitable[None] | None]] = {
            AgentExecutionStarted: self.on_agent_execution_started,
            AgentStepStarted: self.on_agent_step_started,
            AgentStepCompleted: self.on_agent_step_completed,
            ToolCallStarted: self.on_tool_call_started,
            ToolCallCompleted: self.on_tool_call_completed,
            ToolCallBlocked: self.on_tool_call_blocked,
            ContinuationEvaluated: self.on_continuation_evaluated,
            StreamEventReceived: self.on_stream_chunk,
            InferenceRetryScheduled: self.on_inference_retry_scheduled,
            SubagentSpawning: self.on_subagent_spawning,
            AgentFailed: self.on_agent_failed,
            AgentFinished: self.on_agent_finished,
        }

    # Wiring

    def wiretap(
        self, state: AgentState | None = None
    ) -> Callable[[AgentEvent], Awaitable[None] | None]:
        """The listener for ``agent.wiretap``: it knows what to do with every event.

        With the state that will be run, only executions of that state are broadcast, also after
        ``reset()``. An agent that several users share tells all their events to every listener, so
        without it one user's run could go to another user's channel.
        """
        if isinstance(state, AgentState):
            self._projector.follow_only(state.agent_id)
        elif state is not None:
            raise ConfigurationError(
                f"adapter.wiretap() was given {type(state).__name__}, which is no AgentState; "
                "write agent.wiretap(adapter.wiretap()), or adapter.wiretap(state) for the runs of "
                "one state"
            )
        return self

    def __call__(self, event: AgentEvent) -> Awaitable[None] | None:
        """Hear any event: the adapter is itself a listener for ``agent.wiretap``."""
        self._projector.expect_beginnings()
        handler = self._handlers.get(type(event))
        return None if handler is None else handler(event)

    def reset(self, execution_id: str | None = None) -> None:
        """Get ready for the next execution, under another id if one is given.

        One that is not over is told as stopped first. Then it is idle and follows the next
        execution that begins; ``seq`` goes on counting.
        """
        next_id = self.execution_id if execution_id is None else execution_id
        next_id = checked_text(type(self).__name__, "execution_id", next_id)
        with self._lock:
            self._outbox.put(*self._projector.reset(next_id, self._clock.now()))

    async def flush(self) -> None:
        """Wait until every envelope so far was sent, failed or was dropped.

        A broadcaster that hangs past its time limit is not waited for; what it still has to send is
        ``waiting``.
        """
        with self._lock:
            self._outbox.put(*self._projector.unsent_ends())
        await self._outbox.flush()

    # How it stands

    @property
    def session_id(self) -> str:
        """Whose envelopes they are."""
        return self._outbox.session_id

    @property
    def channel(self) -> str:
        """Where they are sent."""
        return self._outbox.channel

    @property
    def execution_id(self) -> str:
        """Under which the root agent's envelopes are broadcast."""
        return self._projector.execution_id

    @property
    def status(self) -> BroadcastStatus:
        """Of the execution; its subagents have their own."""
        return self._projector.status

    @property
    def next_seq(self) -> int:
        """The number of the next envelope: the ``first_seq`` for whoever takes over the session."""
        return self._outbox.next_seq

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """The queue of each broadcaster, with its own counts and its last error."""
        return self._outbox.deliveries

    @property
    def delivered(self) -> int:
        """How many envelopes were sent, over all broadcasters."""
        return sum(delivery.delivered for delivery in self.deliveries)

    @property
    def failed(self) -> int:
        """How many envelopes a broadcaster could not send."""
        return sum(delivery.failed for delivery in self.deliveries)

    @property
    def dropped(self) -> int:
        """How many envelopes were given up before a broadcaster saw them."""
        return sum(delivery.dropped for delivery in self.deliveries)

    @property
    def waiting(self) -> int:
        """How many envelopes are queued; those being sent are not counted."""
        return sum(delivery.waiting for delivery in self.deliveries)

    @property
    def last_error(self) -> str | None:
        """What a broadcaster failed of last; of several that failed, the first one's."""
        errors = (delivery.last_error for delivery in self.deliveries)
        return next((error for error in errors if error is not None), None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(execution_id={self.execution_id!r}, status={self.status})"

    # Handlers, for ``agent.on_event``. Those of the execution's or of a step's beginning have to be
    # among the wired ones: they tell which execution to follow.

    def on_agent_execution_started(self, event: AgentExecutionStarted) -> None:
        """Follow this execution, if none is followed yet."""
        self._projector.expect_beginnings()
        self._send(event)

    def on_agent_step_started(self, event: AgentStepStarted) -> None:
        """The first step makes the execution ``processing``; so does the first after a pause."""
        self._send(event)

    def on_agent_step_completed(self, event: AgentStepCompleted) -> None:
        """Tell what the step came to."""
        self._send(event)

    def on_tool_call_started(self, event: ToolCallStarted) -> None:
        """Tell of the call, with its arguments as far as the config says."""
        self._send(event)

    def on_tool_call_completed(self, event: ToolCallCompleted) -> None:
        """Tell of the result."""
        self._send(event)

    def on_tool_call_blocked(self, event: ToolCallBlocked) -> None:
        """Tell of the call and of its refusal: it has no other events."""
        self._send(event)

    def on_continuation_evaluated(self, event: ContinuationEvaluated) -> Awaitable[None] | None:
        """Tell the votes, if the config says so.

        The status follows from ``AgentFailed`` and ``AgentFinished``, which come right after the
        last decision. Where neither handler is wired, it follows from that decision, as soon as the
        returned object is awaited, or at ``flush()`` and ``reset()``.

        Between two steps the returned object waits for sending, if it is awaited: whoever steps by
        hand may leave the event loop here.
        """
        self._send(event)
        if event.outcome.should_continue:
            return self._flush_later(event)
        return Flush(self.flush) if self._projector.follows(event) else None

    def on_stream_chunk(self, event: StreamEventReceived) -> None:
        """Tell a piece of text, if the config says so; one that comes after the execution's end
        is dropped."""
        self._send(event)

    def on_inference_retry_scheduled(self, event: InferenceRetryScheduled) -> None:
        """Tell that the model's provider is waited for, as the reason of the status."""
        self._send(event)

    def on_subagent_spawning(self, event: SubagentSpawning) -> None:
        """Remember for which call the subagent runs."""
        self._send(event)

    def on_agent_failed(self, event: AgentFailed) -> None:
        """The execution is ``failed``, with the text of the error."""
        self._send(event)

    def on_agent_finished(self, event: AgentFinished) -> Awaitable[None] | None:
        """The execution has its last status, or is paused; the returned object waits for sending,
        if it is awaited, as the event bus does."""
        self._send(event)
        return self._flush_later(event)

    def on_agent_status_changed(
        self,
        status: BroadcastStatus | AgentStatus | str,
        error: str | BaseException | None = None,
        last_response: str | None = None,
    ) -> None:
        """Send a status of the execution by hand; after a terminal one it is ignored."""
        word = _status(status)
        if word is None:
            known = ", ".join(BroadcastStatus)
            logger.warning("status %.80r is not sent: it is none of %s", status, known)
            return
        if isinstance(error, BaseException):
            error = text_of(error)
        at, more = self._clock.now(), {"error": error, "last_response": last_response}
        with self._lock:
            self._outbox.put(*self._projector.change_status(word, at, **more))

    # Sending

    def _send(self, event: AgentEvent) -> None:
        with self._lock:
            self._outbox.put(*self._projector.entries(event))

    def _flush_later(self, event: AgentEvent) -> Awaitable[None] | None:
        return self._outbox.flushing() if self._projector.is_root(event) else None


def _status(word: str) -> BroadcastStatus | None:
    try:
        return BroadcastStatus.of(AgentStatus(word))
    except ValueError:
        return next((status for status in BroadcastStatus if status == word), None)

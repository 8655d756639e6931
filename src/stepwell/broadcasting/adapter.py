"""Broadcasts the journal entries of one execution, and of its subagents, as envelopes.

The projector makes the entries; here they get ids and numbers and go into the queues of the
broadcasters; the deliveries send them. No handler waits, and none raises.
"""

import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.checks import (
    check_number,
    check_text,
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

    It follows the first execution that begins after its construction or after ``reset()``, and
    ignores other executions on the same bus. Where an agent serves several users,
    ``wiretap(state)`` says which execution to follow. The end of a run waits a moment for the
    envelopes to be sent; ``flush()`` waits until all are.

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
        """``channel`` defaults to ``agent.{session_id}``. For a session that continues in another
        process, ``first_seq`` is the ``next_seq`` of the previous adapter. ``clock`` dates statuses
        that are sent by hand; events have their own time."""
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
            session_id=check_text(owner, "session_id", session_id),
            channel=check_text(owner, "channel", channel),
            first_seq=check_number(owner, "first_seq", first_seq),
            new_id=new_id,
        )
        self._clock = clock or SystemClock()
        self._projector = Projector(check_text(owner, "execution_id", execution_id), config)
        self._lock = threading.Lock()
        """A status that is sent by hand may come from another thread."""
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
        """Return the listener for ``agent.wiretap``, which handles every event.

        Given the state that will be run, it broadcasts only executions of that state, also after
        ``reset()``. An agent that several users share sends all events to every listener, so
        without the state one user's run could reach another user's channel."""
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
        """Handle any event: the adapter itself is a listener for ``agent.wiretap``."""
        self._projector.expect_beginnings()
        handler = self._handlers.get(type(event))
        return None if handler is None else handler(event)

    def reset(self, execution_id: str | None = None) -> None:
        """Prepare for the next execution, under another id if one is given.

        An execution that is not over is broadcast as stopped first. Then the adapter is idle and
        follows the next execution that begins; ``seq`` keeps counting.
        """
        next_id = self.execution_id if execution_id is None else execution_id
        next_id = check_text(type(self).__name__, "execution_id", next_id)
        with self._lock:
            self._outbox.put(*self._projector.reset(next_id, self._clock.now()))

    async def flush(self) -> None:
        """Wait until every envelope so far is sent, has failed or was dropped.

        It does not wait for a broadcaster that hangs past its time limit; ``waiting`` counts what
        that one still has to send.
        """
        with self._lock:
            self._outbox.put(*self._projector.unsent_ends())
        await self._outbox.flush()

    # State

    @property
    def session_id(self) -> str:
        """The session of the envelopes."""
        return self._outbox.session_id

    @property
    def channel(self) -> str:
        """The channel that they are sent on."""
        return self._outbox.channel

    @property
    def execution_id(self) -> str:
        """The execution id of the root agent's envelopes."""
        return self._projector.execution_id

    @property
    def status(self) -> BroadcastStatus:
        """The status of the execution; subagents have their own."""
        return self._projector.status

    @property
    def next_seq(self) -> int:
        """The number of the next envelope: ``first_seq`` for the adapter that continues the
        session."""
        return self._outbox.next_seq

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """The queue of each broadcaster, with its counts and its last error."""
        return self._outbox.deliveries

    @property
    def delivered(self) -> int:
        """The number of envelopes sent, over all broadcasters."""
        return sum(delivery.delivered for delivery in self.deliveries)

    @property
    def failed(self) -> int:
        """The number of envelopes that a broadcaster could not send."""
        return sum(delivery.failed for delivery in self.deliveries)

    @property
    def dropped(self) -> int:
        """The number of envelopes dropped before a broadcaster saw them."""
        return sum(delivery.dropped for delivery in self.deliveries)

    @property
    def waiting(self) -> int:
        """The number of queued envelopes; those being sent do not count."""
        return sum(delivery.waiting for delivery in self.deliveries)

    @property
    def last_error(self) -> str | None:
        """The last error of a broadcaster; of several that failed, of the first one."""
        errors = (delivery.last_error for delivery in self.deliveries)
        return next((error for error in errors if error is not None), None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(execution_id={self.execution_id!r}, status={self.status})"

    # Handlers, for ``agent.on_event``. Wire the one for the start of an execution or of a step:
    # it says which execution to follow.

    def on_agent_execution_started(self, event: AgentExecutionStarted) -> None:
        """Follow this execution, if none is followed yet."""
        self._projector.expect_beginnings()
        self._send(event)

    def on_agent_step_started(self, event: AgentStepStarted) -> None:
        """Send the start of a step. The first one, also after a pause, sets ``processing``."""
        self._send(event)

    def on_agent_step_completed(self, event: AgentStepCompleted) -> None:
        """Send the end of a step."""
        self._send(event)

    def on_tool_call_started(self, event: ToolCallStarted) -> None:
        """Send the start of a call, with its arguments if the config includes them."""
        self._send(event)

    def on_tool_call_completed(self, event: ToolCallCompleted) -> None:
        """Send the result of a call."""
        self._send(event)

    def on_tool_call_blocked(self, event: ToolCallBlocked) -> None:
        """Send the call and its refusal: a blocked call has no other events."""
        self._send(event)

    def on_continuation_evaluated(self, event: ContinuationEvaluated) -> Awaitable[None] | None:
        """Send the votes, if the config includes them.

        The status follows from ``AgentFailed`` and ``AgentFinished``, which come right after the
        last decision. If neither handler is wired, it follows from that decision, when the returned
        object is awaited, or at ``flush()`` and ``reset()``.

        Between two steps, awaiting the returned object waits until the envelopes are sent: code
        that steps by hand may leave the event loop here.
        """
        self._send(event)
        if event.outcome.should_continue:
            return self._flush_later(event)
        return Flush(self.flush) if self._projector.follows(event) else None

    def on_stream_chunk(self, event: StreamEventReceived) -> None:
        """Send a piece of text, if the config includes it. After the end of the execution it is
        dropped."""
        self._send(event)

    def on_inference_retry_scheduled(self, event: InferenceRetryScheduled) -> None:
        """Send the wait for the provider, as the reason of the status."""
        self._send(event)

    def on_subagent_spawning(self, event: SubagentSpawning) -> None:
        """Remember the call that the subagent runs for."""
        self._send(event)

    def on_agent_failed(self, event: AgentFailed) -> None:
        """Send the status ``failed`` with the text of the error."""
        self._send(event)

    def on_agent_finished(self, event: AgentFinished) -> Awaitable[None] | None:
        """Send the final status, or that the execution is paused. Awaiting the returned object, as
        the event bus does, waits until the envelopes are sent."""
        self._send(event)
        return self._flush_later(event)

    def on_agent_status_changed(
        self,
        status: BroadcastStatus | AgentStatus | str,
        error: str | BaseException | None = None,
        last_response: str | None = None,
    ) -> None:
        """Send a status of the execution by hand. It is ignored after a terminal status."""
        word = _status(status)
        if word is None:
            known = ", ".join(BroadcastStatus)
            logger.warning("status %.80r is not sent: unknown status; known: %s", status, known)
            return
        if isinstance(error, BaseException):
            error = text_of(error)
        at, more = self._clock.now(), {"error": error, "last_response": last_response}
        with self._lock:
            self._outbox.put(*self._projector.change_status(word, at, **more))

    # BroadcastCall

    def _send(self, event: AgentEvent) -> None:
        with self._lock:
            self._outbox.put(*self._projector.entries(event))

    def _flush_later(self, event: AgentEvent) -> Awaitable[None] | None:
        return Flush(self._outbox.flush) if self._projector.is_root(event) else None


def _status(word: str) -> BroadcastStatus | None:
    try:
        return BroadcastStatus.of(AgentStatus(word))
    except ValueError:
        return next((status for status in BroadcastStatus if status == word), None)

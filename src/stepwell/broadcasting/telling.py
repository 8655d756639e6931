"""Tells what an execution is and what ends with it: statuses, responses and calls that broke off.

Only the adapter uses it; it says when.
"""

import logging
from datetime import datetime

from stepwell.broadcasting import payloads
from stepwell.broadcasting.envelope import BroadcastStatus, EnvelopeType, Payload, StatusPayload
from stepwell.broadcasting.executions import TrackedExecution
from stepwell.broadcasting.outbox import Outbox

logger = logging.getLogger("stepwell.broadcasting")


class Telling:
    """What is told of one execution and of its subagents."""

    def __init__(self, outbox: Outbox, *, tracks_statuses: bool) -> None:
        self._outbox = outbox
        self._tracks_statuses = tracks_statuses

    def send(
        self, run: TrackedExecution, type: EnvelopeType, payload: Payload, at: datetime
    ) -> None:
        """Tell it."""
        self._outbox.put(run.id, type, payload, at)

    def follow(self, run: TrackedExecution, payload: StatusPayload, at: datetime) -> None:
        """A status that an event brings, if statuses follow from events."""
        if self._tracks_statuses:
            self.move(run, payload, at)
        elif payload.status.is_terminal:
            self._end_below(run, payload.status, at)

    def move(self, run: TrackedExecution, payload: StatusPayload, at: datetime) -> None:
        """Tell a status; after a terminal one there is none."""
        if run.status.is_terminal:
            logger.debug(
                "execution %s is %s; the status %s is not sent",
                run.id,
                run.status,
                payload.status,
            )
            return
        if payload.status.is_terminal:
            self.close(run, at)
            self._end_below(run, payload.status, at)
        self.send(run, EnvelopeType.STATUS, payload, at)
        run.status = payload.status

    def _end_below(self, run: TrackedExecution, status: BroadcastStatus, at: datetime) -> None:
        for child in run.unfinished():
            self.leave_behind(child, at, cancelled=status is BroadcastStatus.CANCELLED)

    def leave_behind(self, run: TrackedExecution, at: datetime, *, cancelled: bool) -> None:
        """It never told how it ended, and what it belongs to is over."""
        self.close(run, at)
        self.follow(run, payloads.left_behind(run, cancelled=cancelled), at)

    def close(self, run: TrackedExecution, at: datetime) -> None:
        """Between steps neither a response nor a call is under way."""
        self.close_text(run, at)
        for call_id in tuple(run.open_calls):
            self.give_up(run, call_id, at)

    def close_text(self, run: TrackedExecution, at: datetime) -> None:
        """A response that broke off has no last chunk of its own."""
        newest, run.open_text = run.open_text, None
        if newest is not None:
            self.send(run, EnvelopeType.STREAM_CHUNK, payloads.last_chunk(run, newest), at)

    def give_up(self, run: TrackedExecution, call_id: str, at: datetime) -> None:
        """A call without a result has none to wait for any more."""
        call = run.open_calls.pop(call_id, None)
        if call is not None:
            run.given_up_calls.add(call_id)
            payload = payloads.tool_given_up(run, call, at)
            self.send(run, EnvelopeType.TOOL_COMPLETED, payload, at)

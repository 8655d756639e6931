"""The queue between a run and one broadcaster: bounded, in order, beside the run.

Whatever the broadcaster does (raise, block, never return), the run neither waits nor fails; what
could not be sent is counted and logged.
"""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.delivery.backlog import Backlog, Mark, Queued
from stepwell.broadcasting.delivery.broadcast_call import BroadcastCall
from stepwell.broadcasting.delivery.calling_thread import CallingThread
from stepwell.broadcasting.delivery.trouble import Trouble
from stepwell.clock import Clock, SystemClock

LONGEST_ERROR = 300


class Delivery:
    """Sends the envelopes of one broadcaster in order, beside the run.

    It works over several event loops, one after the other: what is unsent when a loop ends stays
    queued and is sent on the next one; a log record says how much. The broadcaster is called once
    at a time, also when a call hangs.

    >>> from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
    >>> recorder = RecordingBroadcaster()
    >>> delivery = Delivery(recorder, max_queued=100, send_timeout=5.0)
    >>> delivery.put("agent.42", {"type": "agent.status"})
    >>> asyncio.run(delivery.flush())
    >>> delivery.delivered, recorder.channels
    (1, ('agent.42',))
    """

    def __init__(
        self,
        broadcaster: CanBroadcastAgentEvents,
        *,
        max_queued: int,
        send_timeout: float,
        clock: Clock | None = None,
    ) -> None:
        self._broadcaster = broadcaster
        self._send_timeout = send_timeout
        self._clock = clock or SystemClock()
        self._caller = CallingThread()
        self._backlog = Backlog(max_queued)
        self._trouble = Trouble(type(broadcaster).__name__)
        self._lock = threading.RLock()
        self._worker: asyncio.Task[None] | None = None
        self._hanging: BroadcastCall | None = None
        self._delivered = 0

    @property
    def broadcaster(self) -> CanBroadcastAgentEvents:
        """The broadcaster that it sends to."""
        return self._broadcaster

    @property
    def delivered(self) -> int:
        """Envelopes that were sent."""
        return self._delivered

    @property
    def failed(self) -> int:
        """Envelopes that the broadcaster raised at, or did not send in time."""
        return self._trouble.failed

    @property
    def dropped(self) -> int:
        """Envelopes that were dropped before the broadcaster saw them."""
        return self._trouble.dropped

    @property
    def waiting(self) -> int:
        """Queued envelopes, without the one being sent."""
        return len(self._backlog)

    @property
    def last_error(self) -> str | None:
        """The last error of the broadcaster."""
        return self._trouble.last_error

    def put(self, channel: str, envelope: Mapping[str, Any]) -> None:
        """Queue an envelope without waiting or raising. A full queue drops, streamed text first."""
        with self._lock:
            if self._backlog.add(Queued(channel, envelope)):
                self._trouble.drop()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # it waits until an event loop runs
        if not self._ends(loop):
            self._work_on(loop)

    async def flush(self) -> None:
        """Wait until all that was put so far is sent, has failed or was dropped.

        It does not wait for a broadcaster that hangs past its time limit: what is queued then stays
        queued (see ``waiting``), and is sent if the broadcaster returns.
        """
        loop = asyncio.get_running_loop()
        mark = Mark(loop.create_future())
        with self._lock:
            self._backlog.mark(mark)
        self._let_go_if_late()
        self._work_on(loop)
        await mark.reached
        self._trouble.sum_up()

    def _work_on(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            worker = self._worker
            if worker is not None and not worker.done() and worker.get_loop().is_running():
                return
            if not self._backlog.is_empty:
                self._worker = loop.create_task(self._work(), name="stepwell-broadcasting")
                self._worker.add_done_callback(self._handle_stop)

    def _ends(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the loop is ending: its worker was cancelled, and a new one would come too
        late."""
        worker = self._worker
        return worker is not None and worker.cancelled() and worker.get_loop() is loop

    async def _work(self) -> None:
        await self._wait_while_it_hangs()
        while (item := self._next()) is not None:
            if isinstance(item, Mark):
                item.release()
            else:
                await self._send(item)
                await self._wait_while_it_hangs()

    def _next(self) -> Queued | Mark | None:
        """Return the next item; None ends the worker. Under the lock, so that no envelope is
        missed."""
        with self._lock:
            if self._worker is not asyncio.current_task():
                return None  # its event loop stopped, and another one took over
            item = self._backlog.take()
            if item is None:
                self._worker = None
                self._trouble.end_burst_if_well()
            return item

    async def _send(self, item: Queued) -> None:
        call = BroadcastCall(
            self._broadcaster, self._caller, self._clock, self._trouble.report_blocking
        )
        try:
            error = await call.outcome(item.channel, item.envelope, self._send_timeout)
        except asyncio.CancelledError:
            with self._lock:
                if call.has_begun:
                    self._trouble.fail("the event loop ended while it was sending")
                else:
                    self._backlog.put_back(item)
            raise
        finally:
            self._hanging = None if call.is_over else call
        with self._lock:
            if error is None:
                self._delivered += 1
                self._trouble.note_success()
            else:
                self._trouble.fail(error[:LONGEST_ERROR])

    async def _wait_while_it_hangs(self) -> None:
        """Wait for a call that has not returned, so that no second one begins."""
        while (call := self._hanging) is not None and not call.is_over:
            self._let_go_if_late()
            await call.over(self._send_timeout)
        self._hanging = None

    def _let_go_if_late(self) -> None:
        """Release those who flush if the broadcaster hangs past its time limit."""
        with self._lock:
            if self._hanging is None or self._hanging.is_over or not self._hanging.is_late:
                return
            for mark in self._backlog.take_marks():
                mark.release()

    def _handle_stop(self, worker: "asyncio.Task[None]") -> None:
        if worker.cancelled() and worker is self._worker:
            with self._lock:
                for mark in self._backlog.take_marks():
                    mark.release()
                self._trouble.report_unsent(self.waiting)

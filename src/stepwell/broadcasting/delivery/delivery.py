"""Owns the queue between a run and one broadcaster: bounded, in order, beside the run.

Whatever the broadcaster does (raise, block, never return), the run neither waits nor fails; what
could not be sent is counted and logged.
"""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from stepwell.broadcasting.broadcaster import CanBroadcastAgentEvents
from stepwell.broadcasting.delivery.backlog import Backlog, Mark, Queued
from stepwell.broadcasting.delivery.calling_thread import CallingThread
from stepwell.broadcasting.delivery.sending import Sending
from stepwell.broadcasting.delivery.trouble import Trouble
from stepwell.clock import Clock, SystemClock

LONGEST_ERROR = 300


class Delivery:
    """Sends the envelopes of one broadcaster in order, beside the run.

    It works over several event loops, one after the other: what the end of a loop left unsent
    stays queued and is sent on the next one; a log record says how much. One call at a time goes
    into the broadcaster, also when one hangs.

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
        self._hanging: Sending | None = None
        self._delivered = 0

    @property
    def broadcaster(self) -> CanBroadcastAgentEvents:
        """Where it sends to."""
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
        """Envelopes that were given up before the broadcaster saw them."""
        return self._trouble.dropped

    @property
    def waiting(self) -> int:
        """Envelopes that are queued; not counted is the one being sent."""
        return len(self._backlog)

    @property
    def last_error(self) -> str | None:
        """What the broadcaster failed of last."""
        return self._trouble.last_error

    def put(self, channel: str, envelope: Mapping[str, Any]) -> None:
        """Queue it. Never waits and never raises; a full queue drops, streamed text first."""
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
                self._worker.add_done_callback(self._stopped)

    def _ends(self, loop: asyncio.AbstractEventLoop) -> bool:
        """The worker is cancelled when its event loop ends; another would be one task too late."""
        worker = self._worker
        return worker is not None and worker.cancelled() and worker.get_loop() is loop

    async def _work(self) -> None:
        await self._wait_while_it_hangs()
        while (item := self._next()) is not None:
            if isinstance(item, Mark):
                item.tell()
            else:
                await self._send(item)
                await self._wait_while_it_hangs()

    def _next(self) -> Queued | Mark | None:
        """The worker ends with the queue, under the lock, so that no envelope is overlooked."""
        with self._lock:
            if self._worker is not asyncio.current_task():
                return None  # its event loop stood still, and another one took over
            item = self._backlog.take()
            if item is None:
                self._worker = None
                self._trouble.all_is_sent()
            return item

    async def _send(self, item: Queued) -> None:
        sending = Sending(self._broadcaster, self._caller, self._clock, self._trouble.held_up)
        try:
            error = await sending.outcome(item.channel, item.envelope, self._send_timeout)
        except asyncio.CancelledError:
            with self._lock:
                if sending.has_begun:
                    self._trouble.fail("the event loop ended while it was sending")
                else:
                    self._backlog.put_back(item)
            raise
        finally:
            self._hanging = None if sending.is_over else sending
        with self._lock:
            if error is None:
                self._delivered += 1
                self._trouble.succeeded()
            else:
                self._trouble.fail(error[:LONGEST_ERROR])

    async def _wait_while_it_hangs(self) -> None:
        """No second call goes into a broadcaster that has not returned from the first."""
        while (sending := self._hanging) is not None and not sending.is_over:
            self._let_go_if_late()
            await sending.over(self._send_timeout)
        self._hanging = None

    def _let_go_if_late(self) -> None:
        """Whoever flushes does not wait for a broadcaster that hangs."""
        with self._lock:
            if self._hanging is None or self._hanging.is_over or not self._hanging.is_late:
                return
            for mark in self._backlog.take_marks():
                mark.tell()

    def _stopped(self, worker: "asyncio.Task[None]") -> None:
        if worker.cancelled() and worker is self._worker:
            with self._lock:
                for mark in self._backlog.take_marks():
                    mark.tell()
                self._trouble.left_unsent(self.waiting)

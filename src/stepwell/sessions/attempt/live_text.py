"""The text that all runs of a process are generating, on its way to those who follow it.

It is no row of the journal: deltas go to the bus many times a second, and the text so far is stored
about once a second, by one transaction for all runs, for those who join in the middle.
"""

import asyncio
import logging
from datetime import datetime

from stepwell.clock import Clock
from stepwell.sessions.bus import Delta, OpenText
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store

logger = logging.getLogger("stepwell.sessions")

PUBLISH_SECONDS = 0.04
STORE_SECONDS = 1.0


class ResponseText:
    """One response that is being generated. Only its run adds to it."""

    def __init__(self, run_id: str, first: Delta) -> None:
        self.run_id = run_id
        """The root execution of the run."""
        self._first = first
        self._pieces = [first.text]
        self._sent_pieces = 0
        self._sent = self._stored = 0
        self._end = len(first.text)

    def add(self, text: str) -> None:
        """Append a piece."""
        self._pieces.append(text)
        self._end += len(text)

    def take_delta(self) -> Delta | None:
        """Return what was added since the last call."""
        if self._sent == self._end:
            return None
        first, unsent = self._first, "".join(self._pieces[self._sent_pieces :])
        delta = Delta(
            session_id=first.session_id,
            execution_id=first.execution_id,
            attempt=first.attempt,
            step_number=first.step_number,
            chunk_index=self._sent_pieces,
            offset=self._sent,
            text=unsent,
            response_index=first.response_index,
        )
        self._sent, self._sent_pieces = self._end, len(self._pieces)
        return delta

    def take_text(self, at: datetime) -> OpenText | None:
        """Return the text so far if it grew since the last call."""
        if self._stored == self._end:
            return None
        self._stored = self._end
        self._pieces = ["".join(self._pieces)] if self._sent == self._end else self._pieces
        self._sent_pieces = min(self._sent_pieces, len(self._pieces))
        return OpenText(
            session_id=self._first.session_id,
            execution_id=self._first.execution_id,
            attempt=self._first.attempt,
            step_number=self._first.step_number,
            response_index=self._first.response_index,
            text="".join(self._pieces),
            updated_at=at,
        )


class LiveText:
    """Collects the open responses of a worker. Its tasks run while there are any."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._open: dict[str, ResponseText] = {}
        self._last: list[Delta] = []
        self._stored: dict[str, str] = {}
        """The run of each execution that has a stored text."""
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, run_id: str, first: Delta) -> ResponseText:
        """Begin the response that this delta is the first of."""
        self.end(first.execution_id)
        response = self._open[first.execution_id] = ResponseText(run_id, first)
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._keep_publishing(), name="live text publisher"),
                asyncio.create_task(self._keep_storing(), name="live text keeper"),
            ]
        return response

    def end(self, execution_id: str) -> None:
        """End the open response of an execution, if it has one; the journal has it from now on."""
        response = self._open.pop(execution_id, None)
        if response is not None and (delta := response.take_delta()) is not None:
            self._last.append(delta)

    async def end_run(self, run_id: str) -> None:
        """End what a run left open, and forget what is stored of it."""
        for execution_id in [id for id, it in self._open.items() if it.run_id == run_id]:
            self.end(execution_id)
        closed = [id for id, run in self._stored.items() if run == run_id]
        for execution_id in closed:
            del self._stored[execution_id]
        if not self._open:
            self._publish()
            for task in self._tasks:
                task.cancel()
            self._tasks = []
        if closed:
            await self._save([], closed)

    async def _keep_publishing(self) -> None:
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            self._publish()

    def _publish(self) -> None:
        deltas, self._last = self._last, []
        deltas += [it for response in self._open.values() if (it := response.take_delta())]
        if deltas:
            self._store.bus.publish_deltas(deltas)

    async def _keep_storing(self) -> None:
        while True:
            await asyncio.sleep(STORE_SECONDS)
            at = self._clock.now()
            texts = [it for response in self._open.values() if (it := response.take_text(at))]
            closed = [id for id in self._stored if id not in self._open]
            for execution_id in closed:
                del self._stored[execution_id]
            for text in texts:
                self._stored[text.execution_id] = self._open[text.execution_id].run_id
            if texts or closed:
                await self._save(texts, closed)

    async def _save(self, texts: list[OpenText], closed: list[str]) -> None:
        try:
            await self._store.write(
                lambda tx: tx.save_open_texts(texts, closed=closed), name="open_texts"
            )
        except StoreUnavailableError as error:
            logger.warning("the text that is being generated is not stored: %s", error)

"""The worker: claims executions whenever it has free slots, in the server's process or alone.

Any number of workers may share one database. The table of executions is the queue.
"""

import asyncio

from stepwell.sessions.ports import WORK_TOPIC, Store
from stepwell.sessions.settings import SessionSettings
from stepwell.worker.work import Work


class Worker:
    """Claims executions and runs them until it is stopped.

    It looks for work when the bus says so, when a slot gets free, and every
    ``settings.poll_seconds`` for what the bus does not say: expired leases, lost notifications.
    """

    def __init__(self, store: Store, work: Work, settings: SessionSettings | None = None) -> None:
        self._store = store
        self._work = work
        self._settings = settings or SessionSettings()
        self._taken: set[asyncio.Task[None]] = set()
        self._look = asyncio.Event()
        self._stopping = False
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    async def run(self) -> None:
        """Work until ``stop`` is called and running executions are handed back."""
        self._at_rest.clear()
        listening = asyncio.create_task(self._listen(), name="listen for work")
        # If it ever fails, the loop below notices.
        listening.add_done_callback(lambda _: self._look.set())
        try:
            while not self._stopping:
                self._look.clear()
                await self._take_some()
                await self._look.wait()
                if listening.done():
                    listening.result()
            await self._work.shut_down()
        finally:
            await _cancel(listening, *self._taken)
            self._at_rest.set()

    async def stop(self) -> None:
        """Stop claiming, hand back what runs, and return when that is done."""
        self._stopping = True
        self._look.set()
        await self._at_rest.wait()

    async def _listen(self) -> None:
        async with self._store.bus.subscribe(WORK_TOPIC) as news:
            while True:
                await news.wait(self._settings.poll_seconds)
                self._look.set()

    async def _take_some(self) -> None:
        for taken in await self._work.take_some():
            self._taken.add(taken)
            taken.add_done_callback(self._on_slot_free)

    def _on_slot_free(self, taken: asyncio.Task[None]) -> None:
        self._taken.discard(taken)
        self._look.set()


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

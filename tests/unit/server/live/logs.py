"""A log in memory that feeds can read: it counts reads, can be cut short and can be away."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from stepwell.sessions.bus import OpenText
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import Store, Transaction, session_topic
from stepwell.sessions.records import ApiKeyRecord, Execution, Session, StoredEntry
from stepwell.stores.bus.local_bus import LocalBus
from stepwell.testing.clock import DEFAULT_START


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens in its own time."""
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


class LogInMemory:
    """The events of one session, as a store that knows nothing else."""

    def __init__(self, session_id: str = "s1") -> None:
        self.bus = LocalBus()
        self.session_id = session_id
        self.events: list[StoredEntry] = []
        self.newest = 0
        self.reads = 0
        self.failures: list[BaseException] = []

        self.owner = "ada"
        self.marker: int | None = 0
        self.looks = 0
        self.executions: list[Execution] = []
        self.stored_texts: list[OpenText] = []
        self.read_sessions: list[list[str]] = []

    def append(self, count: int = 1, text: str = "x", *, is_told: bool = True) -> None:
        for _ in range(count):
            self.newest += 1
            self.events.append(
                StoredEntry(
                    tenant_id="t",
                    session_id=self.session_id,
                    seq=self.newest,
                    type="agent.stream.chunk",
                    payload={"content": text},
                    created_at=DEFAULT_START,
                )
            )
        if is_told:
            self.bus.publish(session_topic(self.session_id))

    def forget(self, up_to: int) -> None:
        self.events = [event for event in self.events if event.seq > up_to]

    def go_away(self, times: int) -> None:
        self.failures += [StoreUnavailableError("gone for lunch")] * times

    async def read(self, work: Callable[[Transaction], Awaitable[Any]], /) -> Any:
        self.reads += 1
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop()
        result = await work(cast("Transaction", self))
        await asyncio.sleep(0)
        return result

    async def change_marker(self) -> int | None:
        self.looks += 1
        return self.marker

    async def sessions_with_news(self, known: Mapping[str, int], /) -> Sequence[str]:
        return [id for id, seq in known.items() if id == self.session_id and seq < self.newest]

    async def sessions_by_id(self, session_ids: Sequence[str], /) -> Mapping[str, Session]:
        found = [await self.session(id) for id in session_ids]
        self.read_sessions.append(sorted(session_ids))
        return {session.id: session for session in found if session is not None}

    async def api_keys_by_id(self, key_ids: Sequence[str], /) -> Mapping[str, ApiKeyRecord]:
        return {}

    async def unfinished(self, session_id: str, /) -> Sequence[Execution]:
        return self.executions

    async def open_texts(self, session_id: str, /) -> Sequence[OpenText]:
        return self.stored_texts

    async def entries_after(
        self, session_id: str, seq: int, *, limit: int
    ) -> Sequence[StoredEntry]:
        assert session_id == self.session_id
        return [event for event in self.events if event.seq > seq][:limit]

    async def entry_range(self, session_id: str, /) -> tuple[int, int]:
        assert session_id == self.session_id
        oldest = self.events[0].seq if self.events else self.newest + 1
        return oldest, self.newest

    async def session(self, session_id: str, /) -> Session | None:
        if session_id != self.session_id:
            return None
        return Session(
            id=session_id,
            tenant_id="default",
            user_id=self.owner,
            agent_type="helper",
            created_at=DEFAULT_START,
            updated_at=DEFAULT_START,
        )

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

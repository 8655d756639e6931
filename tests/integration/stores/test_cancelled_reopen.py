"""A heartbeat opens the database a second time, from its own thread, and may give up in the middle.
What the driver's thread opens then is closed, not lost."""

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from stepwell.sessions.ports import Store
from stepwell.stores.database_url import open_store


class SlowConnection(sqlite3.Connection):
    """A connection that takes a while to open, and notes whether it was closed."""

    begun = threading.Event()
    made: "list[SlowConnection]"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.begun.set()
        threading.Event().wait(0.3)
        super().__init__(*arguments, **options)
        self.is_closed = False
        self.made.append(self)

    def close(self) -> None:
        self.is_closed = True
        super().close()


async def test_a_cancelled_reopen_closes_what_it_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'a.db'}")
    monkeypatch.setattr(SlowConnection, "made", [], raising=False)
    monkeypatch.setattr(sqlite3, "Connection", SlowConnection)
    try:
        await asyncio.to_thread(_reopen_and_give_up, store)
    finally:
        await store.close()

    assert [it.is_closed for it in SlowConnection.made] == [True]


def _reopen_and_give_up(store: Store) -> None:
    async def give_up() -> None:
        opening = asyncio.create_task(store.reopen())
        await asyncio.to_thread(SlowConnection.begun.wait)
        opening.cancel()
        [end] = await asyncio.gather(opening, return_exceptions=True)
        assert isinstance(end, asyncio.CancelledError)

    asyncio.run(give_up())

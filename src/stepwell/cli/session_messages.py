"""Reads the messages of a session from the newest back."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwell.sessions.ports import Store
    from stepwell.sessions.records import SessionMessage

PAGE = 500
_SPEAKERS = ("user", "assistant")


def is_spoken(message: "SessionMessage") -> bool:
    """Whether a user or an agent wrote it; other messages are notes on what happened."""
    return message.role.value in _SPEAKERS


async def last_spoken(
    store: "Store", session_id: str, most: int, *, page: int = PAGE
) -> "list[SessionMessage]":
    """Return the last messages that a user or an agent wrote, in order, at most ``most``."""
    found: list[SessionMessage] = []
    async for messages in _pages_back(store, session_id, page):
        found = [*filter(is_spoken, messages), *found]
        if len(found) >= most:
            break
    return found[-most:]


async def all_messages(
    store: "Store", session_id: str, *, page: int = PAGE
) -> "list[SessionMessage]":
    """Return all messages of a session, in order."""
    pages = [messages async for messages in _pages_back(store, session_id, page)]
    return [message for messages in reversed(pages) for message in messages]


async def _pages_back(
    store: "Store", session_id: str, page: int
) -> "AsyncIterator[list[SessionMessage]]":
    before = None
    while True:
        messages = await store.read(
            lambda tx, at=before: tx.messages(session_id, before=at, limit=page)
        )
        yield list(messages)
        if len(messages) < page:
            return
        before = (messages[0].created_at, messages[0].id)

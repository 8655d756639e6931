"""Checks again whether followers may still follow their sessions, when access may have changed.

One query reads the rows for all followers of the process; each follower calls the application's own
rule for itself, so that a slow rule delays nobody else.
"""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stepwell.server.policy import may_follow, may_still_follow
from stepwell.sessions.errors import StoreUnavailableError
from stepwell.sessions.ports import ACCESS_TOPIC, Store, Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import ApiKeyRecord, Session

if TYPE_CHECKING:
    from stepwell.server.services import Services

logger = logging.getLogger("stepwell.server")

LOCAL_SECONDS = 3.0
"""Seconds between checks if the bus does not reach other processes."""
SHARED_SECONDS = 30.0
"""Seconds between checks otherwise: a bus may lose messages, and the rule may change."""


class AccessCheck:
    """One follower with the rows that decide about its access."""

    def __init__(self, session_id: str, key_id: str | None) -> None:
        self.session_id = session_id
        self.key_id = key_id
        self.is_read = False
        self.session: Session | None = None
        self.key: ApiKeyRecord | None = None
        self.due = asyncio.Event()


class AccessWatch:
    """Reads the rows for all followers of a process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._checks: set[AccessCheck] = set()
        self._marker: int | None = None
        self._reader: asyncio.Task[None] | None = None

    @contextmanager
    def register(self, session_id: str, key_id: str | None) -> Generator[AccessCheck]:
        """Yield a check whose ``due`` is set whenever access may have changed."""
        check = AccessCheck(session_id, key_id)
        self._checks.add(check)
        if self._reader is None:
            self._reader = asyncio.create_task(self._keep_reading(), name="access watch")
        try:
            yield check
        finally:
            self._checks.discard(check)
            if not self._checks:
                self._reader.cancel()
                self._reader = None

    async def _keep_reading(self) -> None:
        bus = self._store.bus
        async with bus.subscribe(ACCESS_TOPIC) as news:
            while True:
                await news.wait(SHARED_SECONDS if bus.reaches_all else LOCAL_SECONDS)
                try:
                    await self._read_if_changed(tuple(self._checks))
                except StoreUnavailableError as error:
                    logger.warning("could not check access to followed sessions: %s", error)

    async def _read_if_changed(self, checks: tuple[AccessCheck, ...]) -> None:
        known, self._marker = self._marker, await self._store.change_marker()
        is_same = known is not None and known == self._marker
        if not is_same or not all(check.is_read for check in checks):
            await self._read(checks)
        for check in checks:
            check.due.set()

    async def _read(self, checks: tuple[AccessCheck, ...]) -> None:
        session_ids = list({check.session_id for check in checks})
        key_ids = list({check.key_id for check in checks if check.key_id is not None})

        async def rows(tx: Transaction) -> None:
            sessions = await tx.sessions_by_id(session_ids)
            keys = await tx.api_keys_by_id(key_ids)
            for check in checks:
                check.is_read = True
                check.session = sessions.get(check.session_id)
                check.key = keys.get(check.key_id or "")

        await self._store.read(rows)


async def until_access_is_lost(
    services: "Services", who: Principal | None, session_id: str
) -> None:
    """Return when the principal may no longer follow the session; without one, when it is gone."""
    key_id = None if who is None else who.key_id
    with services.feeds.access.register(session_id, key_id) as check:
        # Check first: access may have changed while the stream was opened.
        if not await _may_follow_now(services, who, session_id):
            return
        while True:
            await check.due.wait()
            check.due.clear()
            if check.session is None:
                return
            if who is not None and not await may_still_follow(
                services, who, check.session, check.key
            ):
                return


async def _may_follow_now(services: "Services", who: Principal | None, session_id: str) -> bool:
    try:
        if who is not None:
            return await may_follow(services, who, session_id)
        return await services.store.read(lambda tx: tx.session(session_id)) is not None
    except StoreUnavailableError as error:
        logger.warning("could not check access to a followed session: %s", error)
        return True

"""Limits of open live streams per user, and of sockets that have not joined a channel."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from stepwell.server.metrics import Metrics
from stepwell.sessions.errors import TooManyError
from stepwell.sessions.principal import Principal


class Seats:
    """Counts the open streams per user in this process, and limits them."""

    def __init__(self, per_user: int) -> None:
        self._per_user = per_user
        self._taken: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def hold(self, who: Principal) -> Generator[None]:
        """Count one more for the length of a block. Raises ``TooManyError``."""
        user = (who.tenant_id, who.user_id)
        if self._taken[user] >= self._per_user:
            raise TooManyError(
                f"{who.user_id} has {self._per_user} live streams open, the most that "
                "one user may have; close one of them",
                code="too_many_streams",
            )
        self._taken[user] += 1
        try:
            yield
        finally:
            self._taken[user] -= 1
            if not self._taken[user]:
                del self._taken[user]


class WaitingSockets:
    """Limits the sockets that have not joined a channel, so that others have room."""

    def __init__(self, most: int, per_address: int) -> None:
        self._most = most
        self._per_address = per_address
        self._by_address: Counter[str] = Counter()

    @contextmanager
    def hold(self, address: str) -> Generator[None]:
        """Count one more for the length of a block. Raises ``TooManyError``."""
        if self._by_address.total() >= self._most or (
            address and self._by_address[address] >= self._per_address
        ):
            raise TooManyError("too many sockets wait to join a channel", code="too_many_sockets")
        self._by_address[address] += 1
        try:
            yield
        finally:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


@contextmanager
def count_connection(metrics: Metrics, kind: str) -> Generator[None]:
    """Count one more open connection for the length of a block."""
    metrics.live_connections.add(1, kind=kind)
    try:
        yield
    finally:
        metrics.live_connections.add(-1, kind=kind)

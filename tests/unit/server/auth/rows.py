"""The few rows that keys and the guard read, in a dict. Real stores: the integration tests."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from stepwell.sessions.records import ApiKeyRecord, Execution, Session, Snapshot


class Rows:
    """A store and its transaction in one; counts what is read and written."""

    def __init__(self) -> None:
        self.keys: dict[str, ApiKeyRecord] = {}
        self.session_rows: dict[str, Session] = {}
        self.execution_rows: dict[str, Execution] = {}
        self.snapshot_rows: dict[str, Snapshot] = {}
        self.told: list[str] = []
        self.writes: list[str] = []
        self.looked_up: list[str] = []
        self.asked_for: set[str] = set()
        self.before_write: Callable[[], None] = lambda: None
        self.write_fault: Exception | None = None

    async def read(self, work: Callable[[Any], Awaitable[Any]], /) -> Any:
        return await work(self)

    async def write(self, work: Callable[[Any], Awaitable[Any]], /, *, name: str) -> Any:
        if self.write_fault is not None:
            raise self.write_fault
        self.before_write()
        self.writes.append(name)
        return await work(self)

    def tell(self, topic: str, /) -> None:
        self.told.append(topic)

    async def add_api_key(self, key: ApiKeyRecord, /) -> None:
        self.keys[key.prefix] = key

    async def save_api_key(self, key: ApiKeyRecord, /) -> None:
        self.keys[key.prefix] = key

    async def api_key_by_prefix(self, prefix: str, /) -> ApiKeyRecord | None:
        return self.keys.get(prefix)

    async def api_keys_by_id(self, key_ids: Sequence[str], /) -> Mapping[str, ApiKeyRecord]:
        return {key.id: key for key in self.keys.values() if key.id in key_ids}

    async def api_keys(
        self, tenant_id: str, /, *, user_id: str | None = None
    ) -> Sequence[ApiKeyRecord]:
        return [
            key
            for key in self.keys.values()
            if key.tenant_id == tenant_id and user_id in (None, key.user_id)
        ]

    async def session(self, session_id: str, /) -> Session | None:
        self.looked_up.append("session")
        self.asked_for.add(session_id)
        return self.session_rows.get(session_id)

    async def execution(self, execution_id: str, /) -> Execution | None:
        self.looked_up.append("execution")
        self.asked_for.add(execution_id)
        return self.execution_rows.get(execution_id)

    async def snapshot(self, snapshot_id: str, /) -> Snapshot | None:
        self.looked_up.append("snapshot")
        self.asked_for.add(snapshot_id)
        return self.snapshot_rows.get(snapshot_id)


def connection(
    headers: Sequence[tuple[str, str]] = (),
    *,
    client: tuple[str, int] | None = ("127.0.0.1", 5000),
    **scope: Any,
) -> Any:
    """A request with these headers."""
    from starlette.requests import HTTPConnection

    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
    whole = {"type": "http", "method": "GET", "path": "/", "client": client, "headers": raw}
    return HTTPConnection({**whole, **scope})

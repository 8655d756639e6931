"""A clock that only moves when it is advanced, and predictable ids."""

from datetime import UTC, datetime, timedelta

DEFAULT_START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class FakeClock:
    """Time for tests. ``sleep`` moves it on at once instead of waiting.

    >>> clock = FakeClock()
    >>> clock.advance(61)
    >>> clock.now().isoformat(), clock.monotonic()
    ('2026-01-01T12:01:01+00:00', 61.0)
    """

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        self._now = start
        self._monotonic = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        """The time it was set to."""
        return self._now

    def monotonic(self) -> float:
        """Seconds it was moved on."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Move on by that much and note it in ``slept``."""
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move on."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds


class SequentialIds:
    """Ids that count: ``id-1``, ``id-2``, ...

    >>> ids = SequentialIds("run")
    >>> ids(), ids()
    ('run-1', 'run-2')
    """

    def __init__(self, prefix: str = "id") -> None:
        self._prefix = prefix
        self._count = 0

    def __call__(self) -> str:
        self._count += 1
        return f"{self._prefix}-{self._count}"

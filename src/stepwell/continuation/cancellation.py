"""A switch that a caller keeps in hand to end runs, also what they have in flight."""

import threading
from collections.abc import Callable

from stepwell.continuation.signals import StopSignal

OnRequest = Callable[[StopSignal], None]


class Cancellation:
    """Give one to ``run(..., cancellation=...)`` and call ``request`` from any thread.

    >>> cancellation = Cancellation()
    >>> cancellation.request("closed the tab")
    >>> cancellation.requested, cancellation.signal.message
    (True, 'closed the tab')
    """

    def __init__(self) -> None:
        self._signal: StopSignal | None = None
        self._subscribers: list[OnRequest] = []
        self._lock = threading.Lock()

    @property
    def requested(self) -> bool:
        """Whether someone asked to cancel. It stays set."""
        return self._signal is not None

    @property
    def signal(self) -> StopSignal | None:
        """The signal that the run's trace will show, or None."""
        return self._signal

    def request(self, message: str = "", *, source: str = "user") -> None:
        """Ask the runs that hold this switch to end; only the first request counts."""
        with self._lock:
            if self._signal is not None:
                return
            signal = self._signal = StopSignal.user_requested(message, source=source)
            subscribers = tuple(self._subscribers)
        for subscriber in subscribers:
            subscriber(signal)

    def subscribe(self, subscriber: OnRequest) -> None:
        """Call this when cancellation is requested, on the requesting thread."""
        with self._lock:
            self._subscribers.append(subscriber)

    def unsubscribe(self, subscriber: OnRequest) -> None:
        """Stop calling this."""
        with self._lock:
            self._subscribers.remove(subscriber)

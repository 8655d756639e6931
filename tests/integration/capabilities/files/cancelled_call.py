"""A double for the context of a call that nobody waits for any more."""

from typing import Any


class CancelledCall:
    """Cancelled once it was asked so many times."""

    def __init__(self, after: int) -> None:
        self.asks_left = after

    @property
    def is_cancelled(self) -> bool:
        self.asks_left -= 1
        return self.asks_left < 0


def cancelled(after: int = 0) -> Any:
    return CancelledCall(after)

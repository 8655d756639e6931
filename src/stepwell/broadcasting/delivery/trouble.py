"""Counts what a delivery could not send, and logs it once per burst instead of per envelope."""

import logging

logger = logging.getLogger("stepwell.broadcasting")


class Trouble:
    """A burst begins with a failure or a drop and ends when all goes well again, or is flushed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.failed = 0
        self.dropped = 0
        self.last_error: str | None = None
        self._told: tuple[int, int] | None = None
        self._last_went_well = True
        self._held_up_is_told = False

    def fail(self, error: str) -> None:
        """One was not sent."""
        self.last_error = error
        self._last_went_well = False
        self._begin(f"could not send an envelope: {error}")
        self.failed += 1

    def drop(self) -> None:
        """One was given up unsent."""
        self._begin("drops envelopes: its queue is full")
        self.dropped += 1

    def succeeded(self) -> None:
        """One was sent."""
        self._last_went_well = True

    def all_is_sent(self) -> None:
        """The queue is empty; the burst is over unless the last one failed."""
        if self._last_went_well:
            self.sum_up()

    def sum_up(self) -> None:
        """End the burst, if there is one, with its numbers; a single failure was told already."""
        if self._told is None:
            return
        failed, dropped = self.failed - self._told[0], self.dropped - self._told[1]
        self._told = None
        if dropped or failed > 1:
            logger.warning(
                "broadcaster %s: %d envelopes failed and %d were dropped%s",
                self._name,
                failed,
                dropped,
                f"; last error: {self.last_error}" if failed else "",
            )

    def left_unsent(self, count: int) -> None:
        """The event loop ended too early for so many."""
        self.sum_up()
        if count:
            logger.warning(
                "broadcaster %s: the event loop ended before %d envelopes were sent; they wait for "
                "the next one. Await flush() before the loop ends",
                self._name,
                count,
            )

    def held_up(self, seconds: float) -> None:
        """An async broadcaster blocked the event loop, and with it the run; told once."""
        if self._held_up_is_told:
            return
        self._held_up_is_told = True
        logger.warning(
            "broadcaster %s held up the event loop for %.0f ms; an async broadcast() must not "
            "block, a plain function may: it is called in a thread",
            self._name,
            seconds * 1000,
        )

    def _begin(self, what: str) -> None:
        if self._told is None:
            self._told = (self.failed, self.dropped)
            logger.warning("broadcaster %s %s", self._name, what)

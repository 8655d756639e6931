"""Counts what a delivery could not send, and logs it once per burst, not per envelope."""

import logging

logger = logging.getLogger("stepwell.broadcasting")


class Trouble:
    """A burst begins with a failure or a drop and ends with success or a flush."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.failed = 0
        self.dropped = 0
        self.last_error: str | None = None
        self._counts_before: tuple[int, int] | None = None
        self._last_went_well = True
        self._has_reported_blocking = False

    def fail(self, error: str) -> None:
        """Count an envelope that was not sent."""
        self.last_error = error
        self._last_went_well = False
        self._begin(f"could not send an envelope: {error}")
        self.failed += 1

    def drop(self) -> None:
        """Count an envelope that was dropped."""
        self._begin("drops envelopes: its queue is full")
        self.dropped += 1

    def note_success(self) -> None:
        """Note that an envelope was sent."""
        self._last_went_well = True

    def end_burst_if_well(self) -> None:
        """End the burst unless the last envelope failed; called when the queue is empty."""
        if self._last_went_well:
            self.sum_up()

    def sum_up(self) -> None:
        """End the burst, if there is one, and log its counts; a single failure was logged
        already."""
        if self._counts_before is None:
            return
        failed, dropped = (
            self.failed - self._counts_before[0],
            self.dropped - self._counts_before[1],
        )
        self._counts_before = None
        if dropped or failed > 1:
            logger.warning(
                "broadcaster %s: %d envelopes failed and %d were dropped%s",
                self._name,
                failed,
                dropped,
                f"; last error: {self.last_error}" if failed else "",
            )

    def report_unsent(self, count: int) -> None:
        """End the burst and log how many envelopes the event loop left unsent."""
        self.sum_up()
        if count:
            logger.warning(
                "broadcaster %s: the event loop ended before %d envelopes were sent; they are sent "
                "on the next one. Await flush() before the loop ends",
                self._name,
                count,
            )

    def report_blocking(self, seconds: float) -> None:
        """Log, once, that an async broadcaster blocked the event loop and with it the run."""
        if self._has_reported_blocking:
            return
        self._has_reported_blocking = True
        logger.warning(
            "broadcaster %s blocked the event loop for %.0f ms; an async broadcast() must not "
            "block, a plain function may: it is called in a thread",
            self._name,
            seconds * 1000,
        )

    def _begin(self, what: str) -> None:
        if self._counts_before is None:
            self._counts_before = (self.failed, self.dropped)
            logger.warning("broadcaster %s %s", self._name, what)

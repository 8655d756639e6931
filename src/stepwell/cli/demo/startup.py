"""When this process began, for whoever tells how long its start took."""

import time

from stepwell.clock import Clock


def process_start(clock: Clock) -> float:
    """When it began, by that clock; to be asked first of all. Until its command runs, a process
    only loads, so the processor time that it has used is the time that went by. (The age that the
    kernel knows is also that of a shell which became this process.)"""
    return clock.monotonic() - time.process_time()

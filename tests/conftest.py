"""What all tests share.

Those that press Ctrl-C need it to work: whoever runs the tests in the background, as a shell does
with `&`, has it ignored, and processes inherit that.
"""

import gc
import signal

from hypothesis import settings

from tests.examples import LONG

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing on a busy machine.
settings.register_profile("stepwell", deadline=None, max_examples=25)
settings.register_profile(LONG, deadline=None, max_examples=100)
settings.load_profile("stepwell")


def pytest_collection_finish() -> None:
    """What was collected stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()

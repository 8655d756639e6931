"""What all tests share.

Those that press Ctrl-C need it to work: whoever runs the tests in the background, as a shell does
with `&`, has it ignored, and processes inherit that.
"""

import signal

from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says nothing on a busy machine.
settings.register_profile("stepwell", deadline=None)
settings.load_profile("stepwell")

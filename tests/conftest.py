"""Tests that press Ctrl-C need it to work: whoever runs the tests in the background, as a shell
does with `&`, has it ignored, and processes inherit that."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

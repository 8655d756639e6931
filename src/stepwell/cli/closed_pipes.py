"""Output that nobody reads any more, as after ``| head -1``: no fault of who reads a result."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def while_read() -> Generator[None]:
    """Leave the block, quietly, once its output is not read any more; what is written later goes
    nowhere. For commands whose exit code says more than that they told something."""
    try:
        yield
    except BrokenPipeError:
        forget_output()


def forget_output() -> None:
    """Throw away what can't be written: the interpreter would try again at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)

"""A server in a process of its own: started on a free port, ended by its id.

Servers are started on port 0 and print which port they got, so nothing can take it in between.
They end by themselves when their standard input closes, so even a killed test run leaves none.
"""

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

START_SECONDS = 30.0
STOP_SECONDS = 1.0
KILL_SECONDS = 30.0
"""A killed process ends for certain, but a busy machine may take a while."""
_LOOK_EVERY = 0.02


class ServerDidNotStart(Exception):
    """A test server ended, or printed no address in time. The message carries its output."""


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    address: re.Pattern[str],
    *,
    start_seconds: float = START_SECONDS,
) -> Iterator[str]:
    """Runs `command` while the block lasts, and gives the address that it printed.

    `address` is searched for in the output; its first group is the address. The process is ended
    however the block is left.
    """
    with tempfile.TemporaryFile(prefix=f"stepwell-{name}-") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            # Ctrl-C is for pytest, which then ends the server in good order.
            start_new_session=True,
        )
        try:
            yield _address(name, process, output, address, start_seconds)
        finally:
            _end(process)


def _address(
    name: str,
    process: subprocess.Popen[bytes],
    output: IO[bytes],
    address: re.Pattern[str],
    seconds: float,
) -> str:
    pause = threading.Event()
    for _ in range(int(seconds / _LOOK_EVERY) + 1):
        # Asked before the output is read: by then all that an ended process said is there.
        code = process.poll()
        printed = _printed(output)
        if found := address.search(printed):
            return found[1]
        if code is not None:
            raise ServerDidNotStart(f"{name} ended with code {code}; it said:\n{printed}")
        pause.wait(_LOOK_EVERY)
    raise ServerDidNotStart(f"{name} printed no address in {seconds:g} s; it said:\n{printed}")


def _printed(output: IO[bytes]) -> str:
    # pread leaves alone the position that the process writes at.
    return os.pread(output.fileno(), 1_000_000, 0).decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Closing its input ends a server at once; the rest is for one that doesn't heed it."""
    if process.stdin is not None:
        process.stdin.close()
    for insist in (process.terminate, process.kill):
        try:
            process.wait(STOP_SECONDS)
            return
        except subprocess.TimeoutExpired:
            insist()
    process.wait(KILL_SECONDS)

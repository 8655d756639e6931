"""How the harness speaks to its processes: one pipe each, read on the event loop.

A process whose harness is gone ends itself, so even a killed run leaves nothing behind.
"""

import asyncio
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


def listen(pipe: Connection, heard: Callable[[dict[str, Any]], None]) -> None:
    """Call ``heard`` for every order that comes; end the process when the harness is gone."""

    def read() -> None:
        try:
            while pipe.poll():
                heard(pipe.recv())
        except (EOFError, OSError):
            os._exit(3)

    asyncio.get_running_loop().add_reader(pipe.fileno(), read)


def say(pipe: Connection, order: dict[str, Any]) -> bool:
    """Send an order; whether the process could still be reached."""
    try:
        pipe.send(order)
    except OSError:
        return False
    return True

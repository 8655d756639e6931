"""The processes of a run: started from one that has imported everything, ended by their ids."""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from chaos.control import say
from chaos.settings import ChaosSettings, Place

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["chaos.nursery"])

Main = Callable[[ChaosSettings, Place, str, Connection], None]


def _begin(main: Main, settings: ChaosSettings, place: Place, name: str, pipe: Connection) -> None:
    """In the new process: what it and its libraries say goes to a file."""
    log = os.open(Path(place.folder) / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level="INFO")
    main(settings, place, name, pipe)


class Child:
    """One process: whether it lives, and how it is told, killed and thawed."""

    def __init__(self, name: str, main: Main, settings: ChaosSettings, place: Place) -> None:
        self.name = name
        self.pipe, theirs = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(
            target=_begin, args=(main, settings, place, name, theirs), name=name, daemon=True
        )
        self._process.start()
        theirs.close()
        self.pid = int(self._process.pid or 0)
        self.started_at = time.monotonic()
        self.armed: str | None = None
        self.armed_at = 0.0
        self.frozen_until: float | None = None
        self.holds_up_others = False
        self._is_ready = False

    @property
    def lives(self) -> bool:
        """Whether it runs, or is frozen."""
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """How it ended: -9 when it was killed."""
        return self._process.exitcode

    @property
    def is_ready(self) -> bool:
        """Whether it has begun to work."""
        if not self._is_ready:
            with contextlib.suppress(EOFError, OSError):
                self._is_ready = self.pipe.poll() and bool(self.pipe.recv())
        return self._is_ready

    def say(self, **order: Any) -> bool:
        """Send an order."""
        return say(self.pipe, order)

    def arm(self, point: str | None, skip: int = 0, also: Sequence[str] = ()) -> None:
        """Let it die at that crash point, or at one of the others."""
        if self.say(arm=point, skip=skip, also=list(also)):
            self.armed, self.armed_at = point, time.monotonic()

    def kill(self) -> None:
        """``kill -9``."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def freeze(self) -> None:
        """``SIGSTOP``, whatever it is doing."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen one go on."""
        self.frozen_until = None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def wait(self, seconds: float) -> None:
        """Until it has ended, so long at most."""
        self._process.join(seconds)

    def end(self) -> None:
        """End it for good, and let go of its pipe."""
        if self.lives:
            self.kill()
            self._process.join(5)
        self.pipe.close()
        self._process.close()

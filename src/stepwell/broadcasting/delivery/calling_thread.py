"""A thread in which a sync broadcaster is called, so that it delays neither the run nor the exit.

It is kept for the next envelope, which is four times cheaper than a new thread, and ends when idle.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from stepwell.errors import describe

IDLE_SECONDS = 5.0
"""Seconds after which an idle thread ends; the next call starts another."""


class Returned(NamedTuple):
    """What a call returned, or the text of what it raised."""

    value: Any
    error: str | None


class CallingThread:
    """Makes calls one after the other in a daemon thread, so that the program can end during
    one."""

    def __init__(self) -> None:
        self._line = _Line()

    def call(self, function: Callable[[], Any]) -> "ThreadFuture[Returned]":
        """Call it after all earlier calls have returned. The future never has an exception."""
        future: ThreadFuture[Returned] = ThreadFuture()
        future.set_running_or_notify_cancel()  # a waiter can't cancel it
        context = copy_context()
        if self._line.process_id != os.getpid():
            self._line = _Line()  # a forked process has neither the thread nor its calls
        self._line.add(lambda: future.set_result(_call_safely(context.run, function)))
        return future


class _Line:
    """The calls that wait in one process, and the thread that makes them."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._is_running = False
        self._lock = threading.Lock()

    def add(self, call: Callable[[], None]) -> None:
        with self._lock:
            if not self._is_running:
                name = "stepwell-broadcasting"
                threading.Thread(target=self._work, name=name, daemon=True).start()
                self._is_running = True
            self._calls.put(call)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call()
            del call  # an idle thread keeps no envelope alive

    def _next(self) -> Callable[[], None] | None:
        try:
            return self._calls.get(timeout=IDLE_SECONDS)
        except Empty:
            with self._lock:
                self._is_running = not self._calls.empty()
                return self._calls.get() if self._is_running else None


def _call_safely(run: Callable[..., Any], function: Callable[[], Any]) -> Returned:
    try:
        return Returned(run(function), None)
    except BaseException as error:  # noqa: BLE001 - foreign code: whatever it raises becomes text
        return Returned(None, describe(error))

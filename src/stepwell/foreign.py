"""Calls of code that is not ours: tools, hooks, models, drivers, listeners, criteria.

Such code may ignore its cancellation, or raise what would end the whole process. A ``ForeignCall``
runs in a task of its own, which can be abandoned; ``contained`` turns exits into ordinary errors.
"""

import asyncio
import dis
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from types import CodeType, TracebackType
from typing import Any, Generic, TypeVar

from stepwell.errors import describe

T = TypeVar("T")
logger = logging.getLogger("stepwell.foreign")

CANCEL_GRACE = 5.0
"""Seconds that a cancelled call has to end before it is abandoned."""

_abandoned: "set[asyncio.Task[Any]]" = set()
"""Keeps abandoned tasks alive: a pending task that is collected would be reported as an error."""

_patience: ContextVar[float | None] = ContextVar("stepwell_patience", default=None)
"""How long the call around this one waits; a call inside it gives up earlier, so that the outer
one still gets its result."""


class Uncontained(BaseException):
    """Base of exceptions of our own that foreign calls let pass unchanged."""


def as_exception(error: BaseException) -> Exception:
    """Return an ordinary exception for whatever foreign code raised.

    What is no ``Exception``, such as SystemExit, becomes a RuntimeError that names it. A Ctrl-C
    that reached the main thread while the code ran is raised again.
    """
    if isinstance(error, Uncontained) or _is_ctrl_c(error):
        raise error
    # A future refuses StopIteration.
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    failure = RuntimeError(f"it raised {describe(error)}")
    failure.__cause__ = error
    return failure


class contained:  # noqa: N801 - read as a block: `with contained():`
    """A block around synchronous foreign code, out of which only ordinary exceptions come."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and not isinstance(error, Exception | Uncontained):
            raise as_exception(error) from error


class ForeignCall(Generic[T]):
    """One call of foreign code. ``was_abandoned`` says that it still runs."""

    def __init__(self, what: str, grace: float = CANCEL_GRACE) -> None:
        self._what = what
        around = _patience.get()
        self._grace = grace if around is None else min(grace, around / 2)
        self._task: asyncio.Task[T] | None = None
        self.was_abandoned = False
        self.was_cancelled = False
        """Whether the caller was cancelled; otherwise a CancelledError is the code's own."""

    @property
    def has_ended(self) -> bool:
        """Whether the code returned or raised, also after it was cancelled."""
        return self._task is not None and self._task.done() and not self._task.cancelled()

    async def run(
        self,
        function: Callable[[], Awaitable[T]],
        *,
        keeps_context: bool = False,
        counts_late: Callable[[], bool] | None = None,
    ) -> T:
        """Call and await it in a task of its own.

        A cancellation is passed on, and raised when the code has ended or was abandoned; if it
        ended and ``counts_late`` says so, what it returned or raised counts instead. With
        ``keeps_context`` context variables that it sets stay set.
        """
        context = copy_context()
        context.run(_patience.set, self._grace)
        loop = asyncio.get_running_loop()
        # What asyncio.wait does, for one task and in half the time: every tool call comes by here.
        # The coroutine wakes the caller itself, one turn of the event loop before its task could;
        # the callback is for a task that was cancelled before it began.
        waiter: asyncio.Future[None] = loop.create_future()
        task = self._task = loop.create_task(
            _contain(function, waiter), name=f"stepwell {self._what}", context=context
        )
        task.add_done_callback(lambda _: waiter.done() or waiter.set_result(None))
        try:
            await waiter
        except asyncio.CancelledError:
            self.was_cancelled = True
            await self._stop(task)
            if self.has_ended and counts_late is not None and counts_late():
                return task.result()
            raise
        if keeps_context:
            _adopt(context)
        return task.result()

    async def _stop(self, task: "asyncio.Task[T]") -> None:
        """Cancel it and wait until it has ended, but no longer than the grace period."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._grace
        while not task.done():
            task.cancel()
            try:
                await asyncio.wait((task,), timeout=max(end - loop.time(), 0.0))
            except asyncio.CancelledError:  # asked again: pass that on as well, and keep waiting
                continue
            break
        if not task.done():
            self.was_abandoned = True
            abandon(task, self._what, self._grace)
        elif not task.cancelled():
            task.exception()


def abandon(task: "asyncio.Task[Any]", what: str, seconds: float) -> None:
    """Leave a task to itself: nobody waits for it any more, not even the end of its event loop."""
    _abandoned.add(task)
    task.add_done_callback(_forget)
    asyncio._unregister_task(task)
    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
    logger.warning(
        "%s did not end within %g s of its cancellation and is abandoned; it may still take effect",
        what,
        seconds,
    )


def is_anything_abandoned() -> bool:
    """Whether abandoned tasks still run in this process."""
    return bool(_abandoned)


def run_event_loop(main: Coroutine[Any, Any, T], *, grace: float = CANCEL_GRACE) -> T:
    """Do what ``asyncio.run`` does, but wait no longer than ``grace`` for tasks that ignore their
    cancellation, and not at all for threads that block."""
    runner = asyncio.Runner()
    try:
        return runner.run(main)
    finally:
        close_event_loop(runner, grace=grace)


def close_event_loop(runner: asyncio.Runner, *, grace: float = CANCEL_GRACE) -> None:
    """Close the runner of an event loop on the same terms."""
    end_event_loop(runner.get_loop(), grace=grace)
    runner.close()


def end_event_loop(loop: asyncio.AbstractEventLoop, *, grace: float) -> None:
    """Cancel the tasks that are left in a loop that has stopped; those that ignore it are
    abandoned."""
    left = asyncio.all_tasks(loop)
    if left:
        loop.run_until_complete(_end_all(left, grace))
    # The one that was used is not joined: a thread of it may never end.
    loop.set_default_executor(ThreadPoolExecutor(max_workers=1))


async def _end_all(tasks: "set[asyncio.Task[Any]]", grace: float) -> None:
    for task in tasks:
        task.cancel()
    _, deaf = await asyncio.wait(tasks, timeout=grace)
    for task in deaf:
        abandon(task, f"task {task.get_name()!r}", grace)


async def _contain(function: Callable[[], Awaitable[T]], waiter: "asyncio.Future[None]") -> T:
    try:
        return await function()
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - it is raised again as what can be caught
        failure = as_exception(error)
        raise failure from failure.__cause__
    finally:
        if not waiter.done():
            waiter.set_result(None)


def _adopt(context: Context) -> None:
    for variable, value in context.items():
        if variable is not _patience and variable.get(None) is not value:
            variable.set(value)


def _forget(task: "asyncio.Task[Any]") -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()


def _is_ctrl_c(error: BaseException) -> bool:
    """Whether a signal raised it, and not the code itself: then no ``raise`` stands where it
    appeared, or it came out of the program's own handler."""
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not isinstance(error, KeyboardInterrupt) or not on_main_thread:
        return False
    trace, frames = error.__traceback__, list[tuple[CodeType, int]]()
    while trace is not None:
        frames.append((trace.tb_frame.f_code, trace.tb_lasti))
        trace = trace.tb_next
    handler = signal.getsignal(signal.SIGINT)
    handler = getattr(handler, "func", handler)  # asyncio's is a partial of a method
    if (own := getattr(handler, "__code__", None)) in [code for code, _ in frames]:
        return own is not None
    if not frames:
        return False
    code, at = frames[-1]
    return dis.opname[code.co_code[at]] not in ("RAISE_VARARGS", "RERAISE")

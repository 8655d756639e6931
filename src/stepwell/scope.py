"""What a step in flight can reach: the emitter of its run, and the interruption of what it awaits.

The loop opens a scope per run (or per manual step). Drivers and the tool executor put each model
call and tool call inside ``guard()``, so that a deadline or a cancellation ends the call at once
and the step can still be recorded. Nothing here is ever serialized.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.continuation import Cancellation, StopReason, StopSignal
from stepwell.events import Emitter
from stepwell.foreign import CANCEL_GRACE, ForeignCall, Uncontained

T = TypeVar("T")
_DEADLINE = StopSignal(
    reason=StopReason.TIME_LIMIT, message="the run's deadline passed", source="Deadline"
)


class Watch(Protocol):
    """Wraps everything that a run awaits, in the task that awaits it; a tracer, for example.

    Must not raise: nothing is caught here.
    """

    def enter(self, awaited: object, /) -> object:
        """Enter before a model turn, a tool call or a hook is awaited. ``exit`` gets what this
        returns."""
        ...

    def exit(self, entered: object, guard: "Guard", error: BaseException | None, /) -> None:
        """Exit when it ended; ``error`` is an error that passes through the guard."""
        ...

    def close(self) -> None:
        """Close at the end of the run, or when it is abandoned midway."""
        ...


class RunAttempt(Protocol):
    """What the host of a run keeps of it beyond this process, such as the app server. The library
    only carries it, and has it record the runs of subagents."""

    def for_subagent(self, *, name: str, call_id: str) -> "SubagentAttempt":
        """Return the attempt of a subagent that the call of that id runs."""
        ...


class SubagentAttempt(RunAttempt, Protocol):
    """The same for the run of a subagent."""

    async def begin(self, state: Any, /) -> None:
        """Record that the run begins with this state."""
        ...

    async def end(self, state: Any, /) -> None:
        """Record the state that the run came to."""
        ...


class Guard:
    """Around one awaited call: ends it on timeout, deadline or cancellation.

    It answers to what comes while it stands; whether to begin at all is asked of ``scope.signal``.
    After the block ``timed_out`` says whether its own timeout ended it, ``signal`` why the run did,
    and ``was_abandoned`` that the code called in it ignored that. A cancellation of the surrounding
    task is not touched.
    """

    __slots__ = (
        *(
            "_around",
            "_cancelling",
            "_entered",
            "_foreign",
            "_grace",
            "_peers",
            "_scope",
            "_seconds",
            "_task",
            "_timer",
        ),
        "_watch",
        *("has_ended", "signal", "timed_out"),
    )

    def __init__(
        self,
        scope: "RunScope",
        peers: "list[Guard]",
        seconds: float | None,
        around: object = None,
        *,
        grace: float,
    ) -> None:
        self._scope = scope
        self._grace = grace
        self._around = around
        self._watch: Watch | None = None
        self._peers = peers
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._foreign: ForeignCall[Any] | None = None
        self.has_ended = False
        self.timed_out = False
        self.signal: StopSignal | None = None

    @property
    def was_interrupted(self) -> bool:
        """Whether the call was ended from outside."""
        return self.timed_out or self.signal is not None

    @property
    def was_cancelled(self) -> bool:
        """Whether a CancelledError comes from someone who cancelled, us or the task's owner; if
        not, the awaited code raised it by itself."""
        return self.was_interrupted or self._task.cancelling() > self._cancelling

    def __enter__(self) -> "Guard":
        task = asyncio.current_task(self._scope.loop)  # named, since looking it up costs more
        if task is None:
            raise RuntimeError("a guard needs a running asyncio task")
        self._task = task
        self._cancelling = task.cancelling()
        self._peers.append(self)
        if self._seconds is not None:
            self._timer = self._scope.loop.call_later(self._seconds, self._expire)
        if self._scope.watch is not None and self._around is not None:
            self._watch = self._scope.watch
            self._entered = self._watch.enter(self._around)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._watch is not None:
            self._watch.exit(self._entered, self, error)
        self.has_ended = True
        self._peers.remove(self)
        if self._timer is not None:
            self._timer.cancel()
        if not self.timed_out and self.signal is None:
            return False
        # The cancel() was ours. Swallow it unless someone else cancelled the task as well.
        others = self._task.uncancel() > self._cancelling
        return kind is not None and issubclass(kind, asyncio.CancelledError) and not others

    @property
    def was_abandoned(self) -> bool:
        """Whether the code called in the block still runs."""
        return self._foreign is not None and self._foreign.was_abandoned

    def call(
        self, function: Callable[[], Awaitable[T]], what: str, *, keeps_context: bool = False
    ) -> Coroutine[Any, Any, T]:
        """Call and await foreign code within the block, in a task of its own.

        When the block is interrupted the code has the scope's grace period to end, and what it
        returns or raises in that time counts; after that it is abandoned.
        """
        # Not ForeignCall[T](...): that would go through typing at each call.
        foreign: ForeignCall[T] = ForeignCall(what, self._grace)
        self._foreign = foreign
        return foreign.run(
            function, keeps_context=keeps_context, counts_late=self._counts_late_result
        )

    def _counts_late_result(self) -> bool:
        return self.was_interrupted and self._task.cancelling() <= self._cancelling + 1

    def interrupt(self, signal: StopSignal) -> None:
        """End the call because the run ends."""
        if self._is_interruptible:
            self.signal = signal
            self._task.cancel()

    def _expire(self) -> None:
        if self._is_interruptible:
            self.timed_out = True
            self._task.cancel()

    @property
    def _is_interruptible(self) -> bool:
        is_over = self.has_ended or (self._foreign is not None and self._foreign.has_ended)
        return not is_over and not self.was_interrupted


class RunScope:
    """The emitter of a run and the switch that interrupts what the run has in flight."""

    __slots__ = (
        *("_cancellation", "_overdue", "_thread", "_timer"),
        *("attempt", "backstops", "batches", "cancel_grace", "emitter", "guards", "loop"),
        "model_retries",
        *("shared", "watch"),
    )

    def __init__(
        self,
        emitter: Emitter,
        cancellation: Cancellation | None = None,
        *,
        cancel_grace: float = CANCEL_GRACE,
        model_retries: int = 0,
        attempt: RunAttempt | None = None,
    ) -> None:
        self.emitter = emitter
        self.attempt = attempt
        """What the host of the run keeps of it; None where nobody does."""
        self.model_retries = model_retries
        """How often a model turn that failed before any output is asked again."""
        self.cancel_grace = cancel_grace
        """Seconds that cancelled code of others has to end before it is abandoned."""
        self._overdue: StopSignal | None = None
        self._cancellation = cancellation
        self.guards: list[Guard] = []
        self.backstops: list[Guard] = []
        self.batches = 0
        """Batches of tool calls under way. They answer to signals themselves, also between two
        calls, and settle every call; no backstop may cut them off."""
        self.shared: dict[str, object] = {}
        """What the calls of a run know of each other, by name."""
        self.watch: Watch | None = None
        """Gets what the run awaits, and when the run is over."""
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._timer: asyncio.TimerHandle | None = None
        if cancellation is not None:
            cancellation.subscribe(self._on_cancellation)

    @property
    def signal(self) -> StopSignal | None:
        """Why nothing new should begin: cancellation was requested, or the deadline passed."""
        cancellation = self._cancellation
        if cancellation is not None and (requested := cancellation.signal) is not None:
            return requested
        return self._overdue

    @property
    def clock(self) -> Clock:
        """The run's clock."""
        return self.emitter.clock

    @property
    def seconds_left(self) -> float | None:
        """Until the deadline, if there is one; never below zero."""
        return None if self._timer is None else max(self._timer.when() - self.loop.time(), 0.0)

    @property
    def cancellation(self) -> Cancellation | None:
        """The caller's switch; a subagent is given the same one."""
        return self._cancellation

    def set_deadline(self, seconds: float) -> None:
        """Interrupt what is in flight after that many seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(max(seconds, 0.0), self._on_deadline)

    def allow_seconds(self, seconds: float) -> None:
        """Give a run whose deadline passed, or soon passes, at least that much longer."""
        if self._timer is not None and self._timer.when() < self.loop.time() + seconds:
            self.set_deadline(seconds)
        self._overdue = None

    def give_up(self, why: str) -> None:
        """What is left until the deadline is not enough; nothing new should begin."""
        self._overdue = replace(_DEADLINE, message=why)

    def guard(self, seconds: float | None = None, *, around: object = None) -> Guard:
        """A block that ends with the run, or after its own timeout; ``around`` is for the watch:
        the ``ToolCall``, the ``ModelTurn`` or the name of the hook that is awaited in it."""
        return Guard(self, self.guards, seconds, around, grace=self.cancel_grace)

    def backstop(self) -> Guard:
        """A block around foreign code, which ends with the run if nothing inside it is guarded."""
        # Twice as long, since a call within another is given half of its time.
        return Guard(self, self.backstops, None, grace=2 * self.cancel_grace)

    def call(self, function: Callable[[], None]) -> None:
        """Call this on the run's own thread: at once if that is here, else as soon as it can."""
        if threading.get_ident() == self._thread:
            function()
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function)

    def close(self) -> None:
        """The run is over: disarm the timer, let go of the cancellation and of the listeners."""
        self.emitter.close()
        if self.watch is not None:
            self.watch.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._cancellation is not None:
            self._cancellation.unsubscribe(self._on_cancellation)

    def _on_cancellation(self, signal: StopSignal) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._interrupt, signal)

    def _on_deadline(self) -> None:
        self._overdue = _DEADLINE
        self._interrupt(_DEADLINE)

    def _interrupt(self, signal: StopSignal) -> None:
        in_flight = self.guards if self.guards or self.batches else self.backstops
        for guard in tuple(in_flight):
            guard.interrupt(signal)


class ModelRefusedError(Uncontained):
    """Raised when code calls a model during a replay. Like a cancellation, nothing on the way
    catches it: the caller ends there."""


class NoModels:
    """A block in which nobody may ask a model, such as the hooks of a run that is replayed. It
    covers what the block awaits and the tasks it starts."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        """The models that were to be asked."""

    def __enter__(self) -> "NoModels":
        self._before: Token[NoModels | None] = _NO_MODELS.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _NO_MODELS.reset(self._before)


_NO_MODELS: ContextVar[NoModels | None] = ContextVar("stepwell_no_models", default=None)


def refuse_in_replay(model: str) -> None:
    """For whoever is about to ask a model: raise ``ModelRefusedError`` where nobody may."""
    standing = _NO_MODELS.get()
    if standing is not None:
        standing.refused.append(model)
        raise ModelRefusedError(f"a replay asks no model, and {model} was to be asked")

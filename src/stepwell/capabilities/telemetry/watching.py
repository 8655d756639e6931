"""Hooks of a run that is watched: they begin its trace, and hand it what only a state knows.

Whatever OpenTelemetry, an exporter or a processor raises is logged here and never reaches a run.
"""

import functools
import logging
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from stepwell.capabilities.telemetry import names
from stepwell.capabilities.telemetry.instruments import Instruments
from stepwell.capabilities.telemetry.run_trace import RunTrace
from stepwell.hooks import HookContext
from stepwell.scope import Guard

P = ParamSpec("P")
Result = TypeVar("Result")

logger = logging.getLogger("stepwell.telemetry")


def harmless(function: Callable[P, Result]) -> Callable[P, Result | None]:
    """The function, which logs what it raises instead of raising it."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> Result | None:
        try:
            return function(*args, **kwargs)
        except Exception:  # foreign code: its faults stay outside the run
            logger.exception("telemetry failed at %s; the run goes on", function.__name__)
            return None

    return called


class Watcher:
    """The watch of one run's scope: its trace, made harmless."""

    def __init__(self, trace: RunTrace, on_closed: Callable[[], None]) -> None:
        self.trace = trace
        self._on_closed = on_closed

    @harmless
    def entered(self, around: object) -> object:
        """What is awaited runs inside its span."""
        return self.trace.entered(around)

    @harmless
    def left(self, entered: object, guard: Guard, error: BaseException | None) -> None:
        """Back in the context from before."""
        self.trace.left(entered, guard, error)

    @harmless
    def closed(self) -> None:
        """No span is left open."""
        self._on_closed()
        self.trace.closed()


class Telemetry:
    """What the hooks of one agent share."""

    def __init__(self, instruments: Instruments, *, name: str | None, tells_content: bool) -> None:
        self._instruments = instruments
        self._name = name
        self._tells_content = tells_content
        self._watched: Counter[str] = Counter()
        """How many runs of an execution are watched now; two may run from one state."""
        self._child_names: dict[str, str] = {}

    @harmless
    def step_begins(self, context: HookContext) -> HookContext | None:
        """The first step of a run begins its trace."""
        scope, state = context.state.scope, context.state
        if isinstance(scope.watch, Watcher):
            scope.watch.trace.step_begins(state)
            return None
        trace = self._begun(context)
        execution_id = trace.execution_id
        self._watched[execution_id] += 1
        scope.watch = Watcher(trace, lambda: self._unwatched(execution_id))
        trace.listen(scope.emitter)
        mark = trace.mark()
        if mark is None:
            return None
        return context.with_state(state.with_metadata({names.TRACE_KEY: mark}))

    @harmless
    def tool_ended(self, context: HookContext) -> None:
        """The kind of a tool's error, which its event does not tell."""
        watch, execution = context.state.scope.watch, context.execution
        if isinstance(watch, Watcher) and execution is not None and execution.error is not None:
            watch.trace.tool_failed(execution.call.id, execution.error.exception)

    @harmless
    def step_ends(self, context: HookContext) -> None:
        """What the model said, without the secrets in it."""
        watch, step = context.state.scope.watch, context.state.current_step
        if isinstance(watch, Watcher) and step is not None:
            watch.trace.step_ends(step)

    @harmless
    def run_ends(self, context: HookContext) -> None:
        """A run that ends before its first step has a span as well."""
        execution = context.state.execution
        if execution is None or self._watched[execution.id]:
            return
        self._begun(context).ended_at_once(context.state)

    def _begun(self, context: HookContext) -> RunTrace:
        state = context.state
        is_child = state.parent_agent_id is not None
        name = self._child_names.pop(state.agent_id, None) if is_child else self._name
        return RunTrace(
            self._instruments,
            state,
            name=name,
            tells_content=self._tells_content,
            child_names=self._child_names,
        )

    def _unwatched(self, execution_id: str) -> None:
        self._watched[execution_id] -= 1
        if not self._watched[execution_id]:
            del self._watched[execution_id]

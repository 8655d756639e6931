"""The hooks that start a run's trace and pass it what only a state knows.

Errors of OpenTelemetry, an exporter or a processor are logged here and never reach a run.
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


def log_errors(function: Callable[P, Result]) -> Callable[P, Result | None]:
    """Decorate a function to log errors instead of raising them."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Result | None:
        try:
            return function(*args, **kwargs)
        except Exception:  # foreign code: its errors must not reach the run
            logger.exception("telemetry failed at %s; the run continues", function.__name__)
            return None

    return wrapper


class TraceWatch:
    """The watch of one run's scope: forwards to its trace and logs errors."""

    def __init__(self, trace: RunTrace, on_close: Callable[[], None]) -> None:
        self.trace = trace
        self._on_close = on_close

    @log_errors
    def enter(self, awaited: object) -> object:
        """Enter the span of what is about to be awaited."""
        return self.trace.enter(awaited)

    @log_errors
    def exit(self, entered: object, guard: Guard, error: BaseException | None) -> None:
        """Return to the previous context."""
        self.trace.exit(entered, guard, error)

    @log_errors
    def close(self) -> None:
        """End all open spans."""
        self._on_close()
        self.trace.close()


class Telemetry:
    """The hooks of one agent."""

    def __init__(
        self, instruments: Instruments, *, name: str | None, records_content: bool
    ) -> None:
        self._instruments = instruments
        self._name = name
        self._records_content = records_content
        self._active_runs: Counter[str] = Counter()
        """Number of traced runs per execution; two may run from the same state."""
        self._child_names: dict[str, str] = {}

    @log_errors
    def on_step_start(self, context: HookContext) -> HookContext | None:
        """Start the trace at the first step of a run."""
        scope, state = context.state.scope, context.state
        if isinstance(scope.watch, TraceWatch):
            scope.watch.trace.on_step_start(state)
            return None
        trace = self._start_trace(context)
        execution_id = trace.execution_id
        self._active_runs[execution_id] += 1
        scope.watch = TraceWatch(trace, lambda: self._release(execution_id))
        trace.listen(scope.emitter)
        mark = trace.mark()
        if mark is None:
            return None
        return context.with_state(state.with_metadata({names.TRACE_KEY: mark}))

    @log_errors
    def on_tool_end(self, context: HookContext) -> None:
        """Pass on the class of a tool's error, which the event does not have."""
        watch, execution = context.state.scope.watch, context.execution
        if isinstance(watch, TraceWatch) and execution is not None and execution.error is not None:
            watch.trace.record_tool_error(execution.call.id, execution.error.exception)

    @log_errors
    def on_step_end(self, context: HookContext) -> None:
        """Pass on the model's answer, in which secrets are hidden by now."""
        watch, step = context.state.scope.watch, context.state.current_step
        if isinstance(watch, TraceWatch) and step is not None:
            watch.trace.on_step_end(step)

    @log_errors
    def on_run_end(self, context: HookContext) -> None:
        """Record a span for a run that ended before its first step."""
        execution = context.state.execution
        if execution is None or self._active_runs[execution.id]:
            return
        self._start_trace(context).end_without_steps(context.state)

    def _start_trace(self, context: HookContext) -> RunTrace:
        state = context.state
        is_child = state.parent_agent_id is not None
        name = self._child_names.pop(state.agent_id, None) if is_child else self._name
        return RunTrace(
            self._instruments,
            state,
            name=name,
            records_content=self._records_content,
            child_names=self._child_names,
        )

    def _release(self, execution_id: str) -> None:
        self._active_runs[execution_id] -= 1
        if not self._active_runs[execution_id]:
            del self._active_runs[execution_id]

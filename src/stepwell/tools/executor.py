"""Runs the tool calls of one response: prepare, invoke, finish. Every call gets one result.

Calls of one response run in parallel, within a bound; results stay in call order. Hooks run one at
a time, so that each sees the state the one before returned. Called by the drivers.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.continuation import AgentStop, StopReason, StopSignal
from stepwell.errors import (
    ConfigurationError,
    ErrorType,
    HookError,
    InvalidToolArgumentsError,
    ToolExecutionError,
    ToolNotFoundError,
    described,
)
from stepwell.events import ToolCallBlocked, ToolCallCompleted, ToolCallStarted
from stepwell.hooks import HookContext, HookStack, HookTrigger, signal_of
from stepwell.messages import ToolCall
from stepwell.state import AgentState, ErrorInfo, Pending, ToolExecution, ToolOutcome
from stepwell.tools.context import ToolContext
from stepwell.tools.formatting import as_text, json_value
from stepwell.tools.registry import Tools
from stepwell.tools.tool import InputRequired, Tool, ToolFailure, ToolOutput

logger = logging.getLogger("stepwell.tools")

DEFAULT_PARALLEL_CALLS = 8


class ToolBatch(Struct, frozen=True, kw_only=True):
    """The state after all calls, their executions in call order, and failures around them."""

    state: AgentState
    executions: tuple[ToolExecution, ...] = ()
    failures: tuple[ErrorInfo, ...] = ()


class _Ready(Struct, frozen=True):
    """A call that passed all checks."""

    tool: Tool
    call: ToolCall
    arguments: dict[str, Any]


class _Finished(Struct, frozen=True):
    """An execution with what the tool said beside its result."""

    execution: ToolExecution
    output: ToolOutput | None = None
    waits_for: Pending | None = None
    signal: StopSignal | None = None


class ToolExecutor:
    """Runs tool calls against a state and returns the state they lead to."""

    def __init__(
        self,
        tools: Tools | None = None,
        *,
        hooks: HookStack | None = None,
        clock: Clock | None = None,
        max_parallel: int = DEFAULT_PARALLEL_CALLS,
        raise_on_failure: bool = False,
    ) -> None:
        if max_parallel < 1:
            raise ConfigurationError(f"max_parallel must be 1 or more, got {max_parallel}")
        self.tools = tools or Tools()
        self._hooks = hooks or HookStack()
        self._clock = clock or SystemClock()
        self._max_parallel = max_parallel
        self._raise_on_failure = raise_on_failure

    async def run(self, calls: Sequence[ToolCall], state: AgentState) -> ToolBatch:
        """Run all calls; whatever happens, each has exactly one execution afterwards."""
        batch = _Batch(state)
        for group in self._groups(calls):
            ready = [task for call in group if (task := await self._prepare(call, batch))]
            if len(ready) == 1:
                await self._finish(await self._invoke(ready[0], batch), batch)
            elif ready:
                await self._invoke_all(ready, batch)
        executions = tuple([batch.executions[call.id] for call in calls])
        if self._raise_on_failure:
            _raise_first_failure(executions)
        return ToolBatch(state=batch.state, executions=executions, failures=tuple(batch.failures))

    def refuse(self, calls: Sequence[ToolCall], state: AgentState, reason: str) -> ToolBatch:
        """Run none of the calls; each gets a result that says why."""
        batch = _Batch(state)
        for call in calls:
            self._block(call, reason, batch)
        return ToolBatch(state=state, executions=tuple(batch.executions.values()))

    def _groups(self, calls: Sequence[ToolCall]) -> Iterable[Sequence[ToolCall]]:
        """Neighbouring calls that may run together; a tool that is not parallel runs alone."""
        return (calls,) if len(calls) == 1 else self._split(calls)

    def _split(self, calls: Sequence[ToolCall]) -> Iterator[Sequence[ToolCall]]:
        together: list[ToolCall] = []
        for call in calls:
            tool = self.tools.find(call.name)
            if tool is None or tool.parallel:
                together.append(call)
                continue
            if together:
                yield together
                together = []
            yield [call]
        if together:
            yield together

    async def _prepare(self, call: ToolCall, batch: "_Batch") -> _Ready | None:
        """Hooks, look-up and validation. None if the call was settled without running."""
        if batch.halted_by or batch.scope.signal is not None:
            batch.settle(self._unrun(call, batch))
            return None
        result: Any = UNSET
        if self._hooks.has(HookTrigger.BEFORE_TOOL):
            context = HookContext(trigger=HookTrigger.BEFORE_TOOL, state=batch.state, call=call)
            answer = await self._run_hooks(context, batch)
            if answer is None:
                batch.settle(self._unrun(call, batch))
                return None
            if answer.call is not None:
                call = replace(answer.call, id=call.id)
            if answer.block_reason is not None:
                self._block(call, answer.block_reason, batch)
                return None
            result = answer.result
        problem = self._problem(call)
        if result is UNSET and not isinstance(problem, ToolExecution):
            return problem
        self._started(call, batch)
        settled = problem if result is UNSET else None
        await self._finish(
            _Finished(settled)
            if isinstance(settled, ToolExecution)
            else self._substituted(call, result),
            batch,
        )
        return None

    def _problem(self, call: ToolCall) -> _Ready | ToolExecution:
        """The call ready to run, or the execution that says what is wrong with it."""
        tool = self.tools.find(call.name)
        if tool is None:
            missing = ToolNotFoundError(call.name, self.tools.names)
            return self._settled(call, ToolOutcome.NOT_FOUND, str(missing))
        try:
            if call.malformed is not None:
                raise InvalidToolArgumentsError(
                    f"The arguments of tool {call.name!r} are not a JSON object: "
                    f"{call.malformed:.200}"
                )
            return _Ready(tool, call, tool.validate(call.arguments))
        except InvalidToolArgumentsError as error:
            info = ErrorInfo.from_exception(error, ErrorType.VALIDATION, tool_name=call.name)
            return self._settled(call, ToolOutcome.INVALID, str(error), error=info)

    async def _invoke(self, ready: _Ready, batch: "_Batch") -> _Finished:
        """Run the tool. Whatever it does ends as an execution; only outside cancellation passes."""
        tool, call, state = ready.tool, ready.call, batch.state
        self._started(call, batch)
        started_at, started = self._clock.now(), self._clock.monotonic()
        value: Any = None
        failure: BaseException | None = None
        with batch.scope.guard(tool.timeout) as guard:
            context = ToolContext(state=state, call=call, guard=guard)
            try:
                value = await tool.invoke(ready.arguments, context)
                if type(value) is not str:
                    value = _plain(value)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if guard.was_interrupted or (task is not None and task.cancelling()):
                    raise
                failure = error
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a tool raises is a result
                failure = error
        blank = ToolExecution(
            call=call,
            outcome=ToolOutcome.COMPLETED,
            text="",
            started_at=started_at,
            completed_at=self._clock.now(),
            duration_seconds=self._clock.monotonic() - started,
        )
        if guard.signal is not None:
            return _interrupted(blank, guard.signal)
        if guard.timed_out:
            return _timed_out(blank, tool)
        return _failed(blank, failure) if failure is not None else _completed(blank, value)

    async def _invoke_all(self, ready: list[_Ready], batch: "_Batch") -> None:
        """Run several calls at once; finish each as it comes in, in the order they come in."""
        waiting = iter(ready)
        done: asyncio.Queue[_Finished | BaseException] = asyncio.Queue()

        async def work() -> None:
            for task in waiting:
                if batch.halted_by or batch.scope.signal is not None:
                    finished = _Finished(self._unrun(task.call, batch))
                else:
                    finished = await self._invoke(task, batch)
                done.put_nowait(finished)

        def report_fault(worker: "asyncio.Task[None]") -> None:
            if not worker.cancelled() and (fault := worker.exception()) is not None:
                done.put_nowait(fault)

        workers = [asyncio.create_task(work()) for _ in range(min(self._max_parallel, len(ready)))]
        for worker in workers:
            worker.add_done_callback(report_fault)
        try:
            for _ in ready:
                finished = await done.get()
                if isinstance(finished, BaseException):
                    raise finished
                await self._finish(finished, batch)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _finish(self, finished: _Finished, batch: "_Batch") -> None:
        """After-tool hooks, then everything the call leads to flows into the state."""
        execution = finished.execution
        if finished.signal is not None:
            batch.halt(finished.signal)
        if finished.waits_for is not None:
            batch.state = batch.state.with_pending(finished.waits_for)
        if finished.output is not None and finished.output.metadata:
            batch.state = batch.state.with_metadata(finished.output.metadata)
        if self._hooks.has(HookTrigger.AFTER_TOOL) and execution.outcome is not ToolOutcome.NOT_RUN:
            context = HookContext(
                trigger=HookTrigger.AFTER_TOOL,
                state=batch.state,
                call=execution.call,
                execution=execution,
            )
            answer = await self._run_hooks(context, batch)
            if answer is not None and answer.result is not UNSET:
                rewritten = self._substituted(execution.call, answer.result).execution
                execution = replace(
                    execution,
                    outcome=rewritten.outcome,
                    text=rewritten.text,
                    value=rewritten.value,
                    error=rewritten.error,
                )
        batch.settle(execution)
        self._completed_event(execution, batch)

    async def _run_hooks(self, context: HookContext, batch: "_Batch") -> HookContext | None:
        """The hooks' answer; None if one raised, which halts the batch but loses no result."""
        try:
            answer = await self._hooks.run(context)
        except AgentStop as stop:
            batch.halt(stop.signal)
            return None
        except HookError as error:
            logger.info("%s", error, exc_info=error)
            batch.failures.append(ErrorInfo.from_exception(error, ErrorType.UNKNOWN))
            batch.halt(signal_of(error))
            return None
        batch.state = answer.state
        return answer

    def _substituted(self, call: ToolCall, value: Any) -> _Finished:
        """A result that a hook gave instead of the tool."""
        return _completed(self._settled(call, ToolOutcome.COMPLETED, ""), _plain(value))

    def _unrun(self, call: ToolCall, batch: "_Batch") -> ToolExecution:
        signal = batch.scope.signal
        why = batch.halted_by or (signal.message or str(signal.reason) if signal else "it ended")
        return self._settled(call, ToolOutcome.NOT_RUN, f"Not run, because the run stops: {why}")

    def _block(self, call: ToolCall, reason: str, batch: "_Batch") -> None:
        batch.settle(self._settled(call, ToolOutcome.BLOCKED, f"Blocked: {reason}"))
        batch.scope.emitter.emit(
            ToolCallBlocked, tool=call.name, args=call.arguments, call_id=call.id, reason=reason
        )

    def _settled(
        self, call: ToolCall, outcome: ToolOutcome, text: str, *, error: ErrorInfo | None = None
    ) -> ToolExecution:
        """An execution that took no time."""
        now = self._clock.now()
        text = text if outcome is ToolOutcome.COMPLETED else f"Error: {text}"
        return ToolExecution(
            call=call, outcome=outcome, text=text, error=error, started_at=now, completed_at=now
        )

    def _started(self, call: ToolCall, batch: "_Batch") -> None:
        if batch.scope.emitter.is_heard:
            batch.scope.emitter.emit(
                ToolCallStarted,
                tool=call.name,
                args=call.arguments,
                call_id=call.id,
                step_number=batch.state.step_number,
            )

    def _completed_event(self, execution: ToolExecution, batch: "_Batch") -> None:
        if execution.outcome is ToolOutcome.NOT_RUN or not batch.scope.emitter.is_heard:
            return
        batch.scope.emitter.emit(
            ToolCallCompleted,
            tool=execution.call.name,
            call_id=execution.call.id,
            success=not execution.is_error,
            error=execution.text if execution.is_error else None,
            value=execution.value,
            started_at=execution.started_at,
            completed_at=execution.completed_at,
            duration_ms=execution.duration_seconds * 1000,
        )


class _Batch:
    """The state as it flows through the calls of one response. Lives only inside ``run``."""

    __slots__ = ("executions", "failures", "halted_by", "scope", "state")

    def __init__(self, state: AgentState) -> None:
        self.state = state
        self.scope = state.scope
        self.executions: dict[str, ToolExecution] = {}
        self.failures: list[ErrorInfo] = []
        self.halted_by = ""

    def settle(self, execution: ToolExecution) -> None:
        self.executions[execution.call.id] = execution

    def halt(self, signal: StopSignal) -> None:
        """Start no further call, and vote to stop."""
        self.state = self.state.with_signal(signal)
        self.halted_by = self.halted_by or signal.message or str(signal.reason)


def _plain(value: Any) -> Any:
    """JSON data, or one of the values with which a tool says more."""
    if isinstance(value, ToolOutput):
        return replace(value, value=json_value(value.value))
    return value if isinstance(value, ToolFailure | InputRequired) else json_value(value)


def _completed(blank: ToolExecution, value: Any) -> _Finished:
    if type(value) is str:
        return _Finished(replace(blank, text=value, value=value))
    match value:
        case ToolOutput():
            execution = replace(
                blank,
                text=as_text(value.value),
                value=value.value,
                usage=value.usage,
                cost=value.cost,
            )
            return _Finished(execution, output=value)
        case ToolFailure():
            execution = replace(
                blank,
                outcome=ToolOutcome.FAILED,
                text=f"Error: {value.message}",
                value=dict(value.details) or None,
            )
            return _Finished(execution)
        case InputRequired():
            return _waiting(blank, value)
        case _:
            return _Finished(replace(blank, text=as_text(value), value=value))


def _waiting(blank: ToolExecution, asked: InputRequired) -> _Finished:
    call = blank.call
    pending = Pending(
        kind=asked.kind,
        prompt=asked.prompt,
        call_id=call.id,
        tool_name=call.name,
        details=asked.details,
    )
    signal = StopSignal(
        reason=StopReason.INPUT_REQUIRED,
        message=asked.prompt,
        source=call.name,
        context={"call_id": call.id},
    )
    execution = replace(blank, outcome=ToolOutcome.PENDING, text="Waiting for an answer.")
    return _Finished(execution, waits_for=pending, signal=signal)


def _failed(blank: ToolExecution, failure: BaseException) -> _Finished:
    call = blank.call
    if isinstance(failure, AgentStop):
        signal = replace(failure.signal, source=failure.signal.source or call.name)
        said = signal.message or str(signal.reason)
        return _Finished(replace(blank, text=f"This call ended the run: {said}"), signal=signal)
    logger.info("tool %s raised %s", call.name, described(failure), exc_info=failure)
    info = ErrorInfo.from_exception(failure, ErrorType.TOOL, tool_name=call.name)
    text = f"Error: tool {call.name!r} failed: {info.text}"
    return _Finished(replace(blank, outcome=ToolOutcome.RAISED, text=text, error=info))


def _timed_out(blank: ToolExecution, tool: Tool) -> _Finished:
    message = f"timed out after {tool.timeout:g} seconds and was cancelled"
    info = ErrorInfo(
        type=ErrorType.TIMEOUT,
        exception="TimeoutError",
        message=message,
        tool_name=blank.call.name,
    )
    text = f"Error: tool {blank.call.name!r} {message}; what it had begun may still take effect"
    return _Finished(replace(blank, outcome=ToolOutcome.TIMED_OUT, text=text, error=info))


def _interrupted(blank: ToolExecution, signal: StopSignal) -> _Finished:
    why = signal.message or str(signal.reason)
    told = replace(signal, message=f"{why}; tool {blank.call.name} was running and was cancelled")
    text = f"Error: cancelled while it ran ({why}); what it had begun may still take effect"
    return _Finished(replace(blank, outcome=ToolOutcome.CANCELLED, text=text), signal=told)


def _raise_first_failure(executions: tuple[ToolExecution, ...]) -> None:
    for execution in executions:
        if execution.is_error:
            raise ToolExecutionError(execution.call.name, execution.text)

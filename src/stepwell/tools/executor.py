"""Runs the tool calls of one response: prepare, invoke, finish. Every call gets one result.

Calls of one response run in parallel, within a bound; results stay in call order. Hooks run one at
a time, so that each sees the state the one before returned. Called by the drivers.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.continuation import AgentStop, StopSignal
from stepwell.errors import (
    ConfigurationError,
    ErrorType,
    HookError,
    InvalidToolArgumentsError,
    ToolExecutionError,
    ToolNotFoundError,
)
from stepwell.events import ToolCallBlocked, ToolCallCompleted, ToolCallStarted
from stepwell.hooks import HookContext, HookStack, HookTrigger, signal_of
from stepwell.messages import ToolCall
from stepwell.state import AgentState, Answered, ErrorInfo, ToolExecution, ToolOutcome
from stepwell.tools.context import ToolContext
from stepwell.tools.registry import Tools
from stepwell.tools.results import (
    Finished,
    blank,
    completed,
    interrupted,
    raised,
    refused,
    timed_out,
)
from stepwell.tools.secrets import Scrubber, hidden, refuse_hidden
from stepwell.tools.tool import InputRequired, Tool

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
        if not isinstance(max_parallel, int) or max_parallel < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"max_parallel must be 1 or more, got {max_parallel!r}")
        self.tools = tools or Tools()
        self._hooks = hooks or HookStack()
        self._clock = clock or SystemClock()
        self._max_parallel = max_parallel
        self._raise_on_failure = raise_on_failure

    async def run(self, calls: Sequence[ToolCall], state: AgentState) -> ToolBatch:
        """Run all calls; whatever happens, each has exactly one execution afterwards."""
        batch = _Batch(state)
        batch.scope.batches += 1
        try:
            await self._settle(calls, batch)
        finally:
            batch.scope.batches -= 1
        if self._raise_on_failure:
            batch.raise_first_failure(calls)
        return batch.result(calls)

    async def _settle(self, calls: Sequence[ToolCall], batch: "_Batch") -> None:
        """Run neighbouring calls together; a tool that is not parallel runs alone."""
        together: list[_Ready] = []
        for call in calls:
            if together and not self._runs_beside_others(call.name):
                together = await self._invoke_all(together, batch)
            ready = await self._prepare(call, batch)
            if ready is not None and not ready.tool.parallel:
                together = await self._invoke_all(together, batch)
                await self._invoke_all([ready], batch)
            elif ready is not None:
                together.append(ready)
        await self._invoke_all(together, batch)

    def refuse(self, calls: Sequence[ToolCall], state: AgentState, reason: str) -> ToolBatch:
        """Block all calls; each gets a result that says why."""
        batch = _Batch(state)
        for call in calls:
            self._block(call, reason, batch)
        return batch.result(calls)

    def skip(self, calls: Sequence[ToolCall], state: AgentState, signal: StopSignal) -> ToolBatch:
        """Run none of the calls, because the run stops; each gets a result that says so."""
        batch = _Batch(state)
        batch.halt(signal)
        for call in calls:
            self._keep(batch, self._unrun(call, batch))
        return batch.result(calls)

    def _runs_beside_others(self, name: str) -> bool:
        tool = self.tools.find(name)
        return tool is None or tool.parallel

    async def _prepare(self, call: ToolCall, batch: "_Batch") -> _Ready | None:
        """Hooks, look-up and validation. None if the call was settled without running."""
        if batch.is_halted:
            self._keep(batch, self._unrun(call, batch))
            return None
        if not self._hooks.has(HookTrigger.BEFORE_TOOL):
            return await self._checked(call, batch)
        context = HookContext(
            trigger=HookTrigger.BEFORE_TOOL,
            state=batch.state,
            call=call,
            secret_arguments=self.tools.secret_arguments(call.name),
        )
        answer = await self._run_hooks(context, batch)
        if answer is None:
            self._keep(batch, self._unrun(call, batch))
            return None
        call = call if answer.call is None else replace(answer.call, id=call.id)
        if answer.block_reason is not None:
            self._block(call, answer.block_reason, batch)
            return None
        if answer.result is UNSET:
            return await self._checked(call, batch)
        if isinstance(answer.result, InputRequired):  # nothing runs yet, so nothing is told
            self._keep(batch, self._substituted(call, answer.result))
            return None
        self._tell_started(call, batch)
        await self._finish(self._substituted(call, answer.result), batch)
        return None

    async def _checked(self, call: ToolCall, batch: "_Batch") -> _Ready | None:
        """The call ready to run; None if something is wrong with it, which its result then says."""
        tool = self.tools.find(call.name)
        try:
            if tool is not None and call.malformed is None:
                refuse_hidden(call, self.tools.secret_arguments(call.name))
                return _Ready(tool, call, tool.validate(call.arguments))
            problem = _problem_with(call, self.tools)
        except Exception as error:  # noqa: BLE001 - a validator is the tool's code as well
            problem = error
        unstarted = blank(call, self._clock.now())
        if isinstance(problem, ToolNotFoundError):
            finished = refused(unstarted, ToolOutcome.NOT_FOUND, str(problem))
        else:
            finished = raised(unstarted, problem)
        self._tell_started(call, batch)
        await self._finish(finished, batch)
        return None

    async def _invoke_all(self, ready: list[_Ready], batch: "_Batch") -> list[_Ready]:
        """Run these calls at once, finish each as it comes in, and return the empty list."""
        if len(ready) == 1:
            await self._finish(await self._invoke(ready[0], batch), batch)
        elif ready:
            await self._invoke_in_parallel(ready, batch)
        return []

    async def _invoke(self, ready: _Ready, batch: "_Batch") -> Finished:
        """Run the tool. Whatever it does ends as an execution; only outside cancellation passes."""
        tool, call = ready.tool, ready.call
        if batch.is_halted:
            return self._unrun(call, batch)
        self._tell_started(call, batch)
        begun, started = blank(call, self._clock.now()), self._clock.monotonic()
        finished: Finished | None = None
        with batch.scope.guard(tool.timeout) as guard:
            context = ToolContext(
                state=batch.state,
                call=self.tools.shown(call),
                guard=guard,
                resumed=batch.answer_to(call.id),
                scrubbed=self._scrubbed(call),
            )
            try:
                finished = completed(begun, await tool.invoke(ready.arguments, context))
            except asyncio.CancelledError as error:
                if guard.was_cancelled:
                    raise
                finished = raised(begun, error)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - what a tool raises is a result
                finished = raised(begun, error)
        if guard.signal is not None:
            finished = interrupted(begun, guard.signal, finished)
        elif guard.timed_out or finished is None:
            finished = timed_out(begun, tool.timeout)
        execution = replace(
            finished.execution,
            completed_at=self._clock.now(),
            duration_seconds=self._clock.monotonic() - started,
        )
        return replace(finished, execution=execution)

    async def _invoke_in_parallel(self, ready: list[_Ready], batch: "_Batch") -> None:
        waiting = iter(ready)
        done: asyncio.Queue[Finished | BaseException] = asyncio.Queue()

        async def work() -> None:
            for task in waiting:
                done.put_nowait(await self._invoke(task, batch))

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

    async def _finish(self, finished: Finished, batch: "_Batch") -> None:
        """After-tool hooks, then everything the call leads to flows into the state."""
        execution = finished.execution
        ran = execution.outcome is not ToolOutcome.NOT_RUN
        if ran and self._hooks.has(HookTrigger.AFTER_TOOL):
            context = HookContext(
                trigger=HookTrigger.AFTER_TOOL,
                state=batch.state,
                call=execution.call,
                execution=execution,
                secret_arguments=self.tools.secret_arguments(execution.call.name),
            )
            answer = await self._run_hooks(context, batch)
            if answer is not None and answer.result is not UNSET:
                finished = _in_place_of(execution, self._substituted(execution.call, answer.result))
        kept = self._keep(batch, finished)
        if ran:
            self._tell_completed(kept, batch)

    def _keep(self, batch: "_Batch", finished: Finished) -> ToolExecution:
        """Everything a call came to enters the state here, without its secret arguments."""
        call = finished.execution.call
        secret = self.tools.secret_arguments(call.name)
        if secret:
            finished = Scrubber.of(call, secret).finished(finished)
            finished = replace(
                finished, execution=replace(finished.execution, call=hidden(call, secret))
            )
        if finished.execution.outcome is ToolOutcome.RAISED:
            text, failure = finished.execution.text, finished.failure
            logger.info("tool %s: %s", call.name, text.removeprefix("Error: "), exc_info=failure)
        batch.settle(finished)
        return finished.execution

    async def _run_hooks(self, context: HookContext, batch: "_Batch") -> HookContext | None:
        """The hooks' answer; None if one raised, which halts the batch but loses no result."""
        try:
            answer = await self._hooks.run(context, batch.scope)
        except AgentStop as stop:
            batch.state = stop.state
            batch.halt(stop.signal)
            return None
        except HookError as error:
            if context.secret_arguments and context.call is not None:
                text = self._scrubbed(context.call)(str(error.__cause__ or error))
                kind = type(error.__cause__ or error)
                error = HookError(error.hook, context.trigger, _told(kind, text), error.state)
            logger.info("%s", error, exc_info=error)
            batch.state = error.state
            batch.failures.append(ErrorInfo.from_exception(error, ErrorType.UNKNOWN))
            batch.halt(signal_of(error))
            return None
        batch.state = answer.state
        return answer

    def _substituted(self, call: ToolCall, value: Any) -> Finished:
        """A result that a hook gave instead of the tool."""
        untouched = blank(call, self._clock.now())
        try:
            return completed(untouched, value)
        except Exception as error:  # noqa: BLE001 - a value that can't be shown is a failed result
            return raised(untouched, error)

    def _unrun(self, call: ToolCall, batch: "_Batch") -> Finished:
        why = f"Not run, because the run stops: {batch.why_halted}"
        return refused(blank(call, self._clock.now()), ToolOutcome.NOT_RUN, why)

    def _block(self, call: ToolCall, reason: str, batch: "_Batch") -> None:
        why = f"Blocked: {reason}"
        self._keep(batch, refused(blank(call, self._clock.now()), ToolOutcome.BLOCKED, why))
        batch.scope.emitter.emit(
            ToolCallBlocked,
            tool=call.name,
            args=self.tools.shown(call).arguments,
            call_id=call.id,
            reason=self._scrubbed(call)(reason),
        )

    def _scrubbed(self, call: ToolCall) -> Callable[[str], str]:
        """What takes the secret arguments of a call out of a text."""
        secret = self.tools.secret_arguments(call.name)
        return Scrubber.of(call, secret).text if secret else str

    def _tell_started(self, call: ToolCall, batch: "_Batch") -> None:
        if batch.scope.emitter.is_heard:
            batch.scope.emitter.emit(
                ToolCallStarted,
                tool=call.name,
                args=self.tools.shown(call).arguments,
                call_id=call.id,
                step_number=batch.state.step_number,
            )

    def _tell_completed(self, execution: ToolExecution, batch: "_Batch") -> None:
        if batch.scope.emitter.is_heard:
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
    """The state as it flows through the calls of one response. Lives only inside the executor."""

    __slots__ = ("_faults", "_halted_by", "executions", "failures", "scope", "state")

    def __init__(self, state: AgentState) -> None:
        self.state = state
        self.scope = state.scope
        self.executions: dict[str, ToolExecution] = {}
        self.failures: list[ErrorInfo] = []
        self._faults: dict[str, BaseException] = {}
        self._halted_by: StopSignal | None = None

    @property
    def is_halted(self) -> bool:
        """Whether no further call may begin."""
        return self._halted_by is not None or self.scope.signal is not None

    @property
    def why_halted(self) -> str:
        signal = self._halted_by or self.scope.signal
        return "" if signal is None else signal.words

    def answer_to(self, call_id: str) -> Answered | None:
        """What a call that runs again was answered."""
        return next((a for a in self.state.answered if a.call.id == call_id), None)

    def halt(self, signal: StopSignal) -> None:
        """Start no further call, and vote to stop."""
        self.state = self.state.with_signal(signal)
        self._halted_by = self._halted_by or signal

    def settle(self, finished: Finished) -> None:
        """The call has its result, and what it leads to flows into the state."""
        call_id = finished.execution.call.id
        self.executions[call_id] = finished.execution
        if finished.waits_for is not None:
            self.state = self.state.with_pending(finished.waits_for)
        if finished.signal is not None and finished.waits_for is not None:
            # The model made the other calls without the answer, so they don't wait for it.
            self.state = self.state.with_signal(finished.signal)
        elif finished.signal is not None:
            self.halt(finished.signal)
        if finished.metadata:
            self.state = self.state.with_metadata(finished.metadata)
        if finished.failure is not None:
            self._faults[call_id] = finished.failure

    def result(self, calls: Sequence[ToolCall]) -> ToolBatch:
        return ToolBatch(
            state=self.state,
            executions=tuple([self.executions[call.id] for call in calls]),
            failures=tuple(self.failures),
        )

    def raise_first_failure(self, calls: Sequence[ToolCall]) -> None:
        for execution in (self.executions[call.id] for call in calls):
            if execution.is_error:
                said = execution.error.text if execution.error else execution.text
                cause = self._faults.get(execution.call.id)
                raise ToolExecutionError(execution.call.name, said) from cause


def _told(kind: type[BaseException], text: str) -> Exception:
    """An exception of that name with only this text: the one that was raised may hold secrets."""
    return type(kind.__name__, (Exception,), {})(text)


def _problem_with(call: ToolCall, tools: Tools) -> Exception:
    if call.name not in tools:
        return ToolNotFoundError(call.name, tools.names)
    return InvalidToolArgumentsError(
        f"The arguments of tool {call.name!r} are not a JSON object: "
        f"{tools.shown(call).malformed:.200}"
    )


def _in_place_of(execution: ToolExecution, substitute: Finished) -> Finished:
    """A hook's result for a call that ran: its times and what it spent stay."""
    given = substitute.execution
    shown = replace(
        given,
        started_at=execution.started_at,
        completed_at=execution.completed_at,
        duration_seconds=execution.duration_seconds,
        usage=execution.usage + given.usage,
        cost=execution.cost + given.cost,
    )
    return replace(substitute, execution=shown)

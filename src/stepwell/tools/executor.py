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
    ToolNotFoundError,
    text_of,
)
from stepwell.events import ToolCallBlocked, ToolCallStarted
from stepwell.foreign import contained
from stepwell.hooks import HookContext, HookStack, HookTrigger, signal_of
from stepwell.messages import ToolCall
from stepwell.scope import Guard
from stepwell.state import AgentState, ErrorInfo, RepeatedCalls, ToolExecution, ToolOutcome
from stepwell.tools.batch import Batch, ToolBatch, emit_completed, with_signals_told
from stepwell.tools.context import ToolContext
from stepwell.tools.formatting import DEFAULT_RESULT_CHARACTERS
from stepwell.tools.ledger import CallLedger, LedgerEntry
from stepwell.tools.registry import Tools, problem_with
from stepwell.tools.repetition import RepetitionNotes
from stepwell.tools.result_limits import ResultLimits
from stepwell.tools.results import (
    Finished,
    blank,
    completed,
    in_place_of,
    interrupted,
    raised,
    refused,
    timed_out,
)
from stepwell.tools.secrets import exception_with_text, what_is_hidden
from stepwell.tools.tool import InputRequired, Tool, ToolFailure

logger = logging.getLogger("stepwell.tools")

DEFAULT_PARALLEL_CALLS = 8


class _Ready(Struct, frozen=True):
    """A call that passed all checks."""

    tool: Tool
    call: ToolCall
    arguments: dict[str, Any]
    entry: LedgerEntry | None = None


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
        ledger: CallLedger | None = None,
        repeated_calls: RepeatedCalls | None = None,
        max_result_characters: int = DEFAULT_RESULT_CHARACTERS,
    ) -> None:
        if not isinstance(max_parallel, int) or max_parallel < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"max_parallel must be 1 or more, got {max_parallel!r}")
        self.tools = tools or Tools()
        self.hooks = hooks or HookStack()
        """What runs around each call."""
        self.clock = clock or SystemClock()
        self.max_parallel = max_parallel
        self.raise_on_failure = raise_on_failure
        self.ledger = ledger
        self._repeated_calls = repeated_calls
        self.max_result_characters = max_result_characters
        self._limits = ResultLimits(self.tools, max_result_characters)

    async def run(
        self, calls: Sequence[ToolCall], state: AgentState, *, cut_note: str = ""
    ) -> ToolBatch:
        """Run all calls; whatever happens, each has exactly one execution afterwards.

        Neighbouring calls run together; a tool that is not parallel runs alone. ``cut_note`` says
        that the response was cut off; calls that are not whole are told it.
        """
        for call in calls:
            self.tools.find(call.name)  # one that can't be built is told before any call has run
        notes = RepetitionNotes(calls, self.tools, self._repeated_calls)
        batch = Batch(state, cut_note, notes)
        batch.scope.batches += 1
        together: list[_Ready] = []
        try:
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
        finally:
            batch.scope.batches -= 1
        batch.announce_waiting()
        if self.raise_on_failure:
            batch.raise_first_failure(calls)
        return batch.result(calls)

    def refuse(self, calls: Sequence[ToolCall], state: AgentState, reason: str) -> ToolBatch:
        """Block all calls; each gets a result that says why."""
        batch = Batch(state)
        for call in calls:
            self._block(call, reason, batch)
        return batch.result(calls)

    def skip(self, calls: Sequence[ToolCall], state: AgentState, signal: StopSignal) -> ToolBatch:
        """Run none of the calls, because the run stops; each gets a result that says so."""
        batch = Batch(state)
        batch.halt(signal)
        for call in calls:
            self._keep(batch, self._unrun(call, batch))
        return batch.result(calls)

    def _runs_beside_others(self, name: str) -> bool:
        tool = self.tools.find(name)
        return tool is None or tool.parallel

    async def _prepare(self, call: ToolCall, batch: Batch) -> _Ready | None:
        """Hooks, look-up and validation. None if the call was settled without running."""
        if batch.is_halted:
            self._keep(batch, self._unrun(call, batch))
            return None
        approval = batch.approval_of(call.id)
        if approval is not None and not approval.approved:
            why = f": {approval.message}" if approval.message else ""
            self._block(call, f"a person denied this call{why}", batch)
            return None
        wanted = call
        if approval is not None and approval.arguments is not None:
            wanted = replace(call, arguments=dict(approval.arguments))
        if not self.hooks.has(HookTrigger.BEFORE_TOOL):
            return await self._checked(wanted, batch)
        context = HookContext(
            trigger=HookTrigger.BEFORE_TOOL,
            state=batch.state,
            call=wanted,
            secret_arguments=self.tools.secrets_of(wanted),
            secret_fields=self.tools.secret_fields(wanted),
            validate=self.tools.validated_arguments,
        )
        signals = len(batch.state.signals)
        answer = await self._run_hooks(context, batch)
        if answer is None:
            self._keep(batch, self._unrun(wanted, batch))
            return None
        if answer.block_reason is not None:
            batch.halt_by_signal(signals)
        return await self._as_hooks_say(answer, call, wanted, batch)

    async def _as_hooks_say(
        self, answer: HookContext, given: ToolCall, wanted: ToolCall, batch: Batch
    ) -> _Ready | None:
        """The call as the hooks left it; one that asked by itself goes on as it began."""
        if answer.call is not None and batch.question_answered(given.id) is None:
            wanted = replace(answer.call, id=given.id)
        if answer.block_reason is not None:
            self._block(wanted, answer.block_reason, batch)
            return None
        if answer.result is UNSET:
            return await self._checked(wanted, batch)
        if isinstance(answer.result, InputRequired):
            # Nothing ran, so no event. The call stays as it was given: the hooks will run again.
            asked = self._substituted(given, answer.result)
            if asked.waits_for is not None:
                asked = replace(asked, waits_for=replace(asked.waits_for, by_hook=True))
            self._keep(batch, asked)
            return None
        self._tell_started(wanted, batch)
        await self._finish(self._substituted(wanted, answer.result), batch)
        return None

    async def _checked(self, call: ToolCall, batch: Batch) -> _Ready | None:
        """The call ready to run; None if something is wrong with it, which its result then says."""
        tool = self.tools.find(call.name)
        try:
            if tool is not None and call.malformed is None:
                secret = self.tools.secret_arguments(call.name)
                gone = what_is_hidden(call, secret) if secret else None
                if gone is None:
                    with contained():
                        return _Ready(tool, call, tool.validate(call.arguments))
                problem = ToolFailure(gone)
            else:
                problem = problem_with(call, self.tools)
        except Exception as error:  # noqa: BLE001 - a validator is the tool's code as well
            # What a person mistyped is told to the model, and is no error of the run.
            approval = batch.approval_of(call.id)
            is_edited = approval is not None and approval.arguments is not None
            problem = ToolFailure(text_of(error)) if is_edited else error
        if batch.cut_note and isinstance(problem, InvalidToolArgumentsError):
            problem = InvalidToolArgumentsError(f"{problem} {batch.cut_note}")
        unstarted = blank(call, self.clock.now())
        if isinstance(problem, ToolNotFoundError):
            finished = refused(unstarted, ToolOutcome.NOT_FOUND, str(problem))
        elif isinstance(problem, ToolFailure):
            finished = completed(unstarted, problem)
        else:
            finished = raised(unstarted, problem)
        self._tell_started(call, batch)
        await self._finish(finished, batch)
        return None

    async def _invoke_all(self, ready: list[_Ready], batch: Batch) -> list[_Ready]:
        """Run these calls at once, finish each as it comes in, and return the empty list."""
        if ready and self.ledger is not None and not batch.is_halted:
            ready = await self._enter(ready, batch, self.ledger)
        if len(ready) == 1:
            await self._finish(await self._invoke(ready[0], batch), batch)
        elif ready:
            await self._invoke_in_parallel(ready, batch)
        return []

    async def _enter(self, ready: list[_Ready], batch: Batch, ledger: CallLedger) -> list[_Ready]:
        """Enter the calls into the ledger together, and finish those that must not run."""
        state, shown, answer = batch.state, self.tools.shown, batch.answer_to
        entries = [
            LedgerEntry(call=shown(it.call), tool=it.tool, state=state, answered=answer(it.call.id))
            for it in ready
        ]
        known = await ledger.begin(entries)
        entered: list[_Ready] = []
        for it, entry in zip(ready, entries, strict=True):
            if (finished := known.get(it.call.id)) is None:
                entered.append(replace(it, entry=entry))
            else:
                self._tell_started(it.call, batch)
                await self._finish(finished, batch)
        return entered

    async def _invoke(self, ready: _Ready, batch: Batch) -> Finished:
        """Return what the tool came to, whatever it did; only outside cancellation passes. It is
        not run if the run was ended while the ledger wrote."""
        tool, call = ready.tool, ready.call
        if batch.is_halted:
            return self._enter_end(ready, self._unrun(call, batch))
        self._tell_started(call, batch)
        begun, started = blank(call, self.clock.now()), self.clock.monotonic()
        finished: Finished | None = None
        with batch.scope.guard(tool.timeout, around=call) as guard:
            context = self._context(call, guard, batch)
            try:
                value = await guard.call(
                    lambda: tool.invoke(ready.arguments, context), f"tool {call.name}"
                )
                finished = completed(begun, value)
            except asyncio.CancelledError as error:
                if guard.was_cancelled:
                    raise
                finished = raised(begun, error)
            except Exception as error:  # noqa: BLE001 - what a tool raises is a result
                finished = raised(begun, error)
        if guard.signal is not None:
            finished = interrupted(begun, guard.signal, finished, guard.was_abandoned)
        elif guard.timed_out or finished is None:
            finished = timed_out(begun, tool.timeout, guard.was_abandoned)
        execution = replace(
            finished.execution,
            completed_at=self.clock.now(),
            duration_seconds=self.clock.monotonic() - started,
        )
        return self._enter_end(ready, replace(finished, execution=execution))

    def _enter_end(self, ready: _Ready, finished: Finished) -> Finished:
        if self.ledger is not None and ready.entry is not None:
            self.ledger.end(ready.entry, self._limits.bound(self._without_secrets(finished)))
        return finished

    def _context(self, call: ToolCall, guard: Guard, batch: Batch) -> ToolContext:
        answered = batch.answer_to(call.id)
        if answered is None and not self.tools.secrets_of(call):
            return ToolContext(state=batch.state, call=call, guard=guard)
        return ToolContext(
            state=batch.state,
            call=self.tools.shown(call),
            guard=guard,
            resumed=batch.question_answered(call.id),
            made_in=None if answered is None else answered.made_in,
            scrubbed=self._scrubbed(call),
        )

    async def _invoke_in_parallel(self, ready: list[_Ready], batch: Batch) -> None:
        waiting = iter(ready)
        done: asyncio.Queue[Finished | BaseException] = asyncio.Queue()

        async def work() -> None:
            for task in waiting:
                done.put_nowait(await self._invoke(task, batch))

        def report_fault(worker: "asyncio.Task[None]") -> None:
            if not worker.cancelled() and (fault := worker.exception()) is not None:
                done.put_nowait(fault)

        workers = [asyncio.create_task(work()) for _ in range(min(self.max_parallel, len(ready)))]
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

    async def _finish(self, finished: Finished, batch: Batch) -> None:
        """After-tool hooks, then everything the call leads to flows into the state."""
        execution = finished.execution
        ran = execution.outcome is not ToolOutcome.NOT_RUN
        if ran and self.hooks.has(HookTrigger.AFTER_TOOL):
            context = HookContext(
                trigger=HookTrigger.AFTER_TOOL,
                state=batch.state,
                call=execution.call,
                execution=execution,
                secret_arguments=self.tools.secrets_of(execution.call),
                secret_fields=self.tools.secret_fields(execution.call),
            )
            answer = await self._run_hooks(context, batch)
            if answer is not None and answer.result is not UNSET:
                finished = in_place_of(finished, self._substituted(execution.call, answer.result))
        self._keep(batch, finished)
        if ran:
            batch.announce(execution.call.id, lambda ran, note: emit_completed(ran, note, batch))

    def _keep(self, batch: Batch, finished: Finished) -> None:
        """Everything a call came to enters the state here, without its secret arguments."""
        call = finished.execution.call
        finished = self._limits.bound(self._without_secrets(finished))
        if finished.execution.outcome is ToolOutcome.RAISED:
            text = finished.execution.text.removeprefix("Error: ")
            # Operators get a line; who looks for the fault in a tool gets its traceback.
            failure = finished.failure if logger.isEnabledFor(logging.DEBUG) else None
            logger.info("tool %s: %s", call.name, text, exc_info=failure)
        batch.settle(finished)

    def _without_secrets(self, finished: Finished) -> Finished:
        call = finished.execution.call
        scrubber = self.tools.scrubber_for(call)
        if scrubber is None:
            return finished
        finished = scrubber.finished(finished)
        if (asked := finished.waits_for) is not None:
            may_store = self.tools.open_arguments(call.name)
            finished = replace(finished, waits_for=replace(asked, may_store=may_store))
        return replace(finished, execution=replace(finished.execution, call=self.tools.shown(call)))

    async def _run_hooks(self, context: HookContext, batch: Batch) -> HookContext | None:
        """The hooks' answer; None if one raised, which halts the batch but loses no result."""
        scrubbed = self._scrubbed(context.call) if context.call is not None else str
        try:
            answer = await self.hooks.run(context, batch.scope)
        except AgentStop as stop:
            batch.state = stop.state
            batch.halt(replace(stop.signal, message=scrubbed(stop.signal.message)))
            return None
        except HookError as error:
            if context.secret_arguments:
                cause = error.__cause__ or error
                told = exception_with_text(type(cause), scrubbed(text_of(cause)))
                error = HookError(error.hook, context.trigger, told, error.state)
            logger.info("%s", error, exc_info=error)
            batch.state = error.state
            batch.failures.append(ErrorInfo.from_exception(error, ErrorType.UNKNOWN))
            batch.halt(signal_of(error))
            return None
        batch.state = answer.state
        if context.secret_arguments:
            batch.state = with_signals_told(answer.state, scrubbed)
        return answer

    def _substituted(self, call: ToolCall, value: Any) -> Finished:
        """A result that a hook gave instead of the tool."""
        untouched = blank(call, self.clock.now())
        try:
            return completed(untouched, value)
        except Exception as error:  # noqa: BLE001 - a value that can't be shown is a failed result
            return raised(untouched, error)

    def _unrun(self, call: ToolCall, batch: Batch) -> Finished:
        why = f"Not run, because the run stops: {batch.why_halted}"
        return refused(blank(call, self.clock.now()), ToolOutcome.NOT_RUN, why)

    def _block(self, call: ToolCall, reason: str, batch: Batch) -> None:
        why = f"Blocked: {reason}"
        self._keep(batch, refused(blank(call, self.clock.now()), ToolOutcome.BLOCKED, why))

        def announce(_: ToolExecution, note: str) -> None:
            batch.scope.emitter.emit(
                ToolCallBlocked,
                tool=call.name,
                args=self.tools.shown(call).arguments,
                call_id=call.id,
                reason=self._scrubbed(call)(reason) + (f"\n\n{note}" if note else ""),
            )

        batch.announce(call.id, announce)

    def without_secrets(self, text: str, calls: Sequence[ToolCall]) -> str:
        """The text without the secret arguments of these calls."""
        for call in calls:
            text = self._scrubbed(call)(text)
        return text

    def _scrubbed(self, call: ToolCall) -> Callable[[str], str]:
        """What takes the secret arguments of a call out of a text."""
        scrubber = self.tools.scrubber_for(call)
        return str if scrubber is None else scrubber.text

    def _tell_started(self, call: ToolCall, batch: Batch) -> None:
        if batch.scope.emitter.is_heard:
            batch.scope.emitter.emit(
                ToolCallStarted,
                tool=call.name,
                args=self.tools.shown(call).arguments,
                call_id=call.id,
                step_number=batch.state.step_number,
            )

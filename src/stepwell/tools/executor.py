"""Runs the tool calls of one response: prepare, invoke, finish. Every call gets one result.

    approval       what a person said: denied, or with other arguments
    before hooks   may change the call, refuse it, or give a result in its place
    ledger         knows the call from before a crash, or records that it is about to run
    validation     look-up and arguments
    invoke         in parallel, within a bound; results stay in call order
    after hooks    may replace the result
    keep           secrets and length; then metadata, questions and signals flow into the state

Called by the drivers.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing

from msgspec.structs import replace

from stepwell.clock import Clock, SystemClock
from stepwell.continuation import StopSignal
from stepwell.errors import ConfigurationError
from stepwell.hooks import HookStack
from stepwell.messages import ToolCall
from stepwell.scope import Guard
from stepwell.state import AgentState, RepeatedCalls, ToolExecution, ToolOutcome
from stepwell.tools.batch import Batch, ToolBatch
from stepwell.tools.call_events import emit_blocked, emit_completed, emit_started
from stepwell.tools.call_hooks import CallHooks
from stepwell.tools.call_secrets import CallSecrets
from stepwell.tools.context import ToolContext
from stepwell.tools.ledger import CallLedger
from stepwell.tools.parallel import run_parallel
from stepwell.tools.preparation import CallPreparation, PreparedCall, UnrunCall
from stepwell.tools.registry import Tools
from stepwell.tools.repetition import RepetitionNotes
from stepwell.tools.result_limits import ResultLimits
from stepwell.tools.result_text import DEFAULT_RESULT_CHARACTERS
from stepwell.tools.results import (
    Finished,
    blank,
    blocked_result,
    completed_result,
    interrupted_result,
    not_run,
    raised_result,
    timed_out,
)

logger = logging.getLogger("stepwell.tools")

DEFAULT_PARALLEL_CALLS = 8


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
        self.tools = Tools() if tools is None else tools
        self.hooks = hooks or HookStack()
        """What runs around each call."""
        self.clock = clock or SystemClock()
        self.max_parallel = max_parallel
        self.raise_on_failure = raise_on_failure
        self.ledger = ledger
        self.max_result_characters = max_result_characters
        self._repeated_calls = repeated_calls
        self._limits = ResultLimits(self.tools, max_result_characters)
        self._secrets = CallSecrets(self.tools)
        self._hooks = CallHooks(self.hooks, self.tools, self._secrets, self.clock)
        self._preparation = CallPreparation(
            self.tools, hooks=self._hooks, secrets=self._secrets, ledger=ledger, clock=self.clock
        )

    async def run(
        self, calls: Sequence[ToolCall], state: AgentState, *, cut_note: str = ""
    ) -> ToolBatch:
        """Run all calls; whatever happens, each has exactly one execution afterwards.

        Neighbouring calls run together; a tool that is not parallel runs alone. ``cut_note`` says
        that the response was cut off; incomplete calls get it as their result.
        """
        for call in calls:
            self.tools.find(call.name)  # a lazy tool that can't be built raises before any call ran
        notes = RepetitionNotes(calls, self.tools, self._repeated_calls)
        batch = Batch(state, cut_note, notes)
        batch.scope.batches += 1
        together: list[PreparedCall] = []
        try:
            for call in calls:
                if together and not self._is_parallel(call):
                    await self._invoke_all(together, batch)
                    together = []
                prepared = await self._preparation.prepare(call, batch)
                if isinstance(prepared, UnrunCall):
                    await self._finish_unrun(prepared, batch)
                elif prepared.tool.parallel:
                    together.append(prepared)
                else:
                    await self._invoke_all(together, batch)
                    await self._invoke_all([prepared], batch)
                    together = []
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
            self._keep(batch, not_run(call, batch.why_halted, self.clock.now()))
        return batch.result(calls)

    def redact_text(self, text: str, calls: Sequence[ToolCall]) -> str:
        """The text without the secret arguments of these calls."""
        for call in calls:
            text = self._secrets.text_filter(call)(text)
        return text

    def _is_parallel(self, call: ToolCall) -> bool:
        tool = self.tools.find(call.name)
        return tool is None or tool.parallel

    # Invoke

    async def _invoke_all(self, prepared: list[PreparedCall], batch: Batch) -> None:
        """Run these calls at once, and finish each as it comes in."""
        if prepared and self.ledger is not None and not batch.is_halted:
            entries = [self._preparation.ledger_entry(it.call, batch) for it in prepared]
            await self.ledger.begin(entries)
            prepared = [
                replace(it, entry=entry) for it, entry in zip(prepared, entries, strict=True)
            ]
        if len(prepared) == 1:
            await self._finish(await self._invoke(prepared[0], batch), batch)
        elif prepared:
            running = run_parallel(
                prepared, lambda it: self._invoke(it, batch), limit=self.max_parallel
            )
            async with aclosing(running) as results:
                async for finished in results:
                    await self._finish(finished, batch)

    async def _invoke(self, prepared: PreparedCall, batch: Batch) -> Finished:
        """Return what the tool came to, whatever it did; only outside cancellation passes. It is
        not run if the run was ended while the ledger wrote or other calls ran."""
        tool, call = prepared.tool, prepared.call
        if batch.is_halted:
            return self._record(prepared, not_run(call, batch.why_halted, self.clock.now()))
        if batch.scope.emitter.is_heard:
            emit_started(
                self._secrets.redact_call(call), batch.scope.emitter, batch.state.step_number
            )
        begun, started = blank(call, self.clock.now()), self.clock.monotonic()
        finished: Finished | None = None
        with batch.scope.guard(tool.timeout, around=call) as guard:
            context = self._context(call, guard, batch)
            try:
                value = await guard.call(
                    lambda: tool.invoke(prepared.arguments, context), f"tool {call.name}"
                )
                finished = completed_result(begun, value)
            except asyncio.CancelledError as error:
                if guard.was_cancelled:
                    raise
                finished = raised_result(begun, error)
            except Exception as error:  # noqa: BLE001 - what a tool raises is a result
                finished = raised_result(begun, error)
        if guard.signal is not None:
            finished = interrupted_result(begun, guard.signal, finished, guard.was_abandoned)
        elif guard.timed_out or finished is None:
            finished = timed_out(begun, tool.timeout, guard.was_abandoned)
        execution = replace(
            finished.execution,
            completed_at=self.clock.now(),
            duration_seconds=self.clock.monotonic() - started,
        )
        return self._record(prepared, replace(finished, execution=execution))

    def _context(self, call: ToolCall, guard: Guard, batch: Batch) -> ToolContext:
        if not batch.has_answers and not self._secrets.may_be_in(call):
            return ToolContext(state=batch.state, call=call, guard=guard)
        answered = batch.answer_to(call.id)
        return ToolContext(
            state=batch.state,
            call=self._secrets.redact_call(call),
            guard=guard,
            resumed=batch.question_answered(call.id),
            made_in=None if answered is None else answered.made_in,
            scrubbed=self._secrets.text_filter(call),
        )

    def _record(self, prepared: PreparedCall, finished: Finished) -> Finished:
        """Tell the ledger what an entered call came to."""
        if self.ledger is not None and prepared.entry is not None:
            self.ledger.end(prepared.entry, self._as_stored(finished))
        return finished

    # Finish

    async def _finish_unrun(self, unrun: UnrunCall, batch: Batch) -> None:
        """Finish a call that has its result without an invocation."""
        finished = unrun.finished
        if unrun.is_silent:
            self._keep(batch, finished)
        elif unrun.block_reason is not None:
            self._block(finished.execution.call, unrun.block_reason, batch)
        else:
            if batch.scope.emitter.is_heard:
                shown = self._secrets.redact_call(finished.execution.call)
                emit_started(shown, batch.scope.emitter, batch.state.step_number)
            await self._finish(finished, batch)

    async def _finish(self, finished: Finished, batch: Batch) -> None:
        """After-tool hooks, then everything the call leads to flows into the state."""
        ran = finished.execution.outcome is not ToolOutcome.NOT_RUN
        if ran and self._hooks.stand_behind:
            finished = await self._hooks.run_after(finished, batch)
        self._keep(batch, finished)
        if ran:
            batch.announce(
                finished.execution.call.id,
                lambda execution, note: emit_completed(execution, batch.scope.emitter, note),
            )

    def _keep(self, batch: Batch, finished: Finished) -> None:
        """Everything a call came to enters the state here, without its secret arguments."""
        finished = self._as_stored(finished)
        execution = finished.execution
        if execution.outcome is ToolOutcome.RAISED:
            text = execution.text.removeprefix("Error: ")
            # Operators get a line; who looks for the fault in a tool gets its traceback.
            failure = finished.failure if logger.isEnabledFor(logging.DEBUG) else None
            logger.info("tool %s: %s", execution.call.name, text, exc_info=failure)
        batch.settle(finished)

    def _as_stored(self, finished: Finished) -> Finished:
        return self._limits.truncate(self._secrets.redact(finished))

    def _block(self, call: ToolCall, reason: str, batch: Batch) -> None:
        self._keep(batch, blocked_result(call, reason, self.clock.now()))

        def announce(_: ToolExecution, note: str) -> None:
            shown, redact = self._secrets.redact_call(call), self._secrets.text_filter(call)
            emit_blocked(shown, batch.scope.emitter, redact(reason), note)

        batch.announce(call.id, announce)

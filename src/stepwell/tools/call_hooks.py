"""Runs the hooks around one call. They run one at a time, so that each sees the state that the one
before returned. Used by the executor."""

import logging

from msgspec import UNSET
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.continuation import AgentStop
from stepwell.errors import ErrorType, HookError
from stepwell.hooks import HookContext, HookStack, HookTrigger, signal_of
from stepwell.messages import ToolCall
from stepwell.state import ErrorInfo
from stepwell.tools.batch import Batch
from stepwell.tools.call_secrets import CallSecrets
from stepwell.tools.registry import Tools
from stepwell.tools.results import Finished, in_place_of, substituted_result

logger = logging.getLogger("stepwell.tools")


class CallHooks:
    """The before-tool and after-tool hooks of an executor."""

    def __init__(self, hooks: HookStack, tools: Tools, secrets: CallSecrets, clock: Clock) -> None:
        self._hooks = hooks
        self._tools = tools
        self._secrets = secrets
        self._clock = clock
        self.stand_before = hooks.has(HookTrigger.BEFORE_TOOL)
        """Whether any runs before a call."""
        self.stand_behind = hooks.has(HookTrigger.AFTER_TOOL)

    async def run_before(self, call: ToolCall, batch: Batch) -> HookContext | None:
        """Return the answer of the before-tool hooks; None if one ended the run."""
        context = HookContext(
            trigger=HookTrigger.BEFORE_TOOL,
            state=batch.state,
            call=call,
            secret_arguments=self._tools.secrets_of(call),
            secret_fields=self._tools.secret_fields(call),
            validate=self._tools.validated_arguments,
        )
        signals = len(batch.state.signals)
        answer = await self._run(context, batch)
        if answer is not None and answer.block_reason is not None:
            batch.halt_by_signal(signals)
        return answer

    async def run_after(self, finished: Finished, batch: Batch) -> Finished:
        """Return the result, or the one that an after-tool hook gave in its place."""
        execution = finished.execution
        context = HookContext(
            trigger=HookTrigger.AFTER_TOOL,
            state=batch.state,
            call=execution.call,
            execution=execution,
            secret_arguments=self._tools.secrets_of(execution.call),
            secret_fields=self._tools.secret_fields(execution.call),
        )
        answer = await self._run(context, batch)
        if answer is None or answer.result is UNSET:
            return finished
        given = substituted_result(execution.call, answer.result, self._clock.now())
        return in_place_of(finished, given)

    async def _run(self, context: HookContext, batch: Batch) -> HookContext | None:
        """The hooks' answer; None if one raised, which halts the batch but loses no result."""
        call = context.call
        try:
            answer = await self._hooks.run(context, batch.scope)
        except AgentStop as stop:
            batch.state = stop.state
            message = self._secrets.text_filter(call)(stop.signal.message)
            batch.halt(replace(stop.signal, message=message))
            return None
        except HookError as raised:
            error = self._secrets.redact_hook_error(raised, context.trigger, call)
            logger.info("%s", error, exc_info=error)
            batch.state = error.state
            batch.failures.append(ErrorInfo.from_exception(error, ErrorType.UNKNOWN))
            batch.halt(signal_of(error))
            return None
        batch.state = answer.state
        if call is not None:
            batch.state = self._secrets.redact_signals(answer.state, call)
        return answer

"""Everything that happens to a call before its tool runs: approval, hooks, ledger, look-up and
validation. Used by the executor."""

from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from stepwell.clock import Clock
from stepwell.errors import InvalidToolArgumentsError, ToolNotFoundError, text_of
from stepwell.foreign import as_exception
from stepwell.hooks import HookContext
from stepwell.messages import ToolCall
from stepwell.state import Approval
from stepwell.tools.batch import Batch
from stepwell.tools.call_hooks import CallHooks
from stepwell.tools.call_secrets import CallSecrets
from stepwell.tools.ledger import CallLedger, LedgerEntry
from stepwell.tools.registry import Tools, problem_with
from stepwell.tools.results import (
    Finished,
    blocked_result,
    not_run,
    refused_for,
    substituted_result,
)
from stepwell.tools.secret_arguments import what_is_hidden
from stepwell.tools.tool import InputRequired, Tool, ToolFailure


class PreparedCall(Struct, frozen=True):
    """A call with its tool and its validated arguments."""

    tool: Tool
    call: ToolCall
    arguments: dict[str, Any]
    entry: LedgerEntry | None = None
    """What the ledger knows it by, once the call was entered there."""


class UnrunCall(Struct, frozen=True, kw_only=True):
    """A call that has its result and does not run."""

    finished: Finished
    is_silent: bool = False
    """Whether neither hooks nor listeners hear of it: nothing happened yet."""
    block_reason: str | None = None


class CallPreparation:
    """Prepares the calls of an executor."""

    def __init__(
        self,
        tools: Tools,
        *,
        hooks: CallHooks,
        secrets: CallSecrets,
        ledger: CallLedger | None,
        clock: Clock,
    ) -> None:
        self._tools = tools
        self._hooks = hooks
        self._secrets = secrets
        self._ledger = ledger
        self._clock = clock

    async def prepare(self, call: ToolCall, batch: Batch) -> PreparedCall | UnrunCall:
        """Return the call ready to run, or the result that it has without running."""
        if batch.is_halted:
            return self._skip(call, batch)
        visible = self._tools.visible_to(batch.state.context)
        if call.name in self._tools and call.name not in visible:
            # As if it did not exist: neither hooks nor people see such a call.
            missing = ToolNotFoundError(call.name, visible.names)
            return UnrunCall(finished=refused_for(call, missing, self._clock.now()))
        wanted, approval = call, batch.approval_of(call.id) if batch.has_answers else None
        if approval is not None:
            if not approval.approved:
                why = f": {approval.message}" if approval.message else ""
                return self._block(call, f"a person denied this call{why}")
            if approval.arguments is not None:
                wanted = replace(call, arguments=dict(approval.arguments))
        if self._hooks.stand_before:
            answer = await self._hooks.run_before(wanted, batch)
            if answer is None:
                return self._skip(wanted, batch)
            if answer.call is not None and batch.question_answered(call.id) is None:
                wanted = replace(answer.call, id=call.id)
            if (unrun := self._by_hooks(answer, call, wanted)) is not None:
                return unrun
        if self._ledger is not None:
            known = self._ledger.recall(self.ledger_entry(wanted, batch))
            if known is not None:
                return UnrunCall(finished=known)
        prepared = validate_call(wanted, visible, approval=approval, cut_note=batch.cut_note)
        if isinstance(prepared, PreparedCall):
            return prepared
        return UnrunCall(finished=refused_for(wanted, prepared, self._clock.now()))

    def ledger_entry(self, call: ToolCall, batch: Batch) -> LedgerEntry:
        """The call as the ledger may know it."""
        return LedgerEntry(
            call=self._secrets.redact_call(call),
            tool=self._tools.find(call.name),
            state=batch.state,
            answered=batch.answer_to(call.id),
        )

    def _by_hooks(self, answer: HookContext, given: ToolCall, wanted: ToolCall) -> UnrunCall | None:
        """The result that the before-tool hooks decided on; None if the call shall run."""
        if answer.block_reason is not None:
            return self._block(wanted, answer.block_reason)
        if answer.result is UNSET:
            return None
        if not isinstance(answer.result, InputRequired):
            return UnrunCall(finished=substituted_result(wanted, answer.result, self._clock.now()))
        # The call stays as it was given: the hooks will run again once they are answered.
        asked = substituted_result(given, answer.result, self._clock.now())
        if asked.waits_for is not None:
            asked = replace(asked, waits_for=replace(asked.waits_for, by_hook=True))
        return UnrunCall(finished=asked, is_silent=True)

    def _skip(self, call: ToolCall, batch: Batch) -> UnrunCall:
        finished = not_run(call, batch.why_halted, self._clock.now())
        return UnrunCall(finished=finished, is_silent=True)

    def _block(self, call: ToolCall, reason: str) -> UnrunCall:
        finished = blocked_result(call, reason, self._clock.now())
        return UnrunCall(finished=finished, block_reason=reason)


def validate_call(
    call: ToolCall, tools: Tools, *, approval: Approval | None = None, cut_note: str = ""
) -> PreparedCall | Exception | ToolFailure:
    """Return the call with its tool and validated arguments, or what keeps it from running.

    ``cut_note`` is added to complaints about arguments, since the response was cut off.
    """
    tool = tools.find(call.name)
    if tool is None or call.malformed is not None:
        problem = problem_with(call, tools)
    elif tools.have_secrets and (gone := _find_hidden(call, tools)) is not None:
        return ToolFailure(gone)
    else:
        try:
            return PreparedCall(tool, call, tool.validate(call.arguments))
        except BaseException as error:  # noqa: BLE001 - a validator is the tool's code as well
            problem = as_exception(error)
        if approval is not None and approval.arguments is not None:
            # What a person mistyped is shown to the model, and is no error of the run.
            return ToolFailure(text_of(problem))
    if cut_note and isinstance(problem, InvalidToolArgumentsError):
        return InvalidToolArgumentsError(f"{problem} {cut_note}")
    return problem


def _find_hidden(call: ToolCall, tools: Tools) -> str | None:
    return what_is_hidden(call, tools.secret_arguments(call.name))

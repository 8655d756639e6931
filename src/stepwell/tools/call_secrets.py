"""Keeps the secret arguments of calls out of what is kept, shown and stored of them.

The executor passes everything that leaves it through here; the tool itself and the hooks around it
get the values.
"""

from collections.abc import Callable

from msgspec.structs import replace

from stepwell.errors import HookError, text_of
from stepwell.hooks import HookTrigger
from stepwell.messages import ToolCall
from stepwell.state import AgentState
from stepwell.tools.registry import Tools
from stepwell.tools.results import Finished
from stepwell.tools.secret_arguments import exception_with_text


class CallSecrets:
    """Redacts what calls of these tools lead to."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def may_be_in(self, call: ToolCall) -> bool:
        """Whether the call may have secret arguments."""
        return self._tools.have_secrets and bool(self._tools.secrets_of(call))

    def redact_call(self, call: ToolCall) -> ToolCall:
        """The call as it may be kept and shown."""
        return self._tools.redact_call(call) if self._tools.have_secrets else call

    def text_filter(self, call: ToolCall | None) -> Callable[[str], str]:
        """The function that redacts the secret arguments of a call in a text."""
        scrubber = None
        if call is not None and self._tools.have_secrets:
            scrubber = self._tools.scrubber_for(call)
        return str if scrubber is None else scrubber.text

    def redact(self, finished: Finished) -> Finished:
        """The same result without secret arguments."""
        if not self._tools.have_secrets:
            return finished
        call = finished.execution.call
        scrubber = self._tools.scrubber_for(call)
        if scrubber is None:
            return finished
        finished = scrubber.redact_result(finished)
        if (asked := finished.waits_for) is not None:
            may_store = self._tools.open_arguments(call.name)
            finished = replace(finished, waits_for=replace(asked, may_store=may_store))
        execution = replace(finished.execution, call=self._tools.redact_call(call))
        return replace(finished, execution=execution)

    def redact_signals(self, state: AgentState, call: ToolCall) -> AgentState:
        """The state whose stop signals do not quote secret arguments of the call."""
        execution = state.execution
        if execution is None or not execution.signals or not self.may_be_in(call):
            return state
        redact = self.text_filter(call)
        signals = tuple(replace(s, message=redact(s.message)) for s in execution.signals)
        return replace(state, execution=replace(execution, signals=signals))

    def redact_hook_error(
        self, error: HookError, trigger: HookTrigger, call: ToolCall | None
    ) -> HookError:
        """The error without secret arguments: another one of the same name, as the cause may hold
        them."""
        if call is None or not self.may_be_in(call):
            return error
        cause = error.__cause__ or error
        redacted = exception_with_text(type(cause), self.text_filter(call)(text_of(cause)))
        return HookError(error.hook, trigger, redacted, error.state)

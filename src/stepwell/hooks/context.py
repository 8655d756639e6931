"""When hooks run and what they are given. A hook answers with a changed context, or None."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from stepwell.continuation import ContinueRequest, StopReason, StopSignal
from stepwell.errors import ConfigurationError
from stepwell.messages import ToolCall
from stepwell.models import ModelRequest, ModelResponse
from stepwell.run_context import Principal, RelatedObject, SessionInfo
from stepwell.state import AgentState, Answered, ErrorInfo, ToolExecution


class HookTrigger(StrEnum):
    """The ten moments at which hooks run."""

    BEFORE_EXECUTION = "before_execution"
    BEFORE_STEP = "before_step"
    BEFORE_INFERENCE = "before_inference"
    AFTER_INFERENCE = "after_inference"
    BEFORE_TOOL = "before_tool"
    AFTER_TOOL = "after_tool"
    AFTER_STEP = "after_step"
    ON_STOP = "on_stop"
    AFTER_EXECUTION = "after_execution"
    ON_ERROR = "on_error"


ALL_TRIGGERS: frozenset[HookTrigger] = frozenset(HookTrigger)
"""Every moment, on_stop included."""


class HookContext(Struct, frozen=True, kw_only=True):
    """What a hook sees. Which fields are set depends on the trigger.

    ``call`` at before_tool and after_tool; ``execution`` at after_tool; ``request`` at
    before_inference; ``response`` at after_inference, and at before_inference once a hook answered
    in the model's place; ``error`` and ``exception`` at on_error.
    """

    trigger: HookTrigger
    state: AgentState
    call: ToolCall | None = None
    execution: ToolExecution | None = None
    request: ModelRequest | None = None
    response: ModelResponse | None = None
    error: ErrorInfo | None = None
    exception: BaseException | None = None
    block_reason: str | None = None
    result: Any | UnsetType = UNSET
    secret_arguments: frozenset[str] = frozenset()
    """before_tool, after_tool: names of arguments that must not be put where they are kept."""
    secret_fields: frozenset[str] = frozenset()
    """before_tool, after_tool: names that the tool's schema declares; the other keys inside of a
    secret argument are as secret as its values."""
    validate: Callable[[ToolCall], Mapping[str, Any]] | None = None
    """before_tool: what checks a call; see ``validated_arguments``."""

    @property
    def principal(self) -> Principal | None:
        """Who the run acts for, if the run has a principal."""
        return self.state.context.principal

    @property
    def session(self) -> SessionInfo | None:
        """The session of the run; None outside the app server."""
        return self.state.context.session

    @property
    def related(self) -> RelatedObject | None:
        """What the message is about, as the application resolved it."""
        return self.state.context.related

    @property
    def deps(self) -> Any:
        """What the application gave to the run."""
        return self.state.context.deps

    @property
    def answered(self) -> Answered | None:
        """before_tool, after_tool: what the call was answered, if it waited for a person."""
        call_id = None if self.call is None else self.call.id
        return next((a for a in self.state.answered if a.call.id == call_id), None)

    def validated_arguments(self) -> Mapping[str, Any]:
        """before_tool: the arguments as the tool gets them, of their types and with defaults filled
        in. Raises what keeps the call from running: an unknown tool, arguments that it refuses."""
        self._only_at(HookTrigger.BEFORE_TOOL)
        if self.call is None or self.validate is None:
            raise ConfigurationError("this context has no tool that could check a call")
        return self.validate(self.call)

    def with_state(self, state: AgentState) -> "HookContext":
        """Go on with another state."""
        return replace(self, state=state)

    def with_call(self, call: ToolCall) -> "HookContext":
        """before_tool: run this call instead; the call id stays."""
        self._only_at(HookTrigger.BEFORE_TOOL)
        return replace(self, call=call if self.call is None else replace(call, id=self.call.id))

    def with_result(self, value: Any) -> "HookContext":
        """before_tool: use this result without running the tool. after_tool: rewrite the result."""
        self._only_at(HookTrigger.BEFORE_TOOL, HookTrigger.AFTER_TOOL)
        return replace(self, result=value)

    def with_request(self, request: ModelRequest) -> "HookContext":
        """before_inference: send this request instead."""
        self._only_at(HookTrigger.BEFORE_INFERENCE)
        return replace(self, request=request)

    def with_response(self, response: ModelResponse) -> "HookContext":
        """after_inference: go on as if the model had said this. before_inference: the same, without
        asking the model."""
        self._only_at(HookTrigger.BEFORE_INFERENCE, HookTrigger.AFTER_INFERENCE)
        return replace(self, response=response)

    def block(self, reason: str) -> "HookContext":
        """before_tool: refuse the call; the model sees the reason."""
        self._only_at(HookTrigger.BEFORE_TOOL)
        return replace(self, block_reason=reason)

    def stop(
        self,
        message: str = "",
        *,
        reason: StopReason | str = StopReason.STOP_REQUESTED,
        source: str = "hook",
    ) -> "HookContext":
        """Vote to end the run with that reason."""
        signal = StopSignal(reason=reason, message=message, source=source)  # pyright: ignore[reportArgumentType] - it checks the word
        return self.with_state(self.state.with_signal(signal))

    def request_step(
        self, message: str = "", *, source: str = "hook", consumes: tuple[str, ...] = ()
    ) -> "HookContext":
        """Vote for one more step, and consume the stop signals with these sources."""
        request = ContinueRequest(source=source, message=message, consumes=consumes)
        return self.with_state(self.state.with_continue_request(request))

    def _only_at(self, *triggers: HookTrigger) -> None:
        """What has no effect at this moment is a mistake, not something to pass over."""
        if self.trigger not in triggers:
            raise ConfigurationError(
                f"this has no effect at {self.trigger}; register the hook for "
                f"{' or '.join(triggers)}"
            )

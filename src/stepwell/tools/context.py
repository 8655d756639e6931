"""What a running tool can reach. A tool gets it by annotating a parameter with ``ToolContext``."""

from collections.abc import Callable
from typing import Any, Generic, cast

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.events import ToolCallProgressed
from stepwell.messages import ToolCall
from stepwell.run_context import Deps, Principal, RelatedObject, RunContext, SessionInfo
from stepwell.scope import Guard
from stepwell.state import AgentState, Answered, Budget


class ContextNeeds(Struct, frozen=True, kw_only=True):
    """What a tool's signature asks of the run: checked before the run begins."""

    principal: bool = False
    deps: Any = None
    """The type in ``ToolContext[Deps]``; None if the tool names none."""

    def check(self, tool: str, context: RunContext[Any]) -> None:
        """Raise ``ConfigurationError`` if the run lacks something that the tool asks for."""
        if self.principal and context.principal is None:
            raise ConfigurationError(
                f"tool {tool!r} takes a Principal, and this run has none; pass one: "
                "agent.run(..., principal=Principal(user_id=...))"
            )
        if self.deps is None:
            return
        wanted = getattr(self.deps, "__name__", str(self.deps))
        if context.deps is None:
            raise ConfigurationError(
                f"tool {tool!r} takes ToolContext[{wanted}], and this run has no deps; pass them: "
                "agent.run(..., deps=...), or AgentApp(..., deps=...) for an app"
            )
        if _is_checkable(self.deps) and not isinstance(context.deps, self.deps):
            raise ConfigurationError(
                f"tool {tool!r} takes ToolContext[{wanted}], and the deps of this run are a "
                f"{type(context.deps).__name__}"
            )


def _is_checkable(wanted: Any) -> bool:
    """Whether ``isinstance`` can tell; it can't for generics and most protocols."""
    is_protocol = getattr(wanted, "_is_protocol", False)
    return isinstance(wanted, type) and (
        not is_protocol or getattr(wanted, "_is_runtime_protocol", False)
    )


class ToolContext(Struct, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """Who asks, the state as it was when the call began, the call, cancellation and progress.

    ``resumed`` is set when the call asked something before and now runs again with the answer.

    >>> from stepwell import Agent
    >>> from stepwell.testing import ScriptedModel, call
    >>> def my_orders(context: ToolContext) -> str:
    ...     "List the orders of whoever asks."
    ...     return f"orders of {context.principal.user_id}"
    >>> agent = Agent(ScriptedModel([call("my_orders"), "There."]), tools=[my_orders])
    >>> state = agent.run_sync("What did I order?", principal=Principal(user_id="ada"))
    >>> state.messages[-2].text
    'orders of ada'
    """

    state: AgentState
    call: ToolCall
    guard: Guard
    resumed: Answered | None = None
    made_in: int | None = None
    """The number of the step that made the call, if it waited since."""
    scrubbed: Callable[[str], str] = str

    @property
    def principal(self) -> Principal:
        """Who the run acts for. Raises ``ConfigurationError`` if the run has no principal."""
        principal = self.state.context.principal
        if principal is None:
            raise ConfigurationError(
                f"tool {self.call.name!r} asked for the principal, and this run has none; pass "
                "one: agent.run(..., principal=Principal(user_id=...))"
            )
        return principal

    @property
    def session(self) -> SessionInfo | None:
        """The session of the run; None outside the app server."""
        return self.state.context.session

    @property
    def related(self) -> RelatedObject | None:
        """What the message is about, as the application resolved it; None if it named nothing."""
        return self.state.context.related

    @property
    def deps(self) -> Deps:
        """What the application gave to the run."""
        return cast("Deps", self.state.context.deps)

    @property
    def call_id(self) -> str:
        """The id the model gave the call."""
        return self.call.id

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at this call, also after a crash; unique to the call."""
        execution = self.state.execution
        owner = self.state.agent_id if execution is None else execution.id
        return f"{owner}:{self.made_in or self.state.step_number}:{self.call.id}"

    @property
    def budget_left(self) -> Budget:
        """What the run may still spend; what a subagent can be given."""
        return self.state.budget_left

    @property
    def is_cancelled(self) -> bool:
        """Whether the result is no longer wanted; tools in threads should look now and then."""
        return self.guard.was_interrupted

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Tell listeners how far the call is; from any thread, until the call has its result."""
        scope = self.state.scope

        def tell() -> None:
            if not self.guard.has_ended:
                scope.emitter.emit(
                    ToolCallProgressed,
                    tool=self.call.name,
                    call_id=self.call.id,
                    message=self.scrubbed(message),
                    fraction=fraction,
                )

        scope.call(tell)

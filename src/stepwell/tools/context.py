"""What a running tool can reach. A tool gets it by annotating a parameter with ``ToolContext``."""

from collections.abc import Callable

from msgspec import Struct

from stepwell.events import ToolCallProgressed
from stepwell.messages import ToolCall
from stepwell.scope import Guard
from stepwell.state import AgentState, Answered, Budget


class ToolContext(Struct, frozen=True, kw_only=True, eq=False):
    """The state as it was when the call began, the call itself, cancellation and progress.

    ``resumed`` is set when the call asked something before and now runs again with the answer.
    """

    state: AgentState
    call: ToolCall
    guard: Guard
    resumed: Answered | None = None
    made_in: int | None = None
    """The number of the step that made the call, if it waited since."""
    scrubbed: Callable[[str], str] = str

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

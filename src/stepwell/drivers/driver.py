"""What the loop asks of a driver: one step, state in, state out."""

from typing import Protocol, runtime_checkable

from stepwell.hooks import HookStack
from stepwell.models import CachedContext, ModelSettings
from stepwell.state import AgentState
from stepwell.tools import ToolExecutor


class Driver(Protocol):
    """Takes one step. Tools, executor and model are given to its constructor.

    It returns the state with ``with_current_step(step)`` called on it exactly once. What it
    raises becomes an error step, judged by the error policy. One with tools of its own shows them
    as ``executor``, so that calls that waited for a person can be taken up again.
    """

    async def use_tools(self, state: AgentState) -> AgentState:
        """Ask the model, run the tools it calls, and return the state with the new step."""
        ...


@runtime_checkable
class BindableDriver(Driver, Protocol):
    """A driver that can be made before the agent around it is known."""

    def bound_to(
        self,
        executor: ToolExecutor,
        *,
        hooks: HookStack | None = None,
        context: CachedContext | None = None,
        settings: ModelSettings | None = None,
    ) -> Driver:
        """The same driver, with the agent's tools, hooks, cached context and settings."""
        ...

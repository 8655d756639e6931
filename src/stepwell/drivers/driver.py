"""What the loop asks of a driver: one step, state in, state out."""

from typing import Protocol, runtime_checkable

from stepwell.state import AgentState
from stepwell.tools import ToolExecutor


class Driver(Protocol):
    """Takes one step. Tools, executor and model are given to its constructor.

    It returns the state with ``with_current_step(step)`` called on it exactly once. What it
    raises becomes an error step, judged by the error policy.
    """

    async def use_tools(self, state: AgentState) -> AgentState:
        """Ask the model, run the tools it calls, and return the state with the new step."""
        ...


@runtime_checkable
class BindableDriver(Driver, Protocol):
    """A driver that can be made before the agent's tools are known."""

    def bound_to(self, executor: ToolExecutor) -> Driver:
        """The same driver, running tools with this executor."""
        ...

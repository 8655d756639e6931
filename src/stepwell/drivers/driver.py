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
    as ``executor``, so that calls that waited for a person can be taken up again. One that makes
    no model requests says so with ``asks_model = False``: what only changes requests is refused.
    """

    async def use_tools(self, state: AgentState) -> AgentState:
        """Ask the model, run the tools it calls, and return the state with the new step."""
        ...


@runtime_checkable
class BindableDriver(Driver, Protocol):
    """A driver that can be made before the agent around it is known.

    An agent calls ``bound_to`` when it is built and takes its steps with the driver it returns. A
    driver that was made with tools or hooks of its own shows them as ``executor`` and ``hooks``:
    the agent adds them to its own, so that its approvals and other hooks hold for them, and hands
    over all of them together. A driver without ``bound_to`` is refused by an agent that has tools,
    a prompt or anything else that the driver would never see.
    """

    def bound_to(
        self,
        executor: ToolExecutor,
        *,
        hooks: HookStack | None = None,
        context: CachedContext | None = None,
        settings: ModelSettings | None = None,
    ) -> Driver:
        """Return the driver that runs calls with this executor, runs these hooks around the model,
        and sends this context and these settings, with its own behind or over them."""
        ...

"""The call of a driver that is not ours: in a task that can be abandoned."""

import asyncio

from stepwell.continuation import AgentStop
from stepwell.drivers import Driver
from stepwell.errors import DriverError
from stepwell.scope import RunScope
from stepwell.state import AgentState


async def call_driver(driver: Driver, state: AgentState, scope: RunScope) -> AgentState:
    """Return what the driver makes of the state.

    Raises what the driver raises, never an exit; ``AgentStop`` if the run ended meanwhile.
    """
    name = type(driver).__name__
    driven = state
    with scope.backstop() as backstop:
        try:
            driven = await backstop.call(
                lambda: driver.use_tools(state), f"driver {name}", keeps_context=True
            )
        except asyncio.CancelledError as error:
            if backstop.was_cancelled:
                raise
            raise DriverError(f"{name}.use_tools cancelled itself") from error
    if backstop.signal is not None:
        raise AgentStop(backstop.signal.while_running(name))
    return driven

"""The call of a driver: one of ours as it is, any other in a task that can be abandoned."""

import asyncio

from stepwell.drivers import Driver, ReActDriver, ToolCallingDriver
from stepwell.errors import DriverError
from stepwell.scope import Guard
from stepwell.state import AgentState


async def call_driver(driver: Driver, state: AgentState, backstop: Guard) -> AgentState:
    """Return what the driver made of the state. Raises what it raised, never an exit."""
    if type(driver) in (ToolCallingDriver, ReActDriver):
        return await driver.use_tools(state)  # all that it awaits is guarded
    name = type(driver).__name__
    try:
        return await backstop.call(
            lambda: driver.use_tools(state), f"driver {name}", keeps_context=True
        )
    except asyncio.CancelledError as error:
        if backstop.was_cancelled:
            raise
        raise DriverError(f"{name}.use_tools cancelled itself") from error

"""The call of a driver: one of ours as it is, any other in a task that can be abandoned."""

import asyncio
from collections.abc import Awaitable

from stepwell.drivers import Driver, ReActDriver, ToolCallingDriver
from stepwell.errors import DriverError
from stepwell.scope import Guard
from stepwell.state import AgentState


def call_driver(driver: Driver, state: AgentState, backstop: Guard) -> Awaitable[AgentState]:
    """Return what the driver makes of the state. Awaiting it raises what the driver raises, never
    an exit."""
    if type(driver) in (ToolCallingDriver, ReActDriver):
        return driver.use_tools(state)  # all that it awaits is guarded
    return _call_foreign(driver, state, backstop)


async def _call_foreign(driver: Driver, state: AgentState, backstop: Guard) -> AgentState:
    name = type(driver).__name__
    try:
        return await backstop.call(
            lambda: driver.use_tools(state), f"driver {name}", keeps_context=True
        )
    except asyncio.CancelledError as error:
        if backstop.was_cancelled:
            raise
        raise DriverError(f"{name}.use_tools cancelled itself") from error

"""For who reads the states of a run in a task of its own, such as ``agent.stream()``."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from stepwell.state import AgentState


@asynccontextmanager
async def cut_off_together(states: AsyncGenerator[AgentState, None]) -> AsyncGenerator[None]:
    """Around an iteration in a task of its own: a cancellation between two steps is the run's as
    well, so that its listeners get its end."""
    try:
        yield
    except asyncio.CancelledError as cut:
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await states.athrow(cut)
        raise

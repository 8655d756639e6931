"""The wait before a retry that the last decision asked for."""

from stepwell.scope import RunScope
from stepwell.state import AgentState


async def wait_out_delay(seconds: float, state: AgentState, scope: RunScope) -> None:
    """Wait as long as the last decision asked, less what has passed since. Give up the run if the
    deadline comes before."""
    wait = seconds - (scope.clock.now() - state.updated_at).total_seconds()
    if wait <= 0 or scope.signal is not None:
        return
    left = scope.seconds_left
    if left is not None and wait > left:
        scope.give_up(f"the wait before the retry, {wait:.1f} s, ends after the deadline")
        return
    with scope.guard():
        await scope.clock.sleep(wait)

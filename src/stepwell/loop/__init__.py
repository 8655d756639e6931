"""The loop: one explained step after the other, state in, state out."""

from stepwell.loop.cut_off import cut_off_together
from stepwell.loop.loop import AgentLoop
from stepwell.loop.votes import AtLimit

__all__ = ["AgentLoop", "AtLimit", "cut_off_together"]

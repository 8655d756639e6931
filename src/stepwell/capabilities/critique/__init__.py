"""Self-critique: a critic judges each final answer, and a rejected one is written again.

What was judged stays in the step's metadata, and in the state's for the newest answer.
"""

from stepwell.capabilities.critique.capability import UseSelfCritique
from stepwell.capabilities.critique.critic import CRITIC_PROMPT

__all__ = ["CRITIC_PROMPT", "UseSelfCritique"]

"""Self-critique: a critic judges each final answer, and a rejected answer is rewritten.

The judgement is kept in the step's metadata; that of the newest answer also in the state's.
"""

from stepwell.capabilities.critique.capability import UseSelfCritique
from stepwell.capabilities.critique.critic import CRITIC_PROMPT

__all__ = ["CRITIC_PROMPT", "UseSelfCritique"]

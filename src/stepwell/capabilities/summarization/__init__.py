"""Long conversations: older messages are told to the model as a summary. The state keeps them."""

from stepwell.capabilities.summarization.capability import UseSummarization

__all__ = ["UseSummarization"]

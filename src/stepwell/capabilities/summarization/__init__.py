"""Summarization: the model sees a summary of older messages; the state keeps the messages."""

from stepwell.capabilities.summarization.capability import UseSummarization

__all__ = ["UseSummarization"]

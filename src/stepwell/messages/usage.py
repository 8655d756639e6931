"""Tokens a model turn used, under one meaning for all providers, and why a turn ended."""

from enum import StrEnum

from stepwell.messages.kept import Kept


class FinishReason(StrEnum):
    """Why the model ended its turn."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    ERROR = "error"
    OTHER = "other"

    @property
    def cuts(self) -> bool:
        """Whether the answer ends where it was cut off, not where the model ended it."""
        return self in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER)


class Usage(Kept, frozen=True, kw_only=True):
    """Token counts. Cached tokens are part of the input, reasoning tokens part of the output.

    >>> (Usage(input_tokens=3) + Usage(output_tokens=4)).total_tokens
    7
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        if other == _NOTHING:
            return self
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens - other.input_tokens,
            output_tokens=self.output_tokens - other.output_tokens,
            cached_tokens=self.cached_tokens - other.cached_tokens,
            cache_write_tokens=self.cache_write_tokens - other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens - other.reasoning_tokens,
        )

    def __bool__(self) -> bool:
        return self != _NOTHING


_NOTHING = Usage()

"""Which occurrences become entries, and how much of them."""

from math import inf
from types import UnionType
from typing import Any, NoReturn

from msgspec import Struct

from stepwell.errors import ConfigurationError

_SWITCHES = (
    "include_stream_chunks",
    "include_continuation_trace",
    "include_tool_args",
    "auto_status_tracking",
)


class ProjectionConfig(Struct, frozen=True, kw_only=True):
    """What the projector makes of a run. It has no limit that would lose an entry.

    >>> ProjectionConfig(max_arg_length=0)
    Traceback (most recent call last):
    stepwell.errors.ConfigurationError: ProjectionConfig.max_arg_length is 0; give a whole number \
above zero
    """

    include_stream_chunks: bool = True
    include_continuation_trace: bool = False
    include_tool_args: bool = False
    """Tool calls with their arguments, not only a summary of them."""
    max_arg_length: int = 500
    """Longer texts in arguments are truncated to so many characters."""
    auto_status_tracking: bool = True
    """Status envelopes follow from the events; otherwise only those asked for are sent."""

    def __post_init__(self) -> None:
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                self.refuse(name, "True or False")
        if not is_above_zero(self.max_arg_length, int):
            self.refuse("max_arg_length", "a whole number above zero")

    def refuse(self, name: str, wanted: str) -> NoReturn:
        """Raise for a value that the field can't have."""
        value = getattr(self, name)
        raise ConfigurationError(f"{type(self).__name__}.{name} is {value!r}; give {wanted}")


def is_above_zero(value: Any, wanted: type | UnionType) -> bool:
    """Whether it is a finite number of that type and above zero."""
    return isinstance(value, wanted) and not isinstance(value, bool) and 0 < value < inf

"""How much of a state the slim format shows."""

from msgspec import Struct, structs

from stepwell.errors import ConfigurationError


class SlimSerializationConfig(Struct, frozen=True, kw_only=True):
    """What a slim snapshot holds and how long its texts may be.

    ``max_messages`` and ``max_steps`` keep the newest. A tool call and its results stay together:
    the bound on messages gives way only where the newest such group is larger on its own.
    ``max_content_length`` counts characters, and what is longer is cut and ends with three dots.

    >>> SlimSerializationConfig.minimal().max_messages, SlimSerializationConfig().max_messages
    (20, 50)
    """

    max_messages: int = 50
    max_steps: int = 20
    max_content_length: int = 2000
    include_tool_results: bool = True
    include_steps: bool = True
    include_continuation_trace: bool = False
    redact_tool_args: bool = False

    def __post_init__(self) -> None:
        for field in structs.fields(self):
            value = getattr(self, field.name)
            if field.type is bool and not isinstance(value, bool):
                raise ConfigurationError(
                    f"{field.name} of SlimSerializationConfig is {value!r:.80}; give True or False"
                )
            if field.type is int and (type(value) is not int or value < 0):
                raise ConfigurationError(
                    f"{field.name} of SlimSerializationConfig is {value!r:.80}; give a whole "
                    "number, 0 or more"
                )

    @classmethod
    def minimal(cls) -> "SlimSerializationConfig":
        """For lists and small screens: few messages, no steps, no tool results."""
        return cls(
            max_messages=20,
            max_steps=0,
            max_content_length=500,
            include_tool_results=False,
            include_steps=False,
        )

    @classmethod
    def standard(cls) -> "SlimSerializationConfig":
        """The defaults."""
        return cls()

    @classmethod
    def full(cls) -> "SlimSerializationConfig":
        """For looking closely: more of everything, and the last decision."""
        return cls(
            max_messages=100,
            max_steps=50,
            max_content_length=5000,
            include_continuation_trace=True,
        )

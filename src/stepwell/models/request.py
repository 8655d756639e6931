"""What a model is asked: the stable context first, then the conversation, then the tools."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from stepwell.errors import ConfigurationError
from stepwell.messages import Message
from stepwell.models.settings import ModelSettings, ResponseFormat


class ToolSchema(Struct, frozen=True, kw_only=True):
    """A tool as a model sees it: name, description, and a JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class CachedContext(Struct, frozen=True, kw_only=True):
    """Stable parts of the prompt, sent first so that a provider's prompt cache hits."""

    messages: tuple[Message, ...] = ()
    response_format: ResponseFormat | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        given = cast("Any", self.messages)
        if isinstance(given, Message | str | Mapping) or not isinstance(given, Iterable):
            raise ConfigurationError(
                f"the messages of a cached context are a list, not {given!r:.80}; write "
                "CachedContext(messages=[Message.system(text)])"
            )
        messages = tuple(cast("Iterable[object]", given))
        for message in messages:
            if not isinstance(message, Message):
                raise ConfigurationError(
                    f"{message!r:.80} is no message; write Message.system(text)"
                )
        force_setattr(self, "messages", messages)

    def behind(self, first: "CachedContext | None") -> "CachedContext":
        """Return the other context with this one's messages behind it; this one's format wins."""
        if first is None:
            return self
        return CachedContext(
            messages=(*first.messages, *self.messages),
            response_format=self.response_format or first.response_format,
        )


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One turn's request. ``messages`` shares the state's history; nothing is copied."""

    messages: Sequence[Message]
    context: CachedContext = CachedContext()
    tools: tuple[ToolSchema, ...] = ()
    response_format: ResponseFormat | Mapping[str, Any] | None = None
    instruction: Message | None = None
    """Said after the conversation for this turn only; never stored."""
    settings: ModelSettings = ModelSettings()
    seconds_left: float | None = None
    """Until the run's deadline; whoever waits before a retry asks whether it is worth it."""

    @property
    def format(self) -> ResponseFormat | None:
        """The response format, if one was asked for."""
        return None if self.response_format is None else ResponseFormat.of(self.response_format)

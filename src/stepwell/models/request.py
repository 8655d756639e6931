"""Requests to models: the stable context, the conversation and the tools."""

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
    """Stable parts of the prompt, sent first so that the provider's prompt cache applies."""

    messages: tuple[Message, ...] = ()
    response_format: ResponseFormat | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        given = cast("Any", self.messages)
        if isinstance(given, Message | str | Mapping) or not isinstance(given, Iterable):
            raise ConfigurationError(
                f"CachedContext needs a list of messages, got {given!r:.80}; write "
                "CachedContext(messages=[Message.system(text)])"
            )
        messages = tuple(cast("Iterable[object]", given))
        for message in messages:
            if not isinstance(message, Message):
                raise ConfigurationError(
                    f"{message!r:.80} is not a Message; write Message.system(text)"
                )
        force_setattr(self, "messages", messages)

    def behind(self, first: "CachedContext | None") -> "CachedContext":
        """Append this context to another one. This one's response format wins."""
        if first is None:
            return self
        return CachedContext(
            messages=(*first.messages, *self.messages),
            response_format=self.response_format or first.response_format,
        )


class ModelRequest(Struct, frozen=True, kw_only=True):
    """The request of one turn. ``messages`` shares the state's history without a copy."""

    messages: Sequence[Message]
    context: CachedContext = CachedContext()
    tools: tuple[ToolSchema, ...] = ()
    response_format: ResponseFormat | Mapping[str, Any] | None = None
    instruction: Message | None = None
    """Added after the conversation for this turn only, and never stored."""
    settings: ModelSettings = ModelSettings()
    seconds_left: float | None = None
    """Seconds to the run's deadline, which limit the waits before retries."""

    @property
    def format(self) -> ResponseFormat | None:
        """The response format, or None."""
        return None if self.response_format is None else ResponseFormat.of(self.response_format)

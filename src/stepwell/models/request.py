"""What a model is asked: the stable context first, then the conversation, then the tools."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

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

"""A message: who said it, its parts, a stable id, and notes that no model sees."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from stepwell.errors import ConfigurationError
from stepwell.ids import new_id
from stepwell.messages.kept import Kept
from stepwell.messages.parts import Part, TextPart, ToolCall, ToolResult

INCOMPLETE = "incomplete"
"""The key in the metadata of an answer that was cut while the model wrote it."""


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Message(Kept, frozen=True, kw_only=True):
    """One message of a conversation.

    >>> message = Message.user("What is 2 + 2?")
    >>> message.text, message.is_user()
    ('What is 2 + 2?', True)
    """

    role: Role
    parts: tuple[Part, ...]
    id: str
    metadata: Mapping[str, Any] = {}

    @classmethod
    def of(
        cls,
        role: Role | str,
        content: "str | Iterable[Part]",
        *,
        id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> "Message":
        """A message of that role from text or from parts; empty text makes no part."""
        return cls(
            role=Role(role), parts=_as_parts(content), id=id or new_id(), metadata=metadata or {}
        )

    @classmethod
    def user(
        cls,
        content: "str | Iterable[Part]",
        *,
        id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> "Message":
        """What the user said."""
        return cls.of(Role.USER, content, id=id, metadata=metadata)

    @classmethod
    def system(cls, content: "str | Iterable[Part]", *, id: str | None = None) -> "Message":
        """An instruction."""
        return cls.of(Role.SYSTEM, content, id=id)

    @classmethod
    def developer(cls, content: "str | Iterable[Part]", *, id: str | None = None) -> "Message":
        """An instruction of the developer role."""
        return cls.of(Role.DEVELOPER, content, id=id)

    @classmethod
    def assistant(
        cls, text: str = "", calls: Iterable[ToolCall] = (), *, id: str | None = None
    ) -> "Message":
        """One model response: its text, then its tool calls."""
        return cls.of(Role.ASSISTANT, (*_as_parts(text), *calls), id=id)

    @classmethod
    def tool(cls, result: ToolResult, *, id: str | None = None) -> "Message":
        """The result of one tool call."""
        return cls.of(Role.TOOL, (result,), id=id)

    @property
    def is_incomplete(self) -> bool:
        """Whether the run ended while the model still wrote it."""
        return self.metadata.get(INCOMPLETE) is True

    def marked_incomplete(self) -> "Message":
        """The same message, marked as one that was cut while it was written."""
        return replace(self, metadata={**self.metadata, INCOMPLETE: True})

    @property
    def text(self) -> str:
        """The text parts joined; the content when this is a tool result."""
        return "".join(
            part.text if isinstance(part, TextPart) else part.content
            for part in self.parts
            if isinstance(part, TextPart | ToolResult)
        )

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in this message, in order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def tool_result(self) -> ToolResult | None:
        """The tool result this message carries, if any."""
        return next((part for part in self.parts if isinstance(part, ToolResult)), None)

    def is_user(self) -> bool:
        """Said by the user."""
        return self.role is Role.USER

    def is_assistant(self) -> bool:
        """Said by the model."""
        return self.role is Role.ASSISTANT

    def is_tool(self) -> bool:
        """A tool's result."""
        return self.role is Role.TOOL

    def is_system(self) -> bool:
        """An instruction: system or developer."""
        return self.role is Role.SYSTEM or self.role is Role.DEVELOPER

    def is_developer(self) -> bool:
        """An instruction of the developer role."""
        return self.role is Role.DEVELOPER

    def has_role(self, *roles: Role | str) -> bool:
        """Whether the role is one of these."""
        return self.role in roles


def check_messages(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages; raises ``ConfigurationError`` for anything else."""
    for message in messages:
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{message!r:.60} is not a Message; write Message.user(text), or use "
                "state.with_user_message(text)"
            )
        yield message


def _as_parts(content: "str | Iterable[Part]") -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return tuple(content)

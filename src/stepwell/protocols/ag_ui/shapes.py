"""The shapes of AG-UI's RunAgentInput, as far as they are used."""

from typing import Any

from msgspec import Struct


class SentSource(Struct, frozen=True, rename="camel"):
    """Where the bytes of a media part are."""

    type: str
    value: str
    mime_type: str | None = None


class SentText(Struct, frozen=True, tag_field="type", tag="text"):
    """A text part."""

    text: str


class SentMedia(Struct, frozen=True, tag_field="type"):
    """The fields of all media parts."""

    source: SentSource
    metadata: dict[str, Any] | None = None


class SentImage(SentMedia, frozen=True, tag="image"):
    """An image."""


class SentAudio(SentMedia, frozen=True, tag="audio"):
    """An audio file."""


class SentVideo(SentMedia, frozen=True, tag="video"):
    """A video."""


class SentDocument(SentMedia, frozen=True, tag="document"):
    """Any other file."""


SentContent = str | list[SentText | SentImage | SentAudio | SentVideo | SentDocument]


class SentFunction(Struct, frozen=True):
    """The tool of a call and its arguments, as JSON text."""

    name: str
    arguments: str


class SentCall(Struct, frozen=True, rename="camel"):
    """A tool call."""

    id: str
    function: SentFunction
    encrypted_value: str | None = None
    metadata: dict[str, Any] | None = None


class AgUiMessage(Struct, frozen=True, rename="camel", tag_field="role"):
    """The fields of all messages."""

    id: str
    subagent_run_id: str | None = None


class SentUser(AgUiMessage, frozen=True, kw_only=True, tag="user"):
    """A message of the user."""

    content: SentContent


class SentSystem(AgUiMessage, frozen=True, kw_only=True, tag="system"):
    """An instruction."""

    content: str


class SentDeveloper(AgUiMessage, frozen=True, kw_only=True, tag="developer"):
    """An instruction of the developer role."""

    content: str


class SentAssistant(AgUiMessage, frozen=True, kw_only=True, tag="assistant"):
    """A message of the agent with its calls."""

    content: str | None = None
    tool_calls: list[SentCall] | None = None


class SentResult(AgUiMessage, frozen=True, kw_only=True, tag="tool"):
    """The result of a call."""

    content: SentContent
    tool_call_id: str
    error: str | None = None


class SentReasoning(AgUiMessage, frozen=True, tag="reasoning"):
    """An agent's reasoning."""


class SentActivity(AgUiMessage, frozen=True, tag="activity"):
    """Progress that a page shows."""


SentMessage = (
    SentUser
    | SentSystem
    | SentDeveloper
    | SentAssistant
    | SentResult
    | SentReasoning
    | SentActivity
)


class SentAnswer(Struct, frozen=True, rename="camel"):
    """The answer to one interrupt."""

    interrupt_id: str
    status: str
    payload: Any = None


class RunInput(Struct, frozen=True, rename="camel"):
    """The fields of a RunAgentInput that are used."""

    thread_id: str
    run_id: str
    messages: list[SentMessage]
    resume: list[SentAnswer] | None = None


class GrantedBudget(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a request for more budget."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    cost: float = 0.0

"""The full format, version 1: what a stored state looks like.

The conversation is written once. Steps point to their messages, tool executions to their call and
their text, so that a result is stored once however often the state tells of it. A change of these
classes, or of those of ``state``, ``messages`` and ``continuation`` that they hold, is a new
version: see ``versions.py``.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from stepwell.continuation import AgentStatus, ContinuationOutcome
from stepwell.messages import FinishReason, Message, Role, ToolCall, ToolResult, Usage
from stepwell.state import Answered, Budget, ErrorInfo, Pending, ToolOutcome

SCHEMA_VERSION = 1
"""The version that is written; it and every older one are read."""

WHOLE = "stepwell.state"
INCREMENT = "stepwell.state.increment"


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Unknown fields are refused, and what is at its default is not written."""


class StoredTool(Strict, frozen=True, kw_only=True):
    """A tool execution; ``call`` is a number when it is that call of the step's response."""

    call: ToolCall | int
    outcome: ToolOutcome
    started_at: datetime
    completed_at: datetime
    duration_seconds: float
    text: str | UnsetType = UNSET
    """Absent when it is the content of the call's result among the step's messages."""
    value: Any | UnsetType = UNSET
    """Absent when it is the text, or what the text is as JSON."""
    value_is_in_text: bool = False
    error: ErrorInfo | None = None
    usage: Usage = Usage()
    cost: float = 0.0


class StoredStep(Strict, frozen=True, kw_only=True):
    """A recorded step, with its messages or with their place in the conversation."""

    number: int
    outcome: ContinuationOutcome
    started_at: datetime
    completed_at: datetime
    duration_seconds: float
    said: tuple[int, int] | None = None
    """The place of its first message in the conversation, and how many there are."""
    messages: tuple[Message, ...] = ()
    tools: tuple[StoredTool, ...] = ()
    failures: tuple[ErrorInfo, ...] = ()
    usage: Usage = Usage()
    cost: float = 0.0
    finish_reason: FinishReason | None = None
    model: str | None = None
    metadata: dict[str, Any] = {}
    output: Any | UnsetType = UNSET


class StoredExecution(Strict, frozen=True, kw_only=True):
    """An execution without its steps."""

    id: str
    started_at: datetime
    status: AgentStatus
    outcome: ContinuationOutcome | Literal["last step"] | None = None
    usage: Usage = Usage()
    cost: float = 0.0
    consecutive_failures: int = 0
    total_failures: int = 0
    granted: Budget
    pending: tuple[Pending, ...] = ()
    answered: tuple[Answered, ...] = ()
    wrapping_up: bool = False
    wants_output: bool = False


class StoredState(Strict, frozen=True, kw_only=True):
    """A whole state. ``steps`` are those of the execution."""

    agent_id: str
    created_at: datetime
    updated_at: datetime
    parent_agent_id: str | None = None
    execution_count: int
    cumulative_seconds: float
    execution: StoredExecution | None = None
    metadata: dict[str, Any] = {}
    messages: list[Message] = []
    steps: list[StoredStep] = []


class StoredChange(Strict, frozen=True, kw_only=True):
    """What a state has that an older one has not.

    ``kept_messages`` and ``kept_steps`` count what stays of the older one, from its beginning.
    """

    since: str
    """The mark of the older state."""
    agent_id: str
    updated_at: datetime
    execution_count: int
    cumulative_seconds: float
    execution: StoredExecution | None = None
    metadata: dict[str, Any] = {}
    metadata_gone: tuple[str, ...] = ()
    kept_messages: int
    kept_steps: int
    messages: list[Message] = []
    steps: list[StoredStep] = []


def result_texts(messages: Iterable[Message]) -> dict[str, str]:
    """By call, the text of its first result; writing and reading look in the same places."""
    texts: dict[str, str] = {}
    for message in messages:
        if message.role is Role.TOOL:
            for part in message.parts:
                if type(part) is ToolResult:
                    texts.setdefault(part.call_id, part.content)
    return texts

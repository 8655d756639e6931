"""The shapes of responses, for the OpenAPI document. ``views`` makes the responses without these;
tests check that both match."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import MessageRole, SessionStatus, WhenBusy

_ID = "0198c5a2-7b1e-7c3a-9d40-1f2e3d4c5b6a"


class Shape(BaseModel):
    """The base of all responses: they have no other fields."""

    model_config = ConfigDict(extra="forbid")


class SessionShape(Shape):
    """A thread of messages."""

    id: str = Field(examples=[_ID])
    user_id: str = Field(examples=["ada"])
    agent_type: str = Field(examples=["helper"])
    title: str | None
    status: SessionStatus
    when_busy: WhenBusy
    related_type: str | None
    related_id: str | None
    initial_context_url: str | None
    metadata: dict[str, Any]
    last_execution_id: str | None
    last_snapshot_id: str | None
    last_seq: int = Field(description="Number of the newest event in its log.")
    last_message_at: datetime | None
    created_at: datetime
    updated_at: datetime


class ListedSessionShape(SessionShape):
    """A session in a list."""

    last_execution_status: ExecutionStatus | None = Field(
        description="Where it stands: of its oldest execution that is not over, or else of its "
        "last one; null if it has none."
    )


class MessageShape(Shape):
    """One entry of a session."""

    id: str = Field(examples=[_ID])
    session_id: str
    role: MessageRole
    content: str = Field(examples=["Execution queued"])
    agent_execution_id: str | None
    related_type: str | None
    related_id: str | None
    context_url: str | None
    metadata: dict[str, Any] = Field(examples=[{"event_type": "execution.queued"}])
    created_at: datetime


class ExecutionShape(Shape):
    """One run of an agent."""

    id: str = Field(examples=[_ID])
    session_id: str | None
    user_id: str | None
    parent_execution_id: str | None
    agent_type: str
    agent_config: dict[str, Any]
    status: ExecutionStatus
    input: dict[str, Any]
    output: JsonValue
    step_count: int
    token_usage: int
    token_details: dict[str, int]
    cost: float
    stop_reason: str | None = Field(examples=["completed"])
    decision: dict[str, Any] | None = Field(
        description="The whole outcome that ended or paused it, with every evaluation."
    )
    pending: list[dict[str, Any]] = Field(
        description="What a paused execution waits for: `question_id`, which an answer names, "
        "`kind`, `prompt`, `call_id`, `tool_name`, `details`."
    )
    error_message: str | None
    last_snapshot_id: str | None
    metadata: dict[str, Any]
    attempt: int
    cancel_requested: str | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None


class SnapshotShape(Shape):
    """A snapshot without its state."""

    id: str = Field(examples=[_ID])
    agent_execution_id: str
    parent_snapshot_id: str | None
    agent_id: str | None
    agent_name: str | None
    step_number: int
    is_final: bool
    created_at: datetime


class WholeSnapshotShape(SnapshotShape):
    """A snapshot with its whole state."""

    state: dict[str, Any]


class SentShape(Shape):
    """The result of sending a message. ``execution`` is null if a running one was steered."""

    session: SessionShape
    message: MessageShape
    execution: ExecutionShape | None
    repeated: bool = Field(description="Whether the key was used before; then nothing changed.")


class SessionPage(Shape):
    """Sessions, last changed first."""

    items: list[ListedSessionShape]
    next: str | None = Field(description="Cursor of the next page; null at the end.")


class MessagePage(Shape):
    """Messages in order of time."""

    items: list[MessageShape]
    older: str | None = Field(description="The `before` cursor for older messages.")
    newer: str | None = Field(description="The `after` cursor for newer messages.")
    has_older: bool
    has_newer: bool
    settled_seq: int = Field(
        description="Up to this number the stored messages of the session cover its journal, "
        "except for `unfinished`. Leave out the messages of those and follow the events after "
        "this number: nothing is lost or duplicated."
    )
    last_seq: int = Field(
        description="Number of the newest event in the journal when these messages were read. The "
        "stored messages cover the events up to it of executions that are not in `unfinished`: "
        "ignore those. Events of a subagent belong to the execution that a user started: follow "
        "`payload.parent_execution_id`."
    )
    unfinished: list[ExecutionShape] = Field(
        description="The executions of the session that are not over and that the asker may read, "
        "oldest first."
    )


class ExecutionPage(Shape):
    """A page of executions."""

    items: list[ExecutionShape]
    next: str | None = Field(description="Cursor of the next page; null at the end.")


class SnapshotPage(Shape):
    """Snapshots of an execution in order."""

    items: list[SnapshotShape]
    next: str | None = Field(description="Cursor of the next page; null at the end.")


class StepPage(Shape):
    """Steps of an execution in order: tools with arguments and results, usage, decisions. Values
    of more than some 16,000 characters are cut, and `truncated` of the step is true; the step's own
    address has the whole."""

    items: list[dict[str, Any]]
    next: int | None = Field(description="`after` of the next page; null at the end.")


class AgentShape(Shape):
    """A registered agent."""

    name: str = Field(examples=["helper"])
    description: str
    tools: list[str]
    definition_hash: str
    model: str | None = Field(
        description="Its model's name; `scripted` asks none, and null is for the driver to know.",
        examples=["openai:gpt-5"],
    )
    examples: list[str] = Field(description="Prompts to try.")
    is_default: bool = Field(description="Whether new sessions use it by default.")


class AgentList(Shape):
    """The registered agents; the first is the default."""

    items: list[AgentShape]
    default: str


class KeyShape(Shape):
    """An API key without its secret."""

    id: str = Field(examples=[_ID])
    user_id: str
    name: str
    prefix: str
    is_admin: bool
    roles: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewKeyShape(KeyShape):
    """A new API key; its secret is shown this once."""

    secret: str


class KeyList(Shape):
    """Keys, including revoked ones."""

    items: list[KeyShape]


class ChannelShape(Shape):
    """The signature with which a socket joins a private channel."""

    auth: str = Field(examples=["stepwell:5f2c"])
    channel_data: str


class HealthShape(Shape):
    """The process responds."""

    status: str = Field(examples=["ok"])


class ReadyShape(Shape):
    """The result of each check: ok, or what is wrong."""

    status: str = Field(examples=["ready"])
    checks: dict[str, str] = Field(examples=[{"database": "ok", "worker": "ok: no work waits"}])


class FieldError(Shape):
    """One invalid field."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    place: str = Field(alias="in", examples=["body"])
    field: str = Field(examples=["content"])
    message: str
    code: str


class Problem(Shape):
    """An error (RFC 9457). ``code`` is for programs, ``detail`` for people."""

    type: str = Field(examples=["urn:stepwell:problem:session_not_found"])
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no session 'x'"])
    code: str = Field(examples=["session_not_found"])
    instance: str | None = None
    errors: list[FieldError] | None = None
    pending: list[dict[str, Any]] | None = Field(
        default=None,
        description="Of an answer to a question that is not waited for: what is, as in "
        "`ExecutionShape.pending`.",
    )


class OpenAiErrorDetail(Shape):
    """What is wrong, in the words of OpenAI's API."""

    message: str
    type: str = Field(examples=["invalid_request_error"])
    param: str | None = None
    code: str | None = Field(default=None, examples=["model_not_found"])


class OpenAiError(Shape):
    """An error of the routes under `/v1/`."""

    error: OpenAiErrorDetail

"""Request bodies and queries, validated by pydantic. Unknown fields are refused, and so is text
that PostgreSQL or JSON can't hold: what is accepted can be stored."""

import math
from typing import Annotated, Any, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictFloat,
    StrictInt,
    model_validator,
)
from pydantic_core import PydanticCustomError

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import SessionStatus, WhenBusy
from stepwell.text import HALF_CHARACTER, is_encodable, walk_json

_LARGEST_INT = 2**63
_MOST_UNKNOWN_FIELDS = 500
Value = TypeVar("Value")


def storable(value: Value) -> Value:
    """Return the JSON value. Raise if a text, a number or a name in it can't be stored."""
    for each in walk_json(value):
        if isinstance(each, str):
            _check_text(each)
        elif isinstance(each, int | float):
            _check_number(each)
    return value


def _check_number(number: float) -> None:
    if isinstance(number, float) and not math.isfinite(number):
        raise PydanticCustomError("number", "NaN and Infinity are not JSON")
    if isinstance(number, int) and not -_LARGEST_INT <= number < _LARGEST_INT:
        raise PydanticCustomError("number", "a whole number must fit 64 bits")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise PydanticCustomError("text", "a text must not contain the character NUL")
    if not is_encodable(text):
        raise PydanticCustomError("text", f"a text must not contain {HALF_CHARACTER}")


Storable = AfterValidator(storable)
Title = Annotated[str, Field(max_length=200), Storable]
Word = Annotated[str, Field(min_length=1, max_length=200), Storable]
Text = Annotated[str, Field(min_length=1), Storable]
"""The longest length is a setting, so the route checks it."""
Url = Annotated[str, Field(min_length=1, max_length=2000), Storable]
Metadata = Annotated[dict[str, JsonValue], Storable]
Place = Annotated[str, Field(min_length=1, max_length=256)]
AnyJson = Annotated[JsonValue, Storable]


class Body(BaseModel):
    """The base of all bodies."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_many_unknown_fields(cls, data: Any) -> Any:
        """Raise one error instead of thousands."""
        if isinstance(data, dict):
            unknown = [
                name for name in cast("dict[str, Any]", data) if name not in cls.model_fields
            ]
            if len(unknown) > _MOST_UNKNOWN_FIELDS:
                message = f"{len(unknown)} fields are unknown, such as {unknown[0][:50]!r}"
                raise PydanticCustomError("extra_forbidden", "{reason}", {"reason": message})
        return cast("Any", data)


class ContextBody(Body):
    """The object of the application that this is about; checked by its resolver."""

    related_type: Word | None = Field(default=None, examples=["invoice"])
    related_id: Word | None = Field(default=None, examples=["42"])
    context_url: Url | None = Field(default=None, examples=["/invoices/42"])


class SessionBody(ContextBody):
    """A new session."""

    agent_type: Word | None = Field(
        default=None, description="Name of a registered agent; the first if left out."
    )
    title: Title | None = Field(default=None, examples=["Dunning letters"])
    when_busy: WhenBusy = Field(
        default=WhenBusy.ENQUEUE,
        description="What to do with a message that is sent while an execution runs.",
    )
    initial_context_url: Url | None = Field(
        default=None,
        description="The page where it began; the same as `context_url`.",
        examples=["/invoices/42"],
    )
    metadata: Metadata = Field(default={}, examples=[{"project": "north"}])


class SessionChanges(Body):
    """Changes of a session; fields that are left out stay."""

    title: Title | None = Field(default=None, examples=["Letters of March"])
    status: SessionStatus = Field(default=SessionStatus.ACTIVE, examples=["archived"])
    when_busy: WhenBusy = WhenBusy.ENQUEUE
    metadata: Metadata = {}


class MessageBody(ContextBody):
    """A message for a session."""

    content: Text = Field(examples=["Which invoices are overdue?"])
    metadata: Metadata = {}


class FirstMessageBody(MessageBody):
    """A message and the session to create for it. A session without a context gets the
    message's."""

    session: SessionBody = SessionBody()


class CancelBody(Body):
    """Why to cancel an execution."""

    reason: Annotated[str, Field(max_length=1000), Storable] = Field(
        default="", examples=["not needed"]
    )


class ResumeBody(Body):
    """A grant of budget for a paused execution, or a request to resume."""

    question_id: Word | None = Field(
        default=None,
        description="The question that this grant answers; required if the execution waits for "
        "budget.",
        examples=["q_1f2e3d4c5b6a79801f2e3d4c5b6a7980"],
    )
    steps: StrictInt = Field(default=0, ge=0, le=1_000_000, examples=[10])
    tokens: StrictInt = Field(default=0, ge=0, le=1_000_000_000_000)
    seconds: StrictFloat = Field(default=0.0, ge=0, le=1e9, allow_inf_nan=False)
    cost: StrictFloat = Field(default=0.0, ge=0, le=1e9, allow_inf_nan=False)
    accept_change: StrictBool = Field(
        default=False, description="Resume although the agent's definition has changed."
    )


class AnswerBody(Body):
    """The answer to a question or an approval."""

    question_id: Word | None = Field(
        default=None,
        description="The `question_id` that the person saw; any other, or none, is refused with "
        "409 and the current question.",
        examples=["q_1f2e3d4c5b6a79801f2e3d4c5b6a7980"],
    )
    call_id: str | None = Field(
        default=None,
        description="The call that asked. If given, it must be the call of the question.",
    )
    answer: AnyJson = Field(examples=["yes"])


class ForkBody(Body):
    """Where to fork, and a message to send there."""

    step_number: StrictInt | None = Field(
        default=None,
        ge=0,
        le=1_000_000_000,
        description="The last step to keep; the newest if left out.",
    )
    message: Text | None = Field(default=None, examples=["Try it without the tool."])


class KeyBody(Body):
    """A new API key."""

    name: Word = Field(examples=["nightly report"])
    expires_in_days: StrictFloat | None = Field(
        default=None, gt=0, le=36_500, allow_inf_nan=False, examples=[90]
    )
    user_id: Word | None = Field(
        default=None,
        description="The owner; only administrators create keys for others.",
    )
    is_admin: StrictBool = Field(default=False, description="Only administrators create such keys.")
    roles: list[Word] = Field(
        default=[],
        max_length=20,
        description="Roles of the key: of one's own, or any for administrators.",
    )


class SessionQuery(Body):
    """Which sessions to list."""

    limit: int | None = Field(default=None, ge=1, le=200)
    cursor: Place | None = None
    status: SessionStatus | None = None
    agent_type: Word | None = None
    related_type: Word | None = Field(
        default=None, description="Only sessions about objects of this type."
    )
    related_id: Word | None = Field(
        default=None, description="Only sessions about the object with this id."
    )
    search: Word | None = Field(
        default=None,
        description=(
            "Words in titles, in what users said and in final answers: at most 5 of at most 50 "
            "characters each."
        ),
    )
    user_id: Word | None = Field(
        default=None,
        description="For administrators: the user; all of the tenant if left out.",
    )


class MessageQuery(Body):
    """Which messages to list; without a cursor the last ones."""

    limit: int | None = Field(default=None, ge=1, le=200)
    before: Place | None = None
    after: Place | None = None


class PageQuery(Body):
    """Which part of a list."""

    limit: int | None = Field(default=None, ge=1, le=200)
    cursor: Place | None = None


class StepQuery(Body):
    """Which steps of an execution to list."""

    limit: int | None = Field(default=None, ge=1, le=200)
    after: int = Field(default=0, ge=0, le=10**9, description="The number of a step.")


class ExecutionQuery(PageQuery):
    """Which executions to list."""

    status: ExecutionStatus | None = None
    agent_type: Word | None = None
    waiting: bool = Field(default=False, description="Only executions that wait for a person.")
    user_id: Word | None = Field(
        default=None,
        description="For administrators: the user; all of the tenant if left out.",
    )


class ChannelBody(Body):
    """The private channel that a socket joins. Also accepted as a form, as Pusher clients send
    it."""

    socket_id: Annotated[str, Field(pattern=r"^\d{1,20}\.\d{1,20}$")] = Field(examples=["12.34"])
    channel_name: Word = Field(examples=["private-agent.session.0198c5a2-7b1e-7c3a-9d40-1f2e"])

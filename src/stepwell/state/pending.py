"""What a paused run waits for, and what people answer."""

import json as standard_json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any, cast

from msgspec import Struct, ValidationError, convert, json, structs

from stepwell.errors import StepwellError
from stepwell.messages import Kept, ToolCall


class PendingKind(StrEnum):
    """What sort of answer is waited for."""

    QUESTION = "question"
    APPROVAL = "approval"
    BUDGET = "budget"


class Pending(Kept, frozen=True, kw_only=True, gc=True):
    """One thing a paused run waits for; ``call_id`` names the tool call that asked, if one did.

    The answer becomes the result of that call, or, with ``resumes``, the call runs again and is
    given the answer and what it ``kept``.
    """

    kind: PendingKind
    prompt: str
    call_id: str | None = None
    tool_name: str | None = None
    details: Mapping[str, Any] = {}
    resumes: bool = False
    kept: Any = None
    by_hook: bool = False
    """A hook asked before the call ran; the call itself knows nothing of it."""
    may_store: tuple[str, ...] | None = None
    """Of a tool with secret arguments: those that an edited approval may be stored with."""


class Question(Pending, frozen=True, kw_only=True):
    """Something a paused run waits for, with the id that an answer has to name.

    The id is derived from the execution, the step, the call and what is asked, so it is the same in
    every process that loads the state, and no other question of any run has it.
    """

    id: str

    @classmethod
    def of(cls, pending: Pending, *, execution_id: str, step: int) -> "Question":
        """What is pending after ``step`` steps of that execution, as a question with its id."""
        fields = structs.asdict(pending)
        fields["id"] = _question_id(pending, execution_id, step)
        return cls(**fields)

    def without_id(self) -> Pending:
        """What is stored: the id is derived again when the state is loaded."""
        fields = structs.asdict(self)
        del fields["id"]
        return Pending(**fields)


def _question_id(asked: Pending, execution_id: str, step: int) -> str:
    is_budget = asked.kind is PendingKind.BUDGET
    shown = [
        execution_id,
        step,
        asked.call_id,
        asked.tool_name,
        asked.kind,
        # Servers say in their own words how to grant more; the details have the limit.
        "" if is_budget else asked.prompt,
        asked.details,
    ]
    text = standard_json.dumps(
        _canonical(shown), sort_keys=True, separators=(",", ":"), default=str
    )
    return f"q_{sha256(text.encode()).hexdigest()[:32]}"


def _canonical(value: Any) -> Any:
    """The value with keys that JSON can write and sort: a state keeps any key, such as a tuple."""
    match value:
        case Mapping():
            items = cast("Mapping[Any, Any]", value).items()
            return {_key(key): _canonical(item) for key, item in items}
        case list() | tuple():
            return [_canonical(item) for item in cast("Sequence[Any]", value)]
        case _:
            return value


def _key(key: Any) -> str:
    """A text as it is, anything else marked, so that 1 and "1" stay two keys."""
    return str.__str__(key) if isinstance(key, str) else f"$key {key}"


def _quote(answer: Any) -> str:
    """An answer in an error; an object may hold secret arguments, so it is not quoted."""
    is_word = answer is None or isinstance(answer, str | int | float)
    return f"{answer!r:.80}" if is_word else f"a {type(answer).__name__} (not shown)"


def json_data(answer: Any) -> Any:
    """An answer that a state can hold; anything but JSON data is refused while it can be put right.

    >>> json_data({"choice": 2})
    {'choice': 2}
    """
    try:
        json.encode(answer)
    except (TypeError, ValueError, RecursionError) as error:
        raise StepwellError(
            f"an answer must be text or JSON data; {_quote(answer)} is not ({error})"
        ) from None
    return answer


class Answered(Kept, frozen=True, kw_only=True, gc=True):
    """An answer to a call that is to run again with it, in the next step."""

    call: ToolCall
    answer: Any
    kept: Any = None
    by_hook: bool = False
    made_in: int = 0
    """The number of the step whose model turn made the call."""
    may_store: tuple[str, ...] | None = None
    """As in what was asked."""


class Approval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person's word on a call that waited for approval: yes, yes with other arguments, or no.

    >>> Approval.denied("not on a Friday")
    Approval(approved=False, message='not on a Friday', arguments=None)
    >>> Approval.of(True) == Approval.granted()
    True
    """

    approved: bool
    message: str = ""
    """For the model, when the call is denied."""
    arguments: Mapping[str, Any] | None = None
    """What to run the call with instead of the model's arguments."""

    @classmethod
    def granted(cls) -> "Approval":
        """Run the call as it is."""
        return cls(approved=True)

    @classmethod
    def edited(cls, arguments: Mapping[str, Any]) -> "Approval":
        """Run the call, with these arguments."""
        if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise StepwellError(
                f"edited arguments are a {type(arguments).__name__}; give all arguments of the "
                "call by name"
            )
        return cls(approved=True, arguments=arguments)

    @classmethod
    def denied(cls, message: str = "") -> "Approval":
        """Don't run the call; the model sees why."""
        return cls(approved=False, message=message)

    @classmethod
    def of(cls, answer: Any) -> "Approval":
        """From an approval, True or False, or the JSON object that an approval is sent as."""
        if isinstance(answer, bool):
            return cls(approved=answer)
        try:
            # An approval as well: its fields are only checked on the way from data.
            given = structs.asdict(answer) if isinstance(answer, Approval) else answer
            return convert(json_data(given), Approval)
        except ValidationError as error:
            raise StepwellError(
                f"{_quote(answer)} does not say whether the call may run ({error}); answer True, "
                'False, Approval.denied("why"), Approval.edited({...}), or the same as JSON: '
                '{"approved": false, "message": "why"}'
            ) from None

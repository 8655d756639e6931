"""The step in flight as the ledger knows it: the model's turn, and its calls with their results.

It becomes one row, written before the first call that is not pure begins, and again when results
wait for the step's end. The ledger alone writes to it.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeGuard, TypeVar

from msgspec import Raw, Struct, convert, json, to_builtins
from msgspec.structs import replace

from stepwell.errors import SerializationError
from stepwell.models import ModelResponse
from stepwell.serialization.calls import finished_from_json, finished_to_json, response_from_json
from stepwell.sessions.records import Execution, StepIntent
from stepwell.text import json_bytes
from stepwell.tools import ToolEffect
from stepwell.tools.results import Finished

Value = TypeVar("Value", bound=Struct)


class IntendedCall(Struct, frozen=True, kw_only=True, eq=False):
    """A call that began, or is about to, and what it came to, if that is known."""

    call_id: str
    tool_name: str
    effect: ToolEffect
    attempt: int
    """Which claim of the execution began it."""
    started_at: datetime
    finished: Finished | None = None


_NO_RESULT = Raw(b"null")
_LARGEST_RESULT = 1_000_000
"""Characters of a result that is stored before its step is."""


class _StoredIntendedCall(Struct, frozen=True, kw_only=True):
    call_id: str
    tool_name: str
    effect: ToolEffect
    attempt: int
    started_at: datetime
    result: Raw = _NO_RESULT


class KnownStep(Struct, frozen=True, kw_only=True, eq=False):
    """What a stored intent says of the step that an earlier attempt did not finish."""

    step_number: int = 0
    document: str | None = None
    """The model's response as it is stored."""
    response: ModelResponse | None = None
    calls: Mapping[str, IntendedCall] = {}

    @classmethod
    def of(cls, intent: StepIntent | None, step_number: int) -> "KnownStep":
        """Read the intent of that step; nothing is known if it is another's or missing. Raises
        ``SerializationError``."""
        if intent is None or intent.step_number != step_number:
            return cls()
        document = intent.response
        calls = [_read_call(stored) for stored in _stored_calls(intent)]
        return cls(
            step_number=step_number,
            document=document,
            response=None if document is None else response_from_json(document),
            calls={call.call_id: call for call in calls},
        )

    @classmethod
    def as_far_as_readable(cls, intent: StepIntent | None, step_number: int) -> "KnownStep":
        """The same for an execution that ends: what is damaged counts as not known."""
        try:
            return cls.of(intent, step_number)
        except SerializationError:
            calls = () if intent is None else _sound_calls(intent)
            return cls(step_number=step_number, calls={call.call_id: call for call in calls})

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known."""
        return self.response is None and not self.calls


NOTHING_KNOWN = KnownStep()


class OpenStep:
    """The step in flight of one attempt."""

    def __init__(self) -> None:
        self.number = 0
        self.response: ModelResponse | None = None
        """What the model said in it; None for a driver of its own and for answered calls."""
        self._calls: dict[str, IntendedCall] = {}
        self._resumed = NOTHING_KNOWN
        self._encode: Callable[[], str | None] | None = None
        self._has_news = False

    def resume(self, known: KnownStep) -> None:
        """Begin with what an earlier attempt left of the step."""
        self._resumed = known
        self.number, self._calls = known.step_number, dict(known.calls)
        self._encode = lambda: known.document

    def hear(self, step_number: int, response: ModelResponse | None) -> None:
        """Note the model's turn of a step."""
        self._open(step_number)
        self.response = response

    def enter(
        self, step_number: int, calls: list[IntendedCall], encode: Callable[[], str | None]
    ) -> None:
        """Note calls that are about to run; ``encode`` gives the model's turn as JSON."""
        self._open(step_number)
        if self._encode is None:
            self._encode = encode
        self._calls |= {call.call_id: call for call in calls}
        self._has_news = True

    def finish(self, call_id: str, finished: Finished) -> None:
        """Note what a call came to."""
        if (call := self._calls.get(call_id)) is not None:
            self._calls[call_id] = replace(call, finished=finished)
            self._has_news = True

    def has_call(self, call_id: str) -> bool:
        """Whether that call of the step began, also in an earlier attempt."""
        return call_id in self._calls

    def has_calls_of(self, step_number: int) -> bool:
        """Whether calls of that step began."""
        return self.number == step_number and bool(self._calls)

    def known_step(self) -> KnownStep:
        """Return what is known of the step, as a stored intent would say it."""
        said = self.response
        if said is None and self._resumed.step_number == self.number:
            said = self._resumed.response
        return KnownStep(step_number=self.number, response=said, calls=dict(self._calls))

    def take_news(self, execution: Execution, at: datetime) -> StepIntent | None:
        """Return the row to store, if anything changed since it was last taken. Raises
        ``SerializationError``, before a tool has run."""
        if not self._has_news:
            return None
        self._has_news = False
        return StepIntent(
            execution_id=execution.id,
            tenant_id=execution.tenant_id,
            step_number=self.number,
            response=None if self._encode is None else self._encode(),
            calls=json.encode([_stored_call(call) for call in self._calls.values()]).decode(),
            created_at=at,
        )

    def close(self) -> None:
        """The step is stored, so nothing of it needs to be known any more."""
        self.response, self._has_news = None, False

    def _open(self, step_number: int) -> None:
        if step_number != self.number:
            self.number, self.response, self._encode, self._calls = step_number, None, None, {}
            self._has_news = False


def calls_begun(intent: StepIntent | None, step_number: int) -> tuple[str, ...]:
    """The names of tools whose calls began in that step and have no result."""
    if intent is None or intent.step_number != step_number:
        return ()
    return tuple(call.tool_name for call in _stored_calls(intent) if call.result == _NO_RESULT)


def storable(value: Value) -> Value:
    """Replace what JSON can't hold. An approximation is enough to recognize a call."""
    return convert(json.decode(json_bytes(to_builtins(value, enc_hook=str))), type(value))


def _stored_calls(intent: StepIntent) -> list[_StoredIntendedCall]:
    try:
        return json.decode(intent.calls, type=list[_StoredIntendedCall])
    except ValueError as error:
        raise SerializationError(f"a stored tool call does not fit: {error}") from None


def _sound_calls(intent: StepIntent) -> list[IntendedCall]:
    try:
        stored = _stored_calls(intent)
    except SerializationError:
        return []
    return [_read_call(replace(call, result=_NO_RESULT)) for call in stored]


def _read_call(stored: _StoredIntendedCall) -> IntendedCall:
    return IntendedCall(
        call_id=stored.call_id,
        tool_name=stored.tool_name,
        effect=stored.effect,
        attempt=stored.attempt,
        started_at=stored.started_at,
        finished=None if stored.result == _NO_RESULT else finished_from_json(bytes(stored.result)),
    )


def _stored_call(call: IntendedCall) -> _StoredIntendedCall:
    return _StoredIntendedCall(
        call_id=call.call_id,
        tool_name=call.tool_name,
        effect=call.effect,
        attempt=call.attempt,
        started_at=call.started_at,
        result=Raw(_result_document(call.finished)) if _is_small(call.finished) else _NO_RESULT,
    )


def _is_small(finished: Finished | None) -> TypeGuard[Finished]:
    """Whether there is a result that is stored before its step. A large one is stored once."""
    return finished is not None and len(finished.execution.text) <= _LARGEST_RESULT


def _result_document(finished: Finished) -> str:
    """The result as JSON; of one that JSON can't hold, the text that the model is shown."""
    try:
        return finished_to_json(finished)
    except SerializationError:
        ran = storable(replace(finished.execution, value=None))
        return finished_to_json(Finished(execution=ran, signal=finished.signal))

"""The full format: a state as JSON and back, exactly; whole, or what was added to an older one."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

from msgspec import Raw, convert, json, structs

from stepwell.errors import SerializationError
from stepwell.serialization.document import (
    INCREMENT,
    SCHEMA_VERSION,
    WHOLE,
    StoredChange,
    StoredState,
)
from stepwell.serialization.frame import (
    OpenedBody,
    Text,
    open_data,
    open_text,
    seal_data,
    seal_text,
)
from stepwell.serialization.reader import VALUE_READER, StateBuilder, read_state
from stepwell.serialization.values import Misfit
from stepwell.serialization.versions import migrate
from stepwell.serialization.writer import write_change, write_state
from stepwell.state import AgentState

P = ParamSpec("P")
Body = TypeVar("Body", StoredState, StoredChange)


class AgentStateSerializer:
    """Stores states and loads them again, exactly: what an execution resumes from.

    ``to_json`` and ``from_json`` are for text; ``serialize`` and ``deserialize`` give the same as
    JSON-ready data. What is only there while a step is in flight is not part of it, and neither are
    secrets. Whatever can't be stored or loaded raises ``SerializationError``.

    >>> serializer = AgentStateSerializer()
    >>> state = AgentState.empty().with_user_message("Hello")
    >>> serializer.from_json(serializer.to_json(state)) == state
    True

    A store that keeps every step writes the first state whole and then only increments:

    >>> later = state.with_user_message("Are you there?")
    >>> increment = serializer.increment_to_json(state, later)
    >>> serializer.from_increments(serializer.to_json(state), [increment]) == later
    True
    """

    def to_json(self, state: AgentState) -> bytes:
        """The whole state, as JSON text in UTF-8."""
        return seal_text(WHOLE, SCHEMA_VERSION, _write_body(write_state, state))

    def from_json(self, document: Text) -> AgentState:
        """The state that ``to_json`` wrote, in this or an older version."""
        return read_state(_body(open_text(document, WHOLE), WHOLE, StoredState))

    def serialize(self, state: AgentState, /) -> dict[str, Any]:
        """The whole state, as JSON-ready data."""
        return seal_data(WHOLE, SCHEMA_VERSION, _write_body(write_state, state))

    def deserialize(self, data: Mapping[str, Any], /) -> AgentState:
        """Return the state from the output of ``serialize``, of this or an older version."""
        return read_state(_body(open_data(data, WHOLE), WHOLE, StoredState))

    def increment_to_json(self, before: AgentState, state: AgentState) -> bytes:
        """What the state has that ``before`` has not; its size and cost are those of the addition.

        ``before`` is the state that was stored last: increments that don't follow one another
        can't be loaded. Metadata values that changed are written each time, and what a
        paused run waits for.
        """
        return seal_text(INCREMENT, SCHEMA_VERSION, _write_body(write_change, before, state))

    def from_increments(self, whole: Text, increments: Iterable[Text]) -> AgentState:
        """The state after the last of the increments, which follow the whole one in order."""
        *_, last = _rebuild(whole, increments)
        return last.state()

    def each_of_increments(self, whole: Text, increments: Iterable[Text]) -> Iterator[AgentState]:
        """The state that is whole, and the one after each increment, in one pass."""
        for rebuilding in _rebuild(whole, increments):
            state = rebuilding.state()
            yield structs.replace(state, metadata=dict(state.metadata))


def _rebuild(whole: Text, increments: Iterable[Text]) -> Iterator[StateBuilder]:
    """The same one each time, as it goes on."""
    rebuilding = StateBuilder(_body(open_text(whole, WHOLE), WHOLE, StoredState))
    yield rebuilding
    for number, increment in enumerate(increments, 1):
        try:
            opened = open_text(increment, INCREMENT)
            rebuilding.apply(_body(opened, INCREMENT, StoredChange))
        except SerializationError as error:
            raise SerializationError(f"increment {number}: {error}") from error
        yield rebuilding


def _write_body(write: Callable[P, Body], *args: P.args, **kwargs: P.kwargs) -> Body:
    try:
        return write(*args, **kwargs)
    except Misfit as misfit:
        raise misfit.error() from None
    except RecursionError:
        raise SerializationError("the state is nested too deep to be stored") from None


def _body(opened: OpenedBody, format: str, shape: type[Body]) -> Body:
    text = opened.text
    try:
        if text is None or opened.version != SCHEMA_VERSION:
            data = opened.data if text is None else json.decode(text)
            return convert(VALUE_READER.read(migrate(data, format, opened.version)), shape)
        if not opened.has_tags:
            return _DECODERS[shape].decode(text)
        return _decode_tagged(text, shape)
    except Misfit as misfit:
        raise misfit.error() from None
    except ValueError as error:
        raise SerializationError(f"the document does not fit the format: {error}") from None
    except RecursionError:
        raise SerializationError("the document is nested too deep") from None


def _decode_tagged(text: Raw, shape: type[Body]) -> Body:
    """Field by field: as a rule only one has tags, and it is the quick way for the others."""
    fields = {field.encode_name: field.type for field in structs.fields(shape)}
    parts = json.decode(text, type=dict[str, Raw])
    data = {
        name: json.decode(part, type=fields[name])
        if name in fields and b'{"$' not in bytes(part)
        else VALUE_READER.read(json.decode(part))
        for name, part in parts.items()
    }
    return convert(data, shape)


_DECODERS: Mapping[Any, json.Decoder[Any]] = {
    shape: json.Decoder(shape) for shape in (StoredState, StoredChange)
}

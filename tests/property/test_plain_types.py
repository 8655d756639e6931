"""Plain parameter types are described and validated as pydantic does it, without pydantic."""

from enum import IntEnum, StrEnum
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import InvalidToolArgumentsError
from stepwell.tools.docstrings import Described
from stepwell.tools.plain_types import Parameter, plain_parameters, takes_none
from stepwell.tools.pydantic_arguments import PydanticArguments
from stepwell.tools.pydantic_arguments import takes_none as pydantic_takes_none
from stepwell.tools.result_text import json_value
from stepwell.tools.schema import Signature


class Colour(StrEnum):
    """A colour of the flag."""

    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Only(StrEnum):
    ONE = "one"


SCALARS = st.sampled_from([str, int, float, bool])
CHOICES = st.sampled_from([Colour, Level, Only, Literal["a", "b"], Literal["a"], Literal[1, 2]])


def unions(kinds: Any) -> Any:
    several = st.lists(SCALARS, min_size=2, max_size=4, unique=True)
    return st.one_of(
        kinds.map(lambda kind: Optional[kind]),  # noqa: UP045 - None | None is an error
        several.map(lambda found: reduce(or_, found)),
        several.map(lambda found: reduce(or_, found) | None),
    )


def containers(kinds: Any) -> Any:
    return st.one_of(
        kinds.map(lambda kind: list[kind]),
        kinds.map(lambda kind: dict[str, kind]),
        kinds.map(lambda kind: tuple[kind, ...]),
        st.lists(kinds, min_size=1, max_size=3).map(lambda found: tuple[tuple(found)]),
        unions(kinds),
    )


PLAIN = st.recursive(st.one_of(SCALARS, CHOICES, st.just(None)), containers, max_leaves=4)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(0, 3),
    st.floats(),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.text(max_size=3),
    st.sampled_from(["a", "red", "one", "1", "2.0", "true", "no", "null", ""]),
)
JSON = st.recursive(
    LEAVES,
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=2), items),
    max_leaves=6,
)


NO_DEFAULT = Parameter("x", int).default


def signature_of(hint: Any, default: Any = NO_DEFAULT) -> Signature:
    def tool(value: Any) -> None: ...

    tool.__annotations__ = {"value": hint}
    if default is not NO_DEFAULT:
        tool.__defaults__ = (default,)
    return Signature(tool, "tool", Described("", {"value": "What it is."}))


def by_pydantic_alone(hint: Any) -> PydanticArguments:
    # With a description, as in the signature: without one, typing hands out an equal union that was
    # made before, which may have another order.
    return PydanticArguments([Parameter("value", hint, description="What it is.")], "tool")


def outcome(validate: Any, arguments: dict[str, Any]) -> str:
    try:
        return repr(validate(arguments))
    except InvalidToolArgumentsError as error:
        return str(error)


@given(PLAIN)
def test_the_schema_is_the_one_of_pydantic(hint: Any) -> None:
    parameters = [Parameter("value", hint, description="What it is."), Parameter("x", hint, None)]
    assert plain_parameters(parameters) == PydanticArguments(parameters, "tool").schema
    assert takes_none(hint) == pydantic_takes_none(hint)


@given(PLAIN, JSON)
def test_values_and_complaints_are_those_of_pydantic(hint: Any, value: Any) -> None:
    signature = signature_of(hint)
    assert signature._is_plain  # pyright: ignore[reportPrivateUsage]
    by_pydantic = by_pydantic_alone(hint)
    given = {"value": value}
    assert outcome(signature.validate, given) == outcome(by_pydantic.validate, given)


@given(PLAIN, st.dictionaries(st.sampled_from(["value", "other"]), JSON))
def test_missing_and_unknown_arguments_are_refused_alike(hint: Any, given: dict[str, Any]) -> None:
    signature = signature_of(hint)
    by_pydantic = by_pydantic_alone(hint)
    assert outcome(signature.validate, given) == outcome(by_pydantic.validate, given)


@pytest.mark.parametrize("hint", [list[int], dict[str, int], dict[str, list[int]]])
def test_nothing_is_shared_with_what_was_given(hint: Any) -> None:
    value: Any = [1] if hint == list[int] else {"a": 1} if hint == dict[str, int] else {"a": [1]}
    validated = signature_of(hint).validate({"value": value})["value"]
    assert validated == value
    assert validated is not value
    if hint == dict[str, list[int]]:
        assert validated["a"] is not value["a"]


def test_null_for_an_argument_with_a_default_counts_as_not_given() -> None:
    assert signature_of(int, 3).validate({"value": None}) == {}
    assert signature_of(int | None, 3).validate({"value": None}) == {"value": None}


@given(JSON)
def test_results_of_plain_json_are_what_pydantic_makes_of_them(value: Any) -> None:
    finite = json_value(value)
    assert finite == json_value(MappingProxyType({"value": value}))["value"]
    assert finite is not value or not isinstance(value, list | dict)

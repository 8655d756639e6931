"""From type hints to the JSON schema that the model sees, and back to typed values."""

import functools
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
import typing_extensions
from pydantic import BaseModel, Field

from stepwell import BaseTool, FunctionTool, InputRequired, tool
from stepwell.errors import ConfigurationError, InvalidToolError
from stepwell.tools import Tool, ToolEffect


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Address:
    street: str
    zip_code: str = "00000"
    tags: list[str] = field(default_factory=list)


class Person(BaseModel):
    name: str = Field(description="Full name.")
    address: Address


class Tree(BaseModel):
    label: str
    children: list["Tree"] = []


class Window(typing_extensions.TypedDict):
    width: int
    title: typing_extensions.NotRequired[str]


class Counter:
    """Counts things."""

    def __init__(self, start: int) -> None:
        self.start = start

    def advance(self, by: int) -> int:
        """Move on by some steps."""
        return self.start + by

    @classmethod
    def zero(cls, name: str) -> str:
        """Name a zero."""
        return f"{name}=0"

    @staticmethod
    def double(x: int) -> int:
        """Twice."""
        return 2 * x

    def __call__(self, x: int) -> int:
        """Add the start."""
        return self.start + x


def schema_of(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    return dict(FunctionTool(function, **options).schema.parameters)


def property_of(hint: Any) -> dict[str, Any]:
    def take(x: hint) -> None: ...  # type: ignore[valid-type]

    take.__annotations__["x"] = hint
    return schema_of(take)["properties"]["x"]


def validated(hint: Any, value: Any) -> Any:
    def take(x: Any) -> None: ...

    take.__annotations__["x"] = hint
    return FunctionTool(take).validate({"x": value})["x"]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (date, {"type": "string", "format": "date"}),
        (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
    ],
)
def test_hints_become_json_types(hint: Any, expected: dict[str, Any]) -> None:
    assert property_of(hint) == expected


@pytest.mark.parametrize(
    ("hint", "sent", "arrives"),
    [
        (Size, "l", Size.LARGE),
        (Address, {"street": "Main"}, Address("Main")),
        (date, "2026-01-31", date(2026, 1, 31)),
        (
            Person,
            {"name": "Ada", "address": {"street": "Main"}},
            Person(name="Ada", address=Address("Main")),
        ),
        (Window, {"width": 3}, {"width": 3}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], [1, 1, 2], {1, 2}),
        (Optional[Size], None, None),  # noqa: UP045
    ],
)
def test_values_arrive_as_the_hinted_type(hint: Any, sent: Any, arrives: Any) -> None:
    assert validated(hint, sent) == arrives


def test_required_are_the_parameters_without_default_and_nothing_else_is_taken() -> None:
    def order(item: str, count: int = 1, note: str | None = None) -> str:
        return item

    schema = schema_of(order)

    assert schema["type"] == "object"
    assert schema["required"] == ["item"]
    assert schema["additionalProperties"] is False
    assert list(schema["properties"]) == ["item", "count", "note"]
    assert schema["properties"]["count"] == {"type": "integer", "default": 1}
    assert schema["properties"]["note"]["default"] is None


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    def ping() -> str:
        return "pong"

    schema = schema_of(ping)

    assert schema["type"] == "object"
    assert schema["properties"] == {}
    assert FunctionTool(ping).validate({}) == {}


def test_keyword_only_parameters_are_arguments_like_others() -> None:
    def find(*, query: str, limit: int = 5) -> str:
        return query

    assert schema_of(find)["required"] == ["query"]
    assert FunctionTool(find).validate({"query": "x", "limit": 2}) == {"query": "x", "limit": 2}


def test_dataclasses_and_models_are_described_by_definition() -> None:
    def save(person: Person) -> None: ...

    schema = schema_of(save)

    assert set(schema["$defs"]) == {"Person", "Address"}
    assert schema["properties"]["person"] == {"$ref": "#/$defs/Person"}
    assert schema["$defs"]["Person"]["properties"]["name"] == {
        "type": "string",
        "description": "Full name.",
    }
    assert schema["$defs"]["Address"]["required"] == ["street"]


def test_recursive_models_have_a_schema() -> None:
    assert validated(Tree, {"label": "a", "children": [{"label": "b"}]}) == Tree(
        label="a", children=[Tree(label="b")]
    )


def test_enum_values_are_listed() -> None:
    def paint(size: Size) -> None: ...

    assert schema_of(paint)["$defs"]["Size"]["enum"] == ["s", "l"]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="pydantic takes typing.TypedDict there")
def test_a_typed_dict_of_typing_is_refused_with_advice_on_python_311() -> None:
    Old = typing.TypedDict("Old", {"x": int})  # noqa: UP013

    def take(old: Any) -> None: ...

    take.__annotations__["old"] = Old

    with pytest.raises(InvalidToolError, match=r"'take'.*typing_extensions\.TypedDict"):
        FunctionTool(take)


def test_generated_titles_are_left_out_but_a_property_called_title_stays() -> None:
    def open_window(window: Window, title: str) -> None: ...

    schema = schema_of(open_window)

    assert "title" not in schema
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["$defs"]["Window"]["properties"] == {
        "width": {"type": "integer"},
        "title": {"type": "string"},
    }


def test_a_default_that_holds_a_title_is_shown_whole() -> None:
    def book(details: dict[str, str] = {"title": "Untitled", "by": "?"}) -> None: ...  # noqa: B006

    assert schema_of(book)["properties"]["details"]["default"] == {"title": "Untitled", "by": "?"}


@pytest.mark.parametrize("with_default", [False, True])
def test_the_description_of_a_field_reaches_the_schema(with_default: bool) -> None:
    if with_default:

        def count(n: Annotated[int, Field(description="How many.", ge=1)] = 3) -> int:
            return n
    else:

        def count(n: Annotated[int, Field(description="How many.", ge=1)]) -> int:
            return n

    shown = schema_of(count)["properties"]["n"]

    assert shown["description"] == "How many."
    assert shown["minimum"] == 1


def test_a_fields_own_description_wins_over_the_docstring() -> None:
    def count(n: Annotated[int, Field(description="From the field.")] = 3) -> int:
        """Count.

        Args:
            n: From the docstring.
        """
        return n

    assert schema_of(count)["properties"]["n"]["description"] == "From the field."


def test_a_field_with_an_alias_is_sent_by_alias_and_received_by_name() -> None:
    def find(query: Annotated[str, Field(alias="q")]) -> str:
        return query

    found = FunctionTool(find)

    assert list(found.schema.parameters["properties"]) == ["q"]
    assert found.validate({"q": "x"}) == {"query": "x"}


@pytest.mark.parametrize(
    "name",
    ["schema", "model_config", "_x", "model_fields", "validate", "json", "type", "id", "cls"],
)
def test_awkward_parameter_names_work(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def odd({name}: int) -> int:\n    return {name}", namespace)
    odd = FunctionTool(namespace["odd"])

    assert list(odd.schema.parameters["properties"]) == [name]
    assert odd.validate({name: 1}) == {name: 1}
    assert odd(**{name: 1}) == 1


def test_a_function_written_like_a_method_has_self_as_an_argument() -> None:
    def describe(self: str) -> str:
        return self

    assert FunctionTool(describe).validate({"self": "me"}) == {"self": "me"}


@pytest.mark.parametrize(
    ("make", "name", "description", "argument"),
    [
        (lambda: Counter(1).advance, "advance", "Move on by some steps.", "by"),
        (lambda: Counter.zero, "zero", "Name a zero.", "name"),
        (lambda: Counter.double, "double", "Twice.", "x"),
    ],
)
def test_methods_become_tools_without_their_self(
    make: Callable[[], Any], name: str, description: str, argument: str
) -> None:
    method = FunctionTool(make())

    assert method.schema.name == name
    assert method.schema.description == description
    assert list(method.schema.parameters["properties"]) == [argument]


def test_a_callable_object_is_called_after_its_class() -> None:
    counter = FunctionTool(Counter(3))

    assert counter.schema.name == "Counter"
    assert list(counter.schema.parameters["properties"]) == ["x"]
    assert counter(x=4) == 7


def test_a_lambda_needs_a_name_and_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"<lambda>.*name="):
        FunctionTool(lambda: "pong")
    assert FunctionTool(lambda: "pong", name="ping").schema.name == "ping"


def test_a_partial_keeps_the_hints_and_the_docstring_of_its_function() -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    add_five = FunctionTool(functools.partial(add, 5), name="add_five")

    assert list(add_five.schema.parameters["properties"]) == ["b"]
    assert add_five.schema.description == "Add two numbers."
    assert add_five(b=2) == 7


def test_a_wrapped_function_keeps_its_hints() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    @functools.wraps(add)
    def logged(*args: Any, **kwargs: Any) -> int:
        return add(*args, **kwargs)

    assert schema_of(logged)["required"] == ["a", "b"]


def test_name_description_and_options_can_be_given() -> None:
    @tool(name="square-it", description="Squares.", effect="pure", timeout=5, parallel=False)
    def square(x: float) -> float:
        """Square a number."""
        return x * x

    assert (square.schema.name, square.schema.description) == ("square-it", "Squares.")
    assert (square.effect, square.timeout, square.parallel) == (ToolEffect.PURE, 5, False)
    assert square(3.0) == 9.0


def test_the_plain_decorator_uses_the_defaults() -> None:
    @tool
    def ping() -> str:
        """Answer."""
        return "pong"

    assert isinstance(ping, Tool)
    assert (ping.effect, ping.timeout, ping.parallel) == (ToolEffect.EXTERNAL, None, True)


class Greet(BaseTool):
    name = "greet"
    description = "Says hello."

    def __call__(self, who: str) -> str:
        return f"Hello {who}"


def test_a_tool_class_is_described_by_its_attributes() -> None:
    greet = Greet()

    assert (greet.schema.name, greet.schema.description) == ("greet", "Says hello.")
    assert greet.schema.parameters["required"] == ["who"]
    assert greet(who="Ada") == "Hello Ada"


def test_a_tool_class_without_description_does_not_inherit_one_about_unit_tests() -> None:
    class Wave(BaseTool):
        """Waves a hand."""

        def __call__(self, who: str) -> str:
            return f"~ {who}"

    wave = Wave()

    assert wave.schema.name == "Wave"
    assert wave.schema.description == "Waves a hand."


def test_a_tool_class_may_declare_effect_timeout_and_parallel_like_its_name() -> None:
    class Careful(BaseTool):
        name = "careful"
        effect = ToolEffect.PURE
        timeout = 5.0
        parallel = False

        def __call__(self) -> str:
            """Be careful."""
            return "ok"

    careful = Careful()

    assert (careful.effect, careful.timeout, careful.parallel) == (ToolEffect.PURE, 5.0, False)


def test_a_tool_class_without_call_says_what_to_write() -> None:
    class Empty(BaseTool):
        name = "empty"

    with pytest.raises(InvalidToolError, match=r"Empty has no __call__.*def __call__"):
        Empty()


def unhinted(x) -> str:
    return x


def variadic(*args: str) -> str:
    return "".join(args)


def open_ended(**kwargs: str) -> str:
    return "".join(kwargs)


def positional(x: int, /) -> int:
    return x


def odd_default(x: Any = object()) -> Any:  # noqa: B008
    return x


def nan_default(x: float = float("nan")) -> float:
    return x


def takes_function(x: Callable[[int], int]) -> int:
    return x(1)


def takes_anything(x: Counter) -> int:
    return x.start


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (unhinted, r"'x' of tool 'unhinted' has no type hint; write for example `x: str`"),
        (variadic, r"'variadic' takes \*args: str.*name each parameter"),
        (open_ended, r"'open_ended' takes \*\*kwargs: str.*`dict\[str, Any\]`"),
        (positional, r"'x' of tool 'positional' is positional-only.*remove the `/`"),
        (odd_default, r"default of parameter 'x' of tool 'odd_default'.*use None and fill it in"),
        (nan_default, r"default of parameter 'x' of tool 'nan_default'.*use None and fill it in"),
        (takes_function, r"parameters of tool 'takes_function' have no JSON schema"),
        (takes_anything, r"parameters of tool 'takes_anything' have no JSON schema"),
        (42, r"42 is not callable, so it cannot be a tool"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_advice(
    function: Any, message: str
) -> None:
    with pytest.raises(InvalidToolError, match=message):
        FunctionTool(function)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, r"timeout of tool 'ping' must be above 0"),
        ({"timeout": -1}, r"timeout of tool 'ping' must be above 0"),
        ({"effect": "magic"}, r"'magic' of tool 'ping'; known: pure, idempotent, external"),
        ({"name": "has space"}, r"'has space' cannot be a tool's name; use up to 64 letters"),
        ({"name": "x" * 65}, r"cannot be a tool's name; use up to 64 letters"),
    ],
)
def test_bad_options_are_refused_with_advice(options: dict[str, Any], message: str) -> None:
    def ping() -> str:
        return "pong"

    with pytest.raises(ConfigurationError, match=message):
        FunctionTool(ping, **options)


def test_a_hint_that_cannot_be_resolved_is_refused_with_advice() -> None:
    def take(x: "Nowhere") -> None: ...  # noqa: F821

    with pytest.raises(InvalidToolError, match=r"'take' cannot be resolved.*module level"):
        FunctionTool(take)


def test_input_required_is_not_mistaken_for_a_context() -> None:
    def take(x: int) -> InputRequired:
        return InputRequired(prompt="?")

    assert schema_of(take)["required"] == ["x"]

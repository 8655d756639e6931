"""Whatever pydantic makes of a model: what is sent for a promise is what the provider takes."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, RootModel, create_model

from stepwell.models.wire import AnthropicMessages, ChatCompletions
from tests.examples import examples
from tests.unit.models.wire.samples import request

SHARED = {
    *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf"),
    *("$ref", "$defs", "definitions", "description", "title", "format"),
}
OPENAI = SHARED | {
    *("pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems"),
}
FORMATS = {
    *("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"),
}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1


class Point(BaseModel):
    """A point."""

    x: int
    y: float = Field(ge=0, lt=10, multiple_of=0.5)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    home: Point = Field(description="Where it lives.")


class Tree(BaseModel):
    name: str
    branches: list["Tree"]


class Left(BaseModel):
    right: "Right | None"


class Right(BaseModel):
    left: Left


class Free(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Pets(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Told(BaseModel):
    where: Point = Field(description="Where it is.")
    colour: Colour = Field(description="Of the sky.")
    site: HttpUrl
    when: datetime
    names: set[str]
    code: Annotated[str, Field(min_length=2, max_length=4, pattern="^[a-z]+$")]
    pick: Literal["a", "b"]
    maybe: int | None
    price: Decimal


LEAVES: list[Any] = [
    *(str, int, float, bool, bytes, None, Any, Decimal, datetime, date, timedelta, UUID, Path),
    *(HttpUrl, Colour, Size, Literal["a"], Literal["a", 1], Literal[True, None], list, dict),
    *(Point, Pets, Tree, Left, Free, object),
    Annotated[int, Field(gt=3, le=9)],
    Annotated[str, Field(min_length=1, pattern=r"^\w+$", examples=["ax"])],
    Annotated[list[int], Field(min_length=2, max_length=3)],
    Annotated[Point, Field(description="Where.")],
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Annotated[str, Field(json_schema_extra={"x-mine": 1})],
]
KEYS = st.sampled_from([str, int, Colour])
annotations = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: (
        st.builds(lambda of: list[of], inner)
        | st.builds(lambda of: of | None if of is not None else None, inner)
        | st.builds(lambda key, of: dict[key, of], KEYS, inner)
        | st.builds(lambda one, other: tuple[one, other], inner, inner)
        | st.builds(lambda of: tuple[of, ...], inner)
        | st.builds(lambda of: create_model("Inner", value=(of, ...)), inner)
        | st.builds(lambda of: Annotated[of, Field(description="Told.")], inner)
    ),
    max_leaves=4,
)


@st.composite
def models(draw: st.DrawFn) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(["a", "type", "items", "default"]), unique=True)):
        default = draw(st.sampled_from([..., None, Field(description="Said."), Field(title="T")]))
        fields[name] = (draw(annotations), default)
    return create_model("Drawn", __doc__=draw(st.sampled_from([None, "Drawn."])), **fields)


def sent_to_openai(schema: dict[str, Any]) -> dict[str, Any]:
    body = ChatCompletions().body(request(response_format=schema), "gpt-5", streaming=False)
    return body["response_format"]["json_schema"]


def sent_to_anthropic(schema: dict[str, Any]) -> dict[str, Any] | None:
    body = AnthropicMessages().body(
        request(response_format=schema), "claude-sonnet-4-6", streaming=False
    )
    promised = body.get("output_config", {}).get("format")
    assert (promised is None) == ("It must fit this schema" in str(body.get("system")))
    return None if promised is None else promised["schema"]


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """The schemas in a schema; whatever is a schema must be an object."""
    assert isinstance(schema, dict), schema
    yield schema
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions"):
            for inner in value.values():
                yield from nodes(inner)
        elif key == "items":
            yield from nodes(value)
        elif key == "anyOf":
            assert value
            for inner in value:
                yield from nodes(inner)


def expect_taken(schema: dict[str, Any], keywords: set[str], formats: set[str]) -> None:
    for node in nodes(schema):
        assert set(node) <= keywords
        assert set(node) & {"type", "$ref", "anyOf", "enum", "const"}
        assert node.get("format") in {None, *formats}
        assert "$ref" not in node or set(node) == {"$ref"}
        if "object" in node.get("type", ()) or "properties" in node:
            assert node["additionalProperties"] is False
        if node.get("type") == "array":
            assert "items" in node
        assert "(?!" not in node.get("pattern", "")
        assert "(?=" not in node.get("pattern", "")


@settings(deadline=None, max_examples=examples(200))
@given(model=models())
def test_only_what_a_provider_takes_is_sent_for_a_promise(model: type[BaseModel]) -> None:
    schema = model.model_json_schema()
    openai, anthropic = sent_to_openai(schema), sent_to_anthropic(schema)

    if openai["strict"]:
        expect_taken(openai["schema"], OPENAI, FORMATS)
        assert openai["schema"]["type"] == "object"
        for node in nodes(openai["schema"]):
            assert set(node.get("properties", ())) <= set(node.get("required", ()))
    else:
        assert openai["schema"] == schema
    if anthropic is not None:
        expect_taken(anthropic, SHARED, FORMATS | {"uri"})


@pytest.mark.parametrize("model", [Point, Cat, Dog, Pets, Told], ids=lambda model: model.__name__)
def test_ordinary_models_are_promised_by_both(model: type[BaseModel]) -> None:
    schema = model.model_json_schema()

    assert sent_to_openai(schema)["strict"] is True
    assert sent_to_anthropic(schema) is not None


@pytest.mark.parametrize("model", [Tree, Left], ids=lambda model: model.__name__)
def test_models_that_contain_themselves_are_promised_by_openai(model: type[BaseModel]) -> None:
    schema = model.model_json_schema()

    assert sent_to_openai(schema)["strict"] is True
    assert sent_to_anthropic(schema) is None


@pytest.mark.parametrize("annotation", [Any, dict[str, int], tuple[int, str], Free, list])
def test_models_with_open_parts_are_asked_for(annotation: Any) -> None:
    schema = create_model("Opened", part=(annotation, ...)).model_json_schema()

    assert sent_to_openai(schema)["strict"] is False
    assert sent_to_anthropic(schema) is None


def test_a_list_at_the_root_is_not_promised_by_openai() -> None:
    assert sent_to_openai(RootModel[list[int]].model_json_schema())["strict"] is False

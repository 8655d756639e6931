"""Tools in modules with ``from __future__ import annotations``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

from stepwell import Agent, BaseTool, FunctionTool, ToolContext
from stepwell.errors import InvalidToolError
from stepwell.testing import ScriptedModel, call


@dataclass
class Point:
    x: int
    y: int = 0


def move(
    point: Point,
    by: Annotated[int, Field(description="Steps.", ge=1)],
    towards: Literal["left", "right"] = "left",
    context: ToolContext | None = None,
) -> str:
    """Move a point."""
    sign = -1 if towards == "left" else 1
    return f"{point.x + sign * by},{point.y} in {'' if context is None else context.call_id}"


class Mover(BaseTool):
    name = "mover"

    def __call__(self, point: Point) -> str:
        """Move."""
        return str(point.x)


def test_postponed_hints_make_the_same_schema() -> None:
    schema = FunctionTool(move).schema.parameters

    assert schema["required"] == ["point", "by"]
    assert list(schema["properties"]) == ["point", "by", "towards"]
    assert schema["properties"]["by"]["description"] == "Steps."
    assert schema["properties"]["towards"]["enum"] == ["left", "right"]


def test_postponed_hints_on_a_tool_class() -> None:
    assert Mover().validate({"point": {"x": 1}}) == {"point": Point(1)}


async def test_postponed_hints_give_typed_arguments_and_the_context() -> None:
    asked = call("move", point={"x": 5}, by=2, towards="right", id="c1")
    state = await Agent(ScriptedModel([asked, "ok"]), tools=[move]).run("Go")

    assert state.steps[0].step.tool_executions[0].text == "7,0 in c1"


def test_a_type_that_only_the_function_knows_is_refused_with_advice() -> None:
    @dataclass
    class Local:
        x: int

    def take(local: Local) -> None: ...

    with pytest.raises(InvalidToolError, match=r"'take' cannot be resolved.*Local.*module level"):
        FunctionTool(take)

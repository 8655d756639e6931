"""B170: one rule for what a tool's result looks like, in the state and to the model."""

import datetime
import json
import types
from collections import UserDict
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel, SecretStr

from stepwell import Agent, AgentState, ErrorPolicy
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools.result_text import json_value


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass(slots=True)
class SlottedPoint:
    x: int


class Model(BaseModel):
    name: str
    point: Point


class Record(msgspec.Struct):
    name: str
    count: int


class Plain:
    def __init__(self) -> None:
        self.name = "Ada"
        self._hidden = "secret"


class Pair(NamedTuple):
    one: int
    two: str


async def result_of(value: Any) -> tuple[ToolExecution, str]:
    agent = Agent(
        ScriptedModel([call("give", id="c1"), "ok"]),
        tools=[MockTool.returning("give", value)],
        error_policy=ErrorPolicy.retry_tool_errors(3),
    )
    state = await agent.run("Go")
    result = state.messages[2].tool_result
    assert result is not None
    return state.steps[0].step.tool_executions[0], result.content


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain text", "plain text"),
        ("", ""),
        ('{"kept": "as is"}', '{"kept": "as is"}'),
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        (1.5, "1.5"),
        (2**70, str(2**70)),
        (Colour.RED, "red"),
        (Decimal("1.50"), "1.50"),
        (datetime.date(2026, 1, 31), "2026-01-31"),
        (b"bytes", "bytes"),
        (SecretStr("hunter2"), "**********"),
    ],
)
async def test_b170_text_stays_and_plain_values_become_words(value: Any, text: str) -> None:
    execution, shown = await result_of(value)

    assert execution.outcome is ToolOutcome.COMPLETED
    assert (execution.text, shown) == (text, text)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"a": [1, None]}, {"a": [1, None]}),
        ({"ü": "é"}, {"ü": "é"}),
        ([1, "x"], [1, "x"]),
        ((1, 2), [1, 2]),
        ({1: "one"}, {"1": "one"}),
        ([2**70], [2**70]),
        (Pair(1, "x"), [1, "x"]),
        (Point(1), {"x": 1, "y": 0}),
        (SlottedPoint(1), {"x": 1}),
        (Model(name="n", point=Point(2)), {"name": "n", "point": {"x": 2, "y": 0}}),
        (Plain(), {"name": "Ada"}),
        (Record("r", 2), {"name": "r", "count": 2}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (UserDict({"a": 1}), {"a": 1}),
    ],
)
async def test_b170_mappings_lists_and_objects_become_json(value: Any, data: Any) -> None:
    execution, shown = await result_of(value)

    assert execution.outcome is ToolOutcome.COMPLETED
    assert execution.value == data
    assert json.loads(execution.text) == data
    assert shown == execution.text


async def test_b170_letters_of_any_language_stay_readable() -> None:
    _, shown = await result_of({"größe": "日本"})

    assert "größe" in shown
    assert "日本" in shown


async def test_b170_a_child_state_is_shown_as_its_final_text() -> None:
    child: AgentState = await Agent(ScriptedModel(["The child says hi."])).run("Go")
    execution, shown = await result_of(child)

    assert shown == "The child says hi."
    assert execution.value == "The child says hi."


async def test_b170_an_error_is_prefixed_and_flagged() -> None:
    agent = Agent(
        ScriptedModel([call("give", id="c1"), "ok"]),
        tools=[MockTool.raising("give", ValueError("no"))],
        error_policy=ErrorPolicy.retry_tool_errors(3),
    )
    state = await agent.run("Go")
    result = state.messages[2].tool_result

    assert result is not None
    assert result.is_error
    assert result.content == "Error: tool 'give' failed: ValueError: no"


async def test_a_value_that_contains_itself_is_an_error_result_not_a_crash() -> None:
    loop: list[Any] = []
    loop.append(loop)
    execution, shown = await result_of(loop)

    assert execution.outcome is ToolOutcome.RAISED
    assert "Circular reference" in shown


async def test_the_recorded_value_does_not_change_when_the_tool_changes_its_own() -> None:
    kept = {"count": 1}
    execution, _ = await result_of(kept)
    kept["count"] = 2

    assert execution.value == {"count": 1}


async def test_a_text_that_is_no_valid_unicode_does_not_lose_the_step() -> None:
    # What os.listdir gives for a file name that is not UTF-8.
    execution, shown = await result_of(["caf\udce9.txt"])

    assert execution.call.id == "c1"
    assert "caf" in shown


def test_numbers_that_json_has_not_are_words_at_any_depth() -> None:
    assert json_value({"a": [float("nan"), {"b": float("-inf")}, 1.5]}) == {
        "a": ["nan", {"b": "-inf"}, 1.5]
    }


def test_a_state_within_a_result_is_its_final_response_and_not_its_messages() -> None:
    state = AgentState.empty().with_user_message("s3cret")
    assert json_value({"child": [state]}) == {"child": [None]}

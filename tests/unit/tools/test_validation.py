"""Arguments are checked before the call, and the model is told what to send instead."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, BeforeValidator, Field

from stepwell import Agent, AgentState, AgentStatus, ErrorPolicy, FunctionTool, StopReason, ToolCall
from stepwell.errors import ErrorType, InvalidToolArgumentsError
from stepwell.state import ToolExecution, ToolOutcome
from stepwell.testing import MockTool, ScriptedModel, call

RETRY = ErrorPolicy.retry_tool_errors(3)


class Line(BaseModel):
    item: str
    count: int = Field(ge=1)


class Book:
    """Remembers the calls that reached the function."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def order(self, item: str, count: int, mode: Literal["fast", "slow"] = "slow") -> str:
        self.calls.append({"item": item, "count": count, "mode": mode})
        return "ordered"


async def run_with(function: Callable[..., Any], asked: ToolCall) -> AgentState:
    return await Agent(ScriptedModel([asked, "ok"]), tools=[function], error_policy=RETRY).run("Go")


def first_execution(state: AgentState) -> ToolExecution:
    return state.steps[0].step.tool_executions[0]


async def test_b160_missing_arguments_are_all_listed() -> None:
    book = Book()
    state = await run_with(book.order, call("order", mode="fast", id="c1"))
    execution = first_execution(state)

    assert execution.outcome is ToolOutcome.INVALID
    assert "missing required arguments: item, count" in execution.text
    assert "It takes: item, count, mode." in execution.text
    assert execution.text.startswith("Error: ")
    assert execution.error is not None
    assert (execution.error.type, execution.error.tool_name) == (ErrorType.VALIDATION, "order")
    assert book.calls == []
    assert state.status is AgentStatus.COMPLETED


async def test_b160_the_model_sees_the_complaint_as_an_error_result() -> None:
    state = await run_with(Book().order, call("order", id="c1"))
    result = state.messages[2].tool_result

    assert result is not None
    assert (result.call_id, result.tool_name, result.is_error) == ("c1", "order", True)
    assert "missing required arguments: item, count" in result.content


async def test_b175_bad_arguments_stop_the_run_by_default_and_say_how_to_change_that() -> None:
    state = await Agent(ScriptedModel([call("order")]), tools=[Book().order]).run("Go")

    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.ERROR
    assert "order" in state.explain()
    assert "retry_tool_errors" in state.explain()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"item": "tea", "count": "many"}, "count: Input should be a valid integer"),
        ({"item": "tea", "count": "many"}, "(got 'many')"),
        ({"item": "tea", "count": 1, "mode": "warp"}, "mode: Input should be 'fast' or 'slow'"),
        ({"item": "tea", "count": 1, "colour": "red"}, "unknown arguments: colour"),
        ({"item": "tea", "count": None}, "count: Input should be a valid integer"),
        ({"count": "x", "colour": "red"}, "missing required arguments: item"),
        ({"count": "x", "colour": "red"}, "unknown arguments: colour"),
        ({"count": "x", "colour": "red"}, "count: Input should be a valid integer"),
    ],
)
def test_b175_the_complaint_names_what_is_wrong(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidToolArgumentsError) as raised:
        FunctionTool(Book().order).validate(arguments)

    assert message in str(raised.value)
    assert "Invalid arguments for tool 'order'" in str(raised.value)


def test_b175_a_fault_inside_a_nested_value_is_named_by_its_place() -> None:
    def order(lines: list[Line]) -> int:
        return len(lines)

    with pytest.raises(InvalidToolArgumentsError, match=r"lines\.1\.count.*greater than or equal"):
        FunctionTool(order).validate(
            {"lines": [{"item": "a", "count": 1}, {"item": "b", "count": 0}]}
        )


def test_b175_a_long_wrong_value_is_clipped_in_the_complaint() -> None:
    with pytest.raises(InvalidToolArgumentsError) as raised:
        FunctionTool(Book().order).validate({"item": "tea", "count": "9x" * 5000})

    assert len(str(raised.value)) < 400


async def test_b175_arguments_that_are_no_json_object_are_shown_to_the_model() -> None:
    book = Book()
    asked = ToolCall(id="c1", name="order", malformed='{"item": "tea", ')
    execution = first_execution(await run_with(book.order, asked))

    assert execution.outcome is ToolOutcome.INVALID
    assert "not a JSON object" in execution.text
    assert '{"item": "tea", ' in execution.text
    assert book.calls == []


def exploding(value: Any) -> Any:
    raise KeyError("no such unit")


async def test_a_validator_that_raises_something_odd_still_becomes_a_result() -> None:
    def weigh(unit: Annotated[str, BeforeValidator(exploding)]) -> str:
        return unit

    state = await run_with(weigh, call("weigh", unit="kg", id="c1"))

    assert len(state.steps[0].step.tool_executions) == 1
    assert first_execution(state).is_error
    assert "no such unit" in first_execution(state).text
    assert state.status is AgentStatus.COMPLETED


class Unchecked(MockTool):
    """A tool of one's own whose check raises whatever it likes."""

    def validate(self, arguments: Any) -> dict[str, Any]:
        raise RuntimeError("cannot check")


async def test_a_tool_whose_check_raises_does_not_lose_the_other_results() -> None:
    calls = [call("good", id="c1"), call("bad", id="c2")]
    tools = [MockTool.returning("good", "fine"), Unchecked("bad", lambda: "never")]
    agent = Agent(ScriptedModel([calls, "ok"]), tools=tools, error_policy=RETRY)
    state = await agent.run("Go")

    texts = [execution.text for execution in state.steps[0].step.tool_executions]
    assert texts[0] == "fine"
    assert "cannot check" in texts[1]


def mutates_dict(data: dict[str, Any]) -> str:
    data["seen"] = True
    data["inner"]["seen"] = True
    return "ok"


def mutates_list(data: list[Any]) -> str:
    data.append("seen")
    data[0]["seen"] = True
    return "ok"


def mutates_any(data: Any) -> str:
    data["inner"]["seen"] = True
    return "ok"


def mutates_typed_dict_of_any(data: dict[str, dict[str, Any]]) -> str:
    data["inner"]["deep"]["seen"] = True
    return "ok"


class Wrapper(BaseModel):
    inner: Any


def mutates_model(data: Wrapper) -> str:
    data.inner["seen"] = True
    return "ok"


@pytest.mark.parametrize(
    ("function", "data"),
    [
        (mutates_dict, {"inner": {}}),
        (mutates_list, [{}]),
        (mutates_any, {"inner": {}}),
        (mutates_typed_dict_of_any, {"inner": {"deep": {}}}),
        (mutates_model, {"inner": {}}),
    ],
)
async def test_a_tool_that_changes_its_arguments_never_changes_the_history(
    function: Callable[..., Any], data: Any
) -> None:
    state = await run_with(function, call(function.__name__, data=data, id="c1"))

    assert first_execution(state).text == "ok"
    assert "seen" not in repr(state.messages[1].tool_calls[0].arguments)

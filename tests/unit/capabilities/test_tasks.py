"""``todo_write``: which plans are accepted, what the state keeps, and what is shown."""

from collections.abc import Iterable
from typing import Any

import pytest

from stepwell import Agent, AgentState, AgentStatus, ConfigurationError, ToolContext, tool
from stepwell.capabilities.tasks import (
    Task,
    TaskStatus,
    TodoPolicy,
    TodoWriteTool,
    UseTaskPlanning,
    render_tasks,
    summarize_tasks,
    tasks_of,
)
from stepwell.models import ToolSchema
from stepwell.models.wire.schema import anthropic_form, strict_form
from stepwell.state import ToolOutcome
from stepwell.testing import MockTool, ScriptedModel, call

READ = {"content": "Read the code", "status": "completed", "activeForm": "Reading the code"}
TEST = {"content": "Run the tests", "status": "in_progress", "activeForm": "Running the tests"}
SHIP = {"content": "Ship it", "status": "pending", "activeForm": "Shipping it"}


async def written(*plans: Any, policy: TodoPolicy | None = None) -> AgentState:
    """The state after one response that wrote these plans, one call each."""
    calls = [call("todo_write", todos=plan) for plan in plans]
    agent = Agent(ScriptedModel([calls, "Done."]), capabilities=[UseTaskPlanning(policy)])
    state = await agent.run("Work.")
    assert state.status is AgentStatus.COMPLETED
    return state


async def refused(plan: Any, policy: TodoPolicy | None = None) -> str:
    """What the model is told of a plan that is not accepted."""
    state = await written(plan, policy=policy)
    execution = state.steps[0].step.tool_executions[0]
    assert execution.outcome is ToolOutcome.FAILED
    assert "tasks" not in state.metadata
    assert not state.had_errors
    return execution.text


def many(count: int, status: str = "pending") -> list[dict[str, str]]:
    return [{**SHIP, "content": f"Part {n}", "status": status} for n in range(count)]


def without(task: dict[str, str], field: str) -> dict[str, str]:
    return {key: value for key, value in task.items() if key != field}


# What is accepted


async def test_b212_an_accepted_plan_is_in_the_metadata() -> None:
    state = await written([READ, TEST, SHIP])

    assert state.metadata["tasks"] == [READ, TEST, SHIP]


async def test_b210_the_model_sees_counts_and_the_rendered_plan() -> None:
    state = await written([READ, TEST, SHIP])

    assert state.steps[0].step.tool_executions[0].text == (
        "3 tasks: 1 completed, 1 in progress, 1 pending\n"
        "1. ● Read the code\n"
        "2. ◐ Running the tests\n"
        "3. ○ Ship it"
    )


async def test_b209_white_space_around_the_fields_is_trimmed() -> None:
    padded = {key: f"  {value}\n" for key, value in TEST.items()}

    state = await written([padded])

    assert state.metadata["tasks"] == [TEST]


async def test_fields_that_are_not_asked_for_are_left_out() -> None:
    state = await written([{**SHIP, "priority": "high", "id": "7"}])

    assert state.metadata["tasks"] == [SHIP]


async def test_b209_an_empty_list_clears_the_plan() -> None:
    state = await written([SHIP], [])

    assert state.metadata["tasks"] == []
    assert state.steps[0].step.tool_executions[1].text == "(no tasks)"


async def test_text_that_can_not_be_encoded_does_not_reach_the_state() -> None:
    state = await written([{**SHIP, "content": "broken \ud800"}])

    assert state.metadata["tasks"][0]["content"] == "broken \ufffd"


# What is refused


@pytest.mark.parametrize(
    ("task", "field"),
    [
        (without(SHIP, "content"), "content"),
        ({**SHIP, "content": ""}, "content"),
        ({**SHIP, "content": " \n "}, "content"),
        ({**SHIP, "content": 7}, "content"),
        ({**SHIP, "content": None}, "content"),
        (without(SHIP, "status"), "status"),
        ({**SHIP, "status": "done"}, "status"),
        ({**SHIP, "status": None}, "status"),
        ({**SHIP, "status": ["pending"]}, "status"),
        (without(SHIP, "activeForm"), "activeForm"),
        ({**SHIP, "activeForm": ""}, "activeForm"),
        ({**SHIP, "activeForm": "\t"}, "activeForm"),
        ({**SHIP, "activeForm": {}}, "activeForm"),
    ],
)
async def test_b206_a_bad_field_is_named_with_the_position_of_its_task(
    task: Any, field: str
) -> None:
    """B206, B207, B208: content, status and activeForm."""
    told = await refused([READ, task])

    assert f"task 2: {field} is" in told
    assert "task 1" not in told


async def test_an_unknown_status_is_told_with_the_known_ones() -> None:
    told = await refused([{**SHIP, "status": "done"}])

    assert "task 1: status is 'done'; use one of pending, in_progress, completed" in told


async def test_all_that_is_wrong_is_told_at_once() -> None:
    told = await refused([{}, "Ship it", {**SHIP, "activeForm": ""}])

    assert "task 1: content is missing" in told
    assert "status is missing" in told
    assert "task 2 is not an object with content, status and activeForm" in told
    assert "task 3: activeForm is missing or empty" in told


@pytest.mark.parametrize("todos", ["Ship it", {"content": "Ship it"}, 3, None])
async def test_what_is_no_list_is_refused(todos: Any) -> None:
    assert "pass the complete list of tasks" in await refused(todos)


async def test_a_call_without_arguments_is_a_failure_and_not_an_error_of_the_run() -> None:
    model = ScriptedModel([call("todo_write"), "Done."])

    state = await Agent(model, capabilities=[UseTaskPlanning()]).run("Work.")

    assert "todos is missing" in state.steps[0].step.tool_executions[0].text
    assert state.status is AgentStatus.COMPLETED


async def test_b209_twenty_tasks_are_fine_and_twenty_one_are_not() -> None:
    assert len(tasks_of(await written(many(20)))) == 20
    assert "21 tasks are too many, at most 20" in await refused(many(21))


async def test_b209_one_task_in_progress_is_fine_and_two_are_not() -> None:
    assert len(tasks_of(await written(many(1, "in_progress")))) == 1
    assert "2 tasks are in_progress, at most 1" in await refused(many(2, "in_progress"))


async def test_b211_the_limits_come_from_the_policy() -> None:
    policy = TodoPolicy(max_items=2, max_in_progress=2)

    assert len(tasks_of(await written(many(2, "in_progress"), policy=policy))) == 2
    assert "3 tasks are too many, at most 2" in await refused(many(3), policy)
    three = TodoPolicy(max_in_progress=3)
    assert "4 tasks are in_progress, at most 3" in await refused(many(4, "in_progress"), three)


# What the state keeps


async def test_a_plan_replaces_the_one_before() -> None:
    agent = Agent(
        ScriptedModel(
            [call("todo_write", todos=[READ]), call("todo_write", todos=[SHIP]), "Done."]
        ),
        capabilities=[UseTaskPlanning()],
    )

    assert (await agent.run("Work.")).metadata["tasks"] == [SHIP]


async def test_b212_the_last_of_several_plans_in_one_response_stays() -> None:
    state = await written([READ], [TEST], [SHIP])

    assert state.metadata["tasks"] == [SHIP]


async def test_the_next_call_of_the_same_response_sees_the_plan() -> None:
    @tool
    def progress(context: ToolContext) -> str:
        """Tell how far the work is."""
        return summarize_tasks(tasks_of(context.state))

    calls = [call("todo_write", todos=[TEST]), call("progress")]
    model = ScriptedModel([calls, "Done."])

    state = await Agent(model, tools=[progress], capabilities=[UseTaskPlanning()]).run("Work.")

    told = state.steps[0].step.tool_executions[1].text
    assert told == "1 task: 0 completed, 1 in progress, 0 pending"


async def test_b212_a_refused_plan_and_other_tools_leave_the_plan_as_it_was() -> None:
    other = MockTool.returning("look", "seen")
    calls = [call("todo_write", todos=[TEST]), call("todo_write", todos=[{}]), call("look")]
    agent = Agent(ScriptedModel([calls, "Done."]), tools=[other], capabilities=[UseTaskPlanning()])

    assert (await agent.run("Work.")).metadata["tasks"] == [TEST]


async def test_the_plan_stays_over_executions_and_is_read_from_the_state() -> None:
    agent = Agent(
        ScriptedModel([call("todo_write", todos=[TEST]), "Begun.", "Still at it."]),
        capabilities=[UseTaskPlanning()],
    )
    first = await agent.run("Work.")

    second = await agent.run(first.with_user_message("And?"))

    assert second.execution_count == 2
    assert tasks_of(second) == (
        Task(
            content="Run the tests",
            status=TaskStatus.IN_PROGRESS,
            active_form="Running the tests",
        ),
    )


@pytest.mark.parametrize("stored", [None, "buy milk", 3, [{"content": "Ship"}], {"a": 1}])
def test_what_is_no_plan_counts_as_none(stored: Any) -> None:
    assert tasks_of(AgentState.empty().with_metadata({"tasks": stored})) == ()


# Rendering


def tasks(*items: dict[str, str]) -> Iterable[Task]:
    return tasks_of(AgentState.empty().with_metadata({"tasks": list(items)}))


def test_b210_nothing_is_rendered_as_no_tasks() -> None:
    assert render_tasks(()) == "(no tasks)"
    assert summarize_tasks(()) == "(no tasks)"


def test_each_task_is_one_line_whatever_its_words() -> None:
    broken = {**SHIP, "content": "Ship\n  it"}

    assert render_tasks(tuple(tasks(READ, broken))) == "1. ● Read the code\n2. ○ Ship it"


def test_b210_the_summary_counts_each_status() -> None:
    found = tuple(tasks(READ, READ, TEST, SHIP))

    assert summarize_tasks(found) == "4 tasks: 2 completed, 1 in progress, 1 pending"


# What the model and the developer are told


def test_the_schema_names_every_field_and_every_status() -> None:
    schema = TodoWriteTool().schema

    task = schema.parameters["properties"]["todos"]["items"]
    assert isinstance(schema, ToolSchema)
    assert task["required"] == ["content", "status", "activeForm"]
    assert task["properties"]["status"]["enum"] == ["pending", "in_progress", "completed"]
    assert schema.parameters["required"] == ["todos"]


def test_providers_can_hold_the_model_to_the_schema() -> None:
    parameters = TodoWriteTool().schema.parameters

    assert strict_form(parameters, True)[1]
    assert anthropic_form(parameters) is not None


def test_the_description_tells_the_limits() -> None:
    described = TodoWriteTool(TodoPolicy(max_items=7, max_in_progress=3)).schema.description

    assert "At most 7 tasks" in described
    assert "at most 3 at a time" in described


@pytest.mark.parametrize("name", ["max_items", "max_in_progress"])
@pytest.mark.parametrize("value", [0, -1, 2.5, None, True, "3"])
def test_a_limit_must_be_a_number_above_zero(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"TodoPolicy.{name} must be"):
        TodoPolicy(**{name: value})


@pytest.mark.parametrize("name", ["render_every_steps", "reminder_every_steps"])
@pytest.mark.parametrize("value", [-1, 2.5, False, "3"])
def test_a_cadence_must_be_a_number_of_steps(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"TodoPolicy.{name} must be"):
        TodoPolicy(**{name: value})


@pytest.mark.parametrize("make", [UseTaskPlanning, TodoWriteTool])
def test_a_policy_of_another_kind_is_a_mistake(make: Any) -> None:
    with pytest.raises(ConfigurationError, match="must be a TodoPolicy"):
        make({"max_items": 3})

"""``user_input``: the run pauses for a person and goes on with the answer."""

from typing import Any

import pytest

from stepwell import Agent, AgentState, AgentStatus, ConfigurationError, StepwellError, StopReason
from stepwell.capabilities.user_input import UserInputTool, UseUserInput
from stepwell.state import PendingKind, ToolOutcome
from stepwell.testing import MockTool, ScriptedModel, call
from tests.answers import answer_call

CITY = call("user_input", id="city", question="Which city?")
DAY = call("user_input", id="day", question="Which day?", options=["Today", "Tomorrow"])


def agent_with(*turns: Any, tools: tuple[Any, ...] = ()) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(turns)
    return Agent(model, tools=tools, capabilities=[UseUserInput()]), model


def results(model: ScriptedModel) -> dict[str, str]:
    """What the last request told of each call."""
    found = (message.tool_result for message in model.requests[-1].messages)
    return {result.call_id: result.content for result in found if result is not None}


async def test_a_question_pauses_the_run() -> None:
    agent, model = agent_with(CITY, "Sunny.")

    state = await agent.run("What is the weather?")

    assert state.status is AgentStatus.PAUSED
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.INPUT_REQUIRED
    assert len(model.requests) == 1
    (asked,) = state.pending
    assert (asked.kind, asked.prompt, asked.call_id) == (
        PendingKind.QUESTION,
        "Which city?",
        "city",
    )
    assert asked.tool_name == "user_input"
    assert asked.details == {}
    assert "Which city?" in state.explain()


async def test_the_answer_is_the_result_of_the_call_and_the_run_goes_on() -> None:
    agent, model = agent_with(CITY, "Sunny in Oslo.")
    paused = await agent.run("What is the weather?")

    state = await agent.run(answer_call(paused, "city", "Oslo"))

    assert state.status is AgentStatus.COMPLETED
    assert state.final_response == "Sunny in Oslo."
    assert results(model) == {"city": "Oslo"}
    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.COMPLETED
    assert state.pending == ()


async def test_the_same_execution_goes_on_and_its_steps_count() -> None:
    agent, _ = agent_with(CITY, "Sunny.")
    paused = await agent.run("What is the weather?")

    state = await agent.run(answer_call(paused, "city", "Oslo"))

    assert paused.execution is not None
    assert state.execution is not None
    assert state.execution.id == paused.execution.id
    assert state.execution_count == 1
    assert state.step_count == 2


async def test_an_answer_may_be_given_to_another_agent_of_the_same_kind() -> None:
    asking, _ = agent_with(CITY)
    answering, model = agent_with("Sunny.")
    paused = await asking.run("What is the weather?")

    state = await answering.run(answer_call(paused, "city", {"name": "Oslo", "country": "NO"}))

    assert state.final_response == "Sunny."
    assert results(model) == {"city": '{"name":"Oslo","country":"NO"}'}


async def test_a_run_without_an_answer_stays_paused() -> None:
    agent, model = agent_with(CITY, "Sunny.")
    paused = await agent.run("What is the weather?")

    state = await agent.run(paused)

    assert state.status is AgentStatus.PAUSED
    assert [asked.call_id for asked in state.pending] == ["city"]
    assert len(model.requests) == 1


async def test_an_answer_to_another_call_is_an_error_that_names_what_waits() -> None:
    agent, _ = agent_with(CITY)
    paused = await agent.run("What is the weather?")

    with pytest.raises(StepwellError, match=r"'town'.*waiting: q_\w+ \(question of call city"):
        paused.with_answer("town", "Oslo")


# Options


async def test_options_are_in_the_details() -> None:
    agent, _ = agent_with(DAY)

    state = await agent.run("What is the weather?")

    assert state.pending[0].details == {"options": ["Today", "Tomorrow"]}


async def test_empty_options_are_left_out() -> None:
    asked = call("user_input", question=" Which day? ", options=[" Today ", "", "  "])
    agent, _ = agent_with(asked)

    state = await agent.run("What is the weather?")

    assert state.pending[0].prompt == "Which day?"
    assert state.pending[0].details == {"options": ["Today"]}


@pytest.mark.parametrize("options", [None, [], [""]])
async def test_without_options_there_are_no_details(options: Any) -> None:
    agent, _ = agent_with(call("user_input", question="Which day?", options=options))

    state = await agent.run("What is the weather?")

    assert state.pending[0].details == {}


async def test_an_answer_need_not_be_one_of_the_options() -> None:
    agent, model = agent_with(DAY, "Fine.")
    paused = await agent.run("What is the weather?")

    await agent.run(answer_call(paused, "day", "On Sunday"))

    assert results(model) == {"day": "On Sunday"}


# Bad questions


@pytest.mark.parametrize("question", ["", "  ", "\n"])
async def test_an_empty_question_is_a_failure_and_the_run_goes_on(question: str) -> None:
    agent, model = agent_with(call("user_input", id="c", question=question), "Never mind.")

    state = await agent.run("What is the weather?")

    assert state.status is AgentStatus.COMPLETED
    assert state.pending == ()
    assert results(model)["c"].startswith("Error: the question is empty")
    assert not state.had_errors


# Several calls in one response


async def paused_with_two() -> tuple[Agent, ScriptedModel, AgentState]:
    agent, model = agent_with([CITY, DAY], "Sunny.")
    return agent, model, await agent.run("What is the weather?")


async def test_two_questions_of_one_response_both_wait() -> None:
    _, _, state = await paused_with_two()

    assert state.status is AgentStatus.PAUSED
    assert [asked.call_id for asked in state.pending] == ["city", "day"]
    assert state.stop is not None
    assert state.stop.stop_reason is StopReason.INPUT_REQUIRED


async def test_two_questions_both_wait_however_few_calls_may_run_at_once() -> None:
    model = ScriptedModel([[CITY, DAY], "Sunny."])
    agent = Agent(model, capabilities=[UseUserInput()], max_parallel_tools=1)

    state = await agent.run("What is the weather?")

    assert [asked.call_id for asked in state.pending] == ["city", "day"]


async def test_the_run_stays_paused_until_every_question_has_its_answer() -> None:
    agent, model, state = await paused_with_two()

    state = await agent.run(answer_call(state, "day", "Today"))
    assert state.status is AgentStatus.PAUSED
    assert len(model.requests) == 1
    state = await agent.run(answer_call(state, "city", "Oslo"))

    assert state.status is AgentStatus.COMPLETED
    assert results(model) == {"city": "Oslo", "day": "Today"}


async def test_both_answers_can_be_given_before_the_run_goes_on() -> None:
    agent, model, state = await paused_with_two()

    state = await agent.run(answer_call(answer_call(state, "city", "Oslo"), "day", "Today"))

    assert state.final_response == "Sunny."
    assert results(model) == {"city": "Oslo", "day": "Today"}


@pytest.mark.parametrize(
    "parallel",
    [
        True,
        False,
    ],
)
async def test_a_question_does_not_keep_the_other_calls_from_running(parallel: bool) -> None:
    look = MockTool("look", lambda: "seen", parallel=parallel)
    agent, model = agent_with([CITY, call("look", id="look"), DAY], "Sunny.", tools=(look,))

    state = await agent.run("What is the weather?")

    assert len(look.calls) == 1
    assert [asked.call_id for asked in state.pending] == ["city", "day"]
    await agent.run(answer_call(answer_call(state, "city", "Oslo"), "day", "Today"))
    assert results(model) == {"city": "Oslo", "look": "seen", "day": "Today"}
    assert len(look.calls) == 1


# What the model and the developer are told


def test_the_model_is_told_what_the_arguments_mean() -> None:
    schema = UserInputTool().schema

    assert schema.name == "user_input"
    assert schema.description
    assert schema.parameters["required"] == ["question"]
    assert schema.parameters["properties"]["options"]["description"]


async def test_the_description_can_be_given() -> None:
    model = ScriptedModel(["Done."])

    await Agent(model, capabilities=[UseUserInput(description="Ask the boss.")]).run("Go.")

    assert model.requests[0].tools[0].description == "Ask the boss."


@pytest.mark.parametrize("description", ["", " ", None, 3])
def test_a_description_that_says_nothing_is_a_mistake(description: Any) -> None:
    with pytest.raises(ConfigurationError, match="description"):
        UseUserInput(description=description)

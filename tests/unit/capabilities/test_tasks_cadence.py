"""When the model is shown its plan, reminded of it, or told that it could make one."""

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import Agent, AgentState, HookContext, HookTrigger, Message, ModelRequest, make_hook
from stepwell.agent import AgentPlan
from stepwell.capabilities.tasks import TodoPolicy, UseTaskPlanning
from stepwell.capabilities.tasks.capability import HINT, REMINDER
from stepwell.drivers import ReActDriver
from stepwell.messages import History
from stepwell.testing import MockTool, ScriptedModel, call

OPEN = [{"content": "Ship it", "status": "pending", "activeForm": "Shipping it"}]
DONE = [{"content": "Ship it", "status": "completed", "activeForm": "Shipping it"}]
SHOWN = "1. ○ Ship it"
NEVER = {"render_every_steps": None, "reminder_every_steps": None}

PLAN = call("todo_write", todos=OPEN)
FINISH = call("todo_write", todos=DONE)
CLEAR = call("todo_write", todos=[])
REFUSED = call("todo_write", todos=[{}])
LOOK = call("look")


def policy(**cadence: int | None) -> TodoPolicy:
    return TodoPolicy(**{**NEVER, **cadence})


def agent_for(model: ScriptedModel, policy: TodoPolicy | None, **settings: Any) -> Agent:
    return Agent(
        model,
        tools=[MockTool("look", lambda: "seen", effect="pure")],
        capabilities=[UseTaskPlanning(policy)],
        max_steps=100,
        max_tokens=None,
        **settings,
    )


def notes(model: ScriptedModel) -> list[str]:
    """What each request said for its turn only."""
    return ["" if r.instruction is None else r.instruction.text for r in model.requests]


def requests_with(text: str, model: ScriptedModel) -> list[int]:
    """The numbers of the requests that said this."""
    return [number for number, note in enumerate(notes(model), start=1) if text in note]


async def run(turns: list[Any], policy: TodoPolicy | None = None) -> tuple[AgentState, Any]:
    model = ScriptedModel([*turns, "Done."])
    state = await agent_for(model, policy).run("Work.")
    assert len(model.requests) == len(turns) + 1
    return state, model


# Showing the plan


async def test_the_plan_is_shown_at_every_so_many_steps() -> None:
    _, model = await run([PLAN, *[LOOK] * 7], policy(render_every_steps=3))

    assert requests_with(SHOWN, model) == [3, 6, 9]
    assert "1 task: 0 completed, 0 in progress, 1 pending" in notes(model)[2]


async def test_a_completed_plan_is_shown_as_well() -> None:
    _, model = await run([FINISH, LOOK], policy(render_every_steps=2))

    assert requests_with("1. ● Ship it", model) == [2]


async def test_without_a_plan_nothing_is_shown() -> None:
    _, model = await run([LOOK] * 5, policy(render_every_steps=1))

    assert notes(model) == [""] * 6


async def test_what_is_shown_is_not_stored_and_not_put_into_the_conversation() -> None:
    state, model = await run([PLAN, LOOK, LOOK], policy(render_every_steps=1))

    assert requests_with("automatic note", model) == [2, 3, 4]
    assert not [m for m in state.messages if "automatic note" in m.text]
    for earlier, later in pairwise(model.requests):
        assert list(later.messages)[: len(earlier.messages)] == list(earlier.messages)
        assert later.context == earlier.context


async def test_by_default_the_plan_is_shown_at_the_tenth_step() -> None:
    _, model = await run([PLAN, *[LOOK] * 9])

    assert requests_with(SHOWN, model) == [10]


@pytest.mark.parametrize("never", [None, 0])
async def test_none_and_zero_mean_never(never: int | None) -> None:
    quiet = TodoPolicy(render_every_steps=never, reminder_every_steps=never)

    _, model = await run([PLAN, *[LOOK] * 30], quiet)

    assert notes(model) == [""] * 32


async def test_a_new_execution_begins_with_the_open_plan() -> None:
    model = ScriptedModel([PLAN, "Begun.", LOOK, "Still open.", FINISH, "Done.", "Hello."])
    agent = agent_for(model, policy(render_every_steps=50))
    state = await agent.run("Work.")

    state = await agent.run(state.with_user_message("And?"))
    state = await agent.run(state.with_user_message("Finish it."))
    await agent.run(state.with_user_message("Hello?"))

    assert requests_with(SHOWN, model) == [3, 5]


# Reminding


async def test_a_plan_that_is_not_touched_is_reminded_of_again_and_again() -> None:
    _, model = await run([PLAN, *[LOOK] * 12], policy(reminder_every_steps=3))

    reminded = requests_with(REMINDER, model)
    assert reminded[:2] == [5, 10]
    assert reminded[2:] == [13]
    assert requests_with(SHOWN, model) == []


async def test_reminders_are_never_closer_than_the_cadence() -> None:
    for before in range(6):
        turns = [*[LOOK] * before, PLAN, *[LOOK] * 30]
        _, model = await run(turns, policy(reminder_every_steps=4))

        reminded = requests_with(REMINDER, model)
        gaps = [b - a for a, b in pairwise(reminded)]
        assert reminded[0] == before + 1 + 4 + 1
        assert all(4 <= gap < 8 for gap in gaps)
        assert len(gaps) >= 4


async def test_using_the_tool_starts_the_count_anew() -> None:
    _, model = await run([PLAN, LOOK, LOOK, PLAN, LOOK, LOOK, LOOK], policy(reminder_every_steps=3))

    assert requests_with(REMINDER, model) == [8]


async def test_a_refused_plan_does_not_count_as_use() -> None:
    _, model = await run([PLAN, LOOK, REFUSED, LOOK], policy(reminder_every_steps=3))

    assert requests_with(REMINDER, model) == [5]


async def test_finished_tasks_need_no_reminder_and_no_hint() -> None:
    _, model = await run([FINISH, *[LOOK] * 10], policy(reminder_every_steps=2))

    assert notes(model) == [""] * 12


async def test_steps_of_earlier_executions_count() -> None:
    model = ScriptedModel([PLAN, "One.", LOOK, "Two.", LOOK, "Three."])
    agent = agent_for(model, policy(reminder_every_steps=4))
    state = await agent.run("Work.")

    state = await agent.run(state.with_user_message("And?"))
    await agent.run(state.with_user_message("And?"))

    assert requests_with(REMINDER, model) == [6]


async def test_short_executions_are_reminded_once_of_an_old_plan() -> None:
    model = ScriptedModel([PLAN, *["Hello."] * 12])
    agent = agent_for(model, policy(reminder_every_steps=3))
    state = await agent.run("Work.")
    for _ in range(11):
        state = await agent.run(state.with_user_message("And?"))

    assert requests_with(REMINDER, model) == [5]


async def test_a_plan_made_in_an_earlier_execution_is_found_in_its_messages() -> None:
    model = ScriptedModel([*[LOOK] * 5, PLAN, REFUSED, "One.", REFUSED, LOOK, "Two."])
    agent = agent_for(model, policy(reminder_every_steps=4))
    state = await agent.run("Work.")

    await agent.run(state.with_user_message("And?"))

    # Behind the plan: a refused plan, "One.", another refused plan, and a look.
    assert requests_with(REMINDER, model) == [11]


# A hint that planning is possible


async def test_long_work_without_a_plan_gets_a_hint() -> None:
    _, model = await run([LOOK] * 7, policy(reminder_every_steps=3))

    assert requests_with(HINT, model) == [4, 7]
    assert requests_with(REMINDER, model) == []


async def test_a_conversation_of_short_answers_gets_no_hint() -> None:
    model = ScriptedModel(["Hello."] * 9)
    agent = agent_for(model, policy(reminder_every_steps=2))
    state = await agent.run("Hello?")
    for _ in range(8):
        state = await agent.run(state.with_user_message("Hello?"))

    assert notes(model) == [""] * 9


async def test_a_plan_that_was_just_cleared_gets_no_hint() -> None:
    _, model = await run([LOOK, LOOK, CLEAR, LOOK, LOOK], policy(reminder_every_steps=3))

    assert requests_with(HINT, model) == []


# Beside others


def says(text: str) -> Any:
    """A hook that says something for the turn only."""

    def hook(context: HookContext) -> HookContext:
        assert context.request is not None
        spoken = replace(context.request, instruction=Message.system(text))
        return context.with_request(spoken)

    return make_hook(HookTrigger.BEFORE_INFERENCE, hook)


async def test_what_others_say_for_the_turn_stays_in_front() -> None:
    model = ScriptedModel([PLAN, "Done."])

    await agent_for(model, policy(render_every_steps=1), hooks=[says("Be brief.")]).run("Work.")

    first, second = notes(model)
    assert first == "Be brief."
    assert second.startswith("Be brief.\n\n")
    assert SHOWN in second


async def test_the_last_step_after_a_limit_is_left_alone() -> None:
    model = ScriptedModel([PLAN, LOOK, "Out of steps."])
    agent = Agent(
        model,
        tools=[MockTool("look", lambda: "seen", effect="pure")],
        capabilities=[UseTaskPlanning(policy(render_every_steps=1))],
        max_steps=2,
        at_limit="wrap_up",
    )

    await agent.run("Work.")

    assert requests_with(SHOWN, model) == [2]
    assert "limit" in notes(model)[2]


async def test_a_model_that_may_not_plan_now_is_not_told_to() -> None:
    def only_look(context: HookContext) -> HookContext:
        request = context.request
        assert request is not None
        left = tuple(tool for tool in request.tools if tool.name == "look")
        return context.with_request(replace(request, tools=left))

    model = ScriptedModel([PLAN, LOOK, "Done."])
    hook = make_hook(HookTrigger.BEFORE_INFERENCE, only_look)

    await agent_for(model, policy(render_every_steps=1), hooks=[hook]).run("Work.")

    assert notes(model) == [""] * 3


async def test_a_driver_that_offers_tools_in_words_shows_the_plan_too() -> None:
    turns = [
        '{"thought": "plan", "type": "call_tool", "tool": "todo_write", "args": {"todos": ['
        '{"content": "Ship it", "status": "pending", "activeForm": "Shipping it"}]}}',
        '{"thought": "done", "type": "final_answer", "answer": "Done."}',
    ]
    model = ScriptedModel(turns)
    agent = Agent(
        driver=ReActDriver(model), capabilities=[UseTaskPlanning(policy(render_every_steps=2))]
    )

    state = await agent.run("Work.")

    assert state.final_response == "Done."
    assert requests_with(SHOWN, model) == [2]


class Watched(History[Any]):
    """A history that counts how many of its items are looked at."""

    looked_at = 0

    def __getitem__(self, index: Any) -> Any:
        Watched.looked_at += 1
        return super().__getitem__(index)


async def test_looking_back_costs_the_same_however_long_the_run_is() -> None:
    every = policy(reminder_every_steps=3)
    hook = UseTaskPlanning(every).configure(AgentPlan()).hooks[0]
    for length in (20, 90):
        state, _ = await run([PLAN, *[LOOK] * length], every)
        assert state.execution is not None
        watched = replace(state.execution, steps=Watched.of(state.steps))
        state = replace(state, execution=watched, messages=Watched.of(state.messages))
        request = ModelRequest(messages=())
        Watched.looked_at = 0

        hook.function(
            HookContext(trigger=HookTrigger.BEFORE_INFERENCE, state=state, request=request)
        )

        assert Watched.looked_at == 6

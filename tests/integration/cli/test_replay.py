"""``stepwell replay``: stored executions decided on again, by the same agent and by others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    Agent,
    AgentRegistry,
    AgentSpec,
    ErrorPolicy,
    UseApprovals,
    UseSelfCritique,
    UseSubagents,
    tool,
)
from stepwell.app import AgentApp, NewMessage, Principal
from stepwell.cli.exit_codes import ExitCode
from stepwell.continuation import AgentStop
from stepwell.drivers import ReActDriver
from stepwell.errors import AgentNotFoundError, ModelError
from stepwell.hooks import HookContext
from stepwell.replay.replay import Replay, replay_execution
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.errors import NotThereError
from stepwell.testing import ScriptedModel, call
from stepwell.tools import ToolContext, ToolOutput
from tests.answers import answer_question
from tests.integration.cli.command_line import CommandLine, write_shop

pytestmark = pytest.mark.usefixtures("replay_database")

RAN: list[str] = []


@tool(effect="pure")
def look_up(order: int) -> str:
    """Look up an order."""
    RAN.append(f"look_up {order}")
    return f"order {order}"


@tool
def note(word: str) -> ToolOutput:
    """Keep a word."""
    RAN.append(f"note {word}")
    return ToolOutput(value="kept", metadata={"word": word})


@tool
def finish(context: ToolContext) -> str:
    """End the run."""
    raise AgentStop("guard", "enough is enough")


@tool
def broken() -> str:
    """Break."""
    raise ValueError("it broke")


TOOLS = [look_up, note, finish, broken]
TOO_FAST = ModelError("too fast", kind="rate_limit", retry_after=0.01)


def script(*turns: Any) -> ScriptedModel:
    return ScriptedModel(list(turns))


def stops_on_apple(context: HookContext) -> HookContext | None:
    """A guard of the application, which reads what a tool noted."""
    if context.state.metadata.get("word") == "apple":
        return context.stop("no apples", reason="guard", source="fruit guard")
    return None


def guarded(model: ScriptedModel) -> Agent:
    return Agent(model, tools=TOOLS, hooks=[hook_of(stops_on_apple)])


def hook_of(function: Any) -> Any:
    from stepwell.hooks import HookTrigger, make_hook

    return make_hook(HookTrigger.AFTER_STEP, function, name="fruit guard")


async def ran(agent: Agent, folder: Path, answers: dict[str, Any] | None = None) -> str:
    """The id of an execution of the agent, which was run and stored."""
    app = AgentApp({"agent": agent}, db=f"sqlite:///{folder}/replay.db")
    async with app.running():
        services = app.services
        sent = await services.intake.send_message(
            Principal(user_id="ada"), NewMessage(content="Go")
        )
        assert sent.execution is not None
        id = sent.execution.id
        async with asyncio.timeout(90):
            while True:
                row = await services.store.read(lambda tx: tx.execution(id))
                assert row is not None
                if row.status.is_terminal or (row.status.value == "paused" and not answers):
                    return id
                if row.status.value == "paused":
                    call_id, answer = (answers or {}).popitem()
                    await answer_question(services, id, call_id, answer)
                await asyncio.sleep(0.01)


async def replay(id: str, agent: Agent, folder: Path) -> Replay:
    """What comes of it with that agent; no tool runs and no model is asked."""
    from stepwell.stores.database_url import open_store

    RAN.clear()
    store = await open_store(f"sqlite:///{folder}/replay.db", migrate=False)
    try:
        return await replay_execution(store, AgentDirectory({"agent": agent}), id)
    finally:
        await store.close()
        assert RAN == []


NEVER = script("a model was asked")


LOOKS = tuple(call("look_up", order=number) for number in range(5))
STORIES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "done": ((LOOKS[0], "Done."), {}),
    "retried": ((TOO_FAST, LOOKS[0], "Done."), {"error_policy": ErrorPolicy.retry_all()}),
    "recovered": ((call("broken"), call("broken"), "Done."), {"max_retries": 3}),
    "failed": ((call("broken"), "Done."), {}),
    "ended by a tool": ((call("finish"), "Done."), {}),
    "bad calls": ((call("nothing"), call("look_up", wrong=1), "Done."), {"max_retries": 3}),
    "limit": (LOOKS, {"max_steps": 3}),
    "wrap up": ((*LOOKS[:3], "Well."), {"max_steps": 2, "at_limit": "wrap_up"}),
    "guard": (
        (call("note", word="pear"), call("note", word="apple"), "Done."),
        {"hooks": [hook_of(stops_on_apple)]},
    ),
}


@pytest.mark.parametrize(("turns", "more"), STORIES.values(), ids=STORIES)
async def test_the_same_agent_decides_the_same(turns: Any, more: dict[str, Any], tmp_path: Path):
    id = await ran(Agent(script(*turns), tools=TOOLS, **more), tmp_path)
    done = await replay(id, Agent(NEVER, tools=TOOLS, **more), tmp_path)
    assert done.is_same, done
    assert done.steps
    assert not done.differences


async def test_another_limit_is_found_where_it_would_have_stopped(tmp_path: Path):
    turns = [call("look_up", order=n) for n in range(4)]
    id = await ran(Agent(script(*turns, "Done."), tools=TOOLS), tmp_path)
    done = await replay(id, Agent(NEVER, tools=TOOLS, max_steps=2), tmp_path)
    assert [bool(step.differences) for step in done.steps] == [False, True]
    assert done.steps[1].differences == (
        "it stops (steps_limit), and it went on then",
        "StepsLimit says forbid, and said allow then",
    )
    assert done.differences == ("it ends behind step 2 (steps_limit), and went on to step 5 then",)
    assert done.definition_changed


async def test_a_guard_that_is_new_is_found(tmp_path: Path):
    turns = (call("note", word="apple"), "Done.")
    id = await ran(Agent(script(*turns), tools=TOOLS), tmp_path)
    done = await replay(id, guarded(NEVER), tmp_path)
    assert done.steps[0].differences[0] == "it stops (guard), and it went on then"
    assert "fruit guard says forbid, and had no vote then" in done.steps[0].differences


async def test_a_larger_limit_goes_on_where_it_ended(tmp_path: Path):
    turns = [call("look_up", order=n) for n in range(4)]
    id = await ran(Agent(script(*turns), tools=TOOLS, max_steps=2), tmp_path)
    done = await replay(id, Agent(NEVER, tools=TOOLS, max_steps=9), tmp_path)
    assert done.differences == ("it goes on behind step 2, where it ended then",)
    assert not done.is_same


async def test_time_is_the_recorded_one(tmp_path: Path):
    @tool
    async def nap() -> str:
        """Sleep."""
        await asyncio.sleep(0.2)
        return "slept"

    turns = (call("nap"), call("nap"), "Done.")
    id = await ran(Agent(script(*turns), tools=[nap]), tmp_path)
    same = await replay(id, Agent(NEVER, tools=[nap]), tmp_path)
    assert same.is_same
    votes = [step.was.evaluation_for("ExecutionTimeLimit") for step in same.steps[:2]]
    between = sum(vote.context["current"] for vote in votes if vote is not None) / 2
    shorter = await replay(id, Agent(NEVER, tools=[nap], timeout=between), tmp_path)
    assert not shorter.steps[0].differences
    assert "ExecutionTimeLimit says forbid, and said allow then" in shorter.steps[1].differences


async def test_answers_of_people_are_those_that_were_given(tmp_path: Path):
    turns = (call("note", id="c1", word="pear"), "Done.")
    asks = [UseApprovals("note")]
    id = await ran(Agent(script(*turns), tools=TOOLS, capabilities=asks), tmp_path, {"c1": True})
    done = await replay(id, Agent(NEVER, tools=TOOLS, capabilities=asks), tmp_path)
    assert done.is_same, done
    assert [str(step.now.stop_reason) for step in done.steps] == [
        "input_required",
        "None",
        "completed",
    ]
    assert "behind step 1 a person answered" in done.notes[0]


async def test_a_tool_that_now_needs_approval_is_a_difference(tmp_path: Path):
    id = await ran(Agent(script(call("note", word="pear"), "Done."), tools=TOOLS), tmp_path)
    strict = Agent(NEVER, tools=TOOLS, capabilities=[UseApprovals("note")])
    done = await replay(id, strict, tmp_path)
    assert "note is pending, and was completed then" in done.steps[0].differences


async def test_a_critic_is_not_asked_and_its_votes_are_as_stored(tmp_path: Path):
    def critical(model: ScriptedModel, critic: ScriptedModel) -> Agent:
        return Agent(model, tools=TOOLS, capabilities=[UseSelfCritique(model=critic)])

    critic = script('{"approved": false, "summary": "too short"}', '{"approved": true}')
    id = await ran(critical(script("No.", "A long answer."), critic), tmp_path)
    done = await replay(id, critical(NEVER, script()), tmp_path)
    assert done.is_same, done
    assert "SelfCritique asks a model" in done.notes[0]


async def test_what_subagents_gave_is_replayed_and_not_what_they_did(tmp_path: Path):
    def leading(model: ScriptedModel) -> Agent:
        helper = AgentSpec(name="helper", description="Looks.", system_prompt="Look.")
        team = UseSubagents(AgentRegistry([helper]))
        return Agent(model, tools=TOOLS, capabilities=[team])

    spawn = call("spawn_subagent", subagent="helper", prompt="Look.")
    id = await ran(leading(script(spawn, LOOKS[0], "I looked.", "Done.")), tmp_path)
    done = await replay(id, leading(NEVER), tmp_path)
    assert done.is_same, done
    assert [step.number for step in done.steps] == [1, 2]
    assert "what subagents did inside was not replayed, only what they gave" in done.notes


async def test_steps_of_a_driver_of_its_own_are_taken_as_stored(tmp_path: Path):
    def reacting(model: ScriptedModel, **more: Any) -> Agent:
        return Agent(driver=ReActDriver(model), tools=TOOLS, **more)

    looks = '{"thought": "Hm.", "type": "call_tool", "tool": "look_up", "args": {"order": 1}}'
    answers = '{"thought": "Ah.", "type": "final_answer", "answer": "Done."}'
    id = await ran(reacting(script(looks, looks, answers)), tmp_path)
    done = await replay(id, reacting(NEVER), tmp_path)
    assert done.is_same, done
    assert "ReActDriver" in done.notes[0]
    strict = await replay(id, reacting(NEVER, max_steps=1), tmp_path)
    assert strict.steps[0].differences[0] == "it stops (steps_limit), and it went on then"


async def test_a_question_that_still_waits_is_replayed_up_to_it(tmp_path: Path):
    asks = [UseApprovals("note")]
    turns = (LOOKS[0], call("note", id="c1", word="pear"), "Done.")
    id = await ran(Agent(script(*turns), tools=TOOLS, capabilities=asks), tmp_path)
    done = await replay(id, Agent(NEVER, tools=TOOLS, capabilities=asks), tmp_path)
    assert done.is_same, done
    assert [step.number for step in done.steps] == [1, 2]


async def test_what_can_not_be_replayed_is_said(tmp_path: Path):
    id = await ran(Agent(script("Hello."), tools=TOOLS), tmp_path)
    with pytest.raises(NotThereError):
        await replay("nothing", Agent(NEVER), tmp_path)
    from stepwell.stores.database_url import open_store

    store = await open_store(f"sqlite:///{tmp_path}/replay.db", migrate=False)
    try:
        with pytest.raises(AgentNotFoundError):
            await replay_execution(store, AgentDirectory({"other": Agent(NEVER)}), id)
    finally:
        await store.close()


def test_the_command_says_what_differs_and_exits_by_it(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "replay_shop")
    strict = write_shop(tmp_path, "replay_strict", max_steps=2)
    ran = stepwell("run", "--app", shop, "--agent", "limited", "Go", "--json")
    id = ran.document["execution"]["id"]
    same = stepwell("replay", id, shop)
    assert (same.code, same.out.splitlines()[-1]) == (0, "All decisions are the same.")
    other = stepwell("replay", id, strict)
    assert other.code == ExitCode.FAILED
    assert "definition has changed" in other.out
    told = stepwell("replay", id, strict, "--json").document
    assert (told["is_same"], told["steps"][1]["is_same"]) == (False, False)
    missing = stepwell("replay", id)
    assert missing.code == ExitCode.CONFIGURATION
    assert "no agent is registered as 'limited'" in missing.err

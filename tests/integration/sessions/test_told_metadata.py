"""What the messages about steps and tools say of them in their metadata: the same as the envelopes,
so that a client that opens a session late shows what one saw that was there."""

from pathlib import Path
from typing import Any

import pytest

from stepwell.agent import Agent
from stepwell.hooks import HookContext, make_hook
from stepwell.models import ModelResponse
from stepwell.sessions.narration import LONGEST_TEXT
from stepwell.sessions.settings import SessionSettings
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools import ToolFailure
from tests.integration.sessions.tried import QUICK, WRITES, Tried, taken_over
from tests.integration.sessions.world import World, world

SHARED = ("outcome", "success", "duration_ms", "result_summary")


def turn(text: str, *calls: Any) -> ModelResponse:
    return ModelResponse(text=text, tool_calls=calls)


async def told(here: World, event_type: str) -> list[dict[str, Any]]:
    """The metadata of all messages of that kind."""
    found = [dict(message.metadata) for message in await here.messages()]
    return [it for it in found if it.get("event_type") == event_type]


async def test_a_call_is_told_with_its_arguments_and_its_result(tmp_path: Path) -> None:
    tool = MockTool.returning("look", {"found": "x" * 300})
    script = [turn("I will look.", call("look", id="c1", path="a.txt", deep=True)), "Three."]
    async with world(tmp_path, Agent(ScriptedModel(script), tools=[tool])) as here:
        await here.run(await here.send("How many?"))
        [called], [done] = await told(here, "tool.called"), await told(here, "tool.completed")
        [began] = await here.events("agent.tool.started")
        [ended] = await here.events("agent.tool.completed")

    assert called == {
        "event_type": "tool.called",
        "step_number": 1,
        "tool": "look",
        "call_id": "c1",
        "args_summary": "path: 'a.txt', deep: true",
    }
    assert called["args_summary"] == began.payload["args_summary"]
    assert {name: done[name] for name in ("step_number", "tool", "call_id")} == {
        "step_number": 1,
        "tool": "look",
        "call_id": "c1",
    }
    assert {name: done[name] for name in SHARED if name != "duration_ms"} == {
        name: ended.payload[name] for name in SHARED if name != "duration_ms"
    }
    assert done["duration_ms"] == pytest.approx(ended.payload["duration_ms"], abs=0.001)
    assert "error" not in done
    assert done["result_summary"].startswith('{"found":"xxx')
    assert len(done["result_summary"]) == 100


async def test_a_call_that_did_not_do_its_work_says_so(tmp_path: Path) -> None:
    def refuse(context: HookContext) -> HookContext | None:
        is_pay = context.call is not None and context.call.name == "pay"
        return context.block("not today") if is_pay else None

    script = [[call("look", id="l"), call("pay", id="p"), call("gone", id="g")], "Well."]
    agent = Agent(
        ScriptedModel(script),
        tools=[
            MockTool.returning("look", ToolFailure("no such file")),
            MockTool.returning("pay", 1),
        ],
        hooks=[make_hook("before_tool", refuse)],
    )
    async with world(tmp_path, agent) as here:
        await here.run(await here.send("go"))
        done = {it["tool"]: it for it in await told(here, "tool.completed")}
        envelopes = {
            it.payload["tool_name"]: it.payload for it in await here.events("agent.tool.completed")
        }

    for field in ("outcome", "success", "error"):
        assert {name: it[field] for name, it in done.items()} == {
            name: it[field] for name, it in envelopes.items()
        }
    assert not any(it["success"] for it in done.values())
    assert done["pay"]["outcome"] == "blocked"
    assert {it["result_summary"] for it in (done["pay"], done["gone"])} == {None}


async def test_a_step_keeps_what_the_model_said_before_its_calls(tmp_path: Path) -> None:
    script = [
        turn("I will look.", call("look", id="1")),
        call("look", id="2"),
        turn("y" * (LONGEST_TEXT + 1), call("look", id="3")),
        turn("z" * LONGEST_TEXT, call("look", id="4")),
        "All seen.",
    ]
    agent = Agent(ScriptedModel(script), tools=[MockTool.returning("look", 1)])
    async with world(tmp_path, agent) as here:
        await here.run(await here.send("go"))
        steps = {it["step_number"]: it for it in await told(here, "step.completed")}
        logged = {
            it.payload["metadata"]["step_number"]: it.payload["metadata"]
            for it in await here.events("step.completed")
        }

    # The answer is a message of its own, and a step without words has none.
    texts = {number: it.get("text") for number, it in steps.items()}
    assert texts == {
        1: "I will look.",
        2: None,
        3: "y" * (LONGEST_TEXT - 3) + "...",
        4: "z" * LONGEST_TEXT,
        5: None,
    }
    assert all(it["duration_ms"] >= 0 for it in steps.values())
    assert logged == steps


@pytest.mark.parametrize(("end", "limits"), [("stopped", {}), ("paused", {"at_limit": "pause"})])
async def test_the_last_step_keeps_its_words_too(
    tmp_path: Path, end: str, limits: dict[str, Any]
) -> None:
    script = [turn("I will look.", call("look", id="1"))]
    tools = [MockTool.returning("look", 1)]
    agent = Agent(ScriptedModel(script), tools=tools, max_steps=1, **limits)
    async with world(tmp_path, agent) as here:
        assert await here.run(await here.send("go")) == end
        [step] = [it for it in await told(here, "step.completed") if "step_number" in it]

    assert step["text"] == "I will look."


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, len(WRITES) + 1))
async def test_after_a_crash_at_any_write_the_same_is_told(
    tmp_path: Path, at: int, after: bool
) -> None:
    turns = (
        turn("First I look.", call("look", id="a1", at="x"), call("save", id="a2", at="y")),
        turn("Then I save.", call("save", id="b1", at="z")),
        "All done.",
    )
    async with world(tmp_path, Tried(turns).agent, settings=QUICK) as here:  # type: ignore[arg-type]
        assert await taken_over(here, await here.send("go"), [(at, after)]) == 1
        kinds = ("tool.called", "tool.completed", "step.completed")
        found = [it for kind in kinds for it in await told(here, kind)]

    assert {(it["call_id"], it["args_summary"]) for it in found if "args_summary" in it} == {
        ("a1", "at: 'x'"),
        ("a2", "at: 'y'"),
        ("b1", "at: 'z'"),
    }
    results = {
        (it["call_id"], it["success"], it["result_summary"]) for it in found if "success" in it
    }
    assert results == {
        ("a1", True, "look at x"),
        ("a2", True, "save at y"),
        ("b1", True, "save at z"),
    }
    texts = [it["text"] for it in found if "text" in it]
    assert texts == ["First I look.", "Then I save."]


async def test_a_call_of_unknown_outcome_is_told_as_one_that_failed(tmp_path: Path) -> None:
    settings = SessionSettings(flush_seconds=5.0, max_crashes=1)
    async with world(tmp_path, Tried().agent, settings=settings) as here:
        id = await here.send("go")
        assert await taken_over(here, id, [(3, True)]) == 1
        assert (await here.execution(id)).status == "failed"
        unknown = [it for it in await told(here, "tool.completed") if it["outcome"] == "unknown"]

    assert unknown
    for it in unknown:
        assert (it["success"], it["result_summary"]) == (False, None)
        assert it["duration_ms"] >= 0

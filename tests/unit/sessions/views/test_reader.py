"""A step as JSON."""

from msgspec import json

from stepwell.agent import Agent
from stepwell.errors import ModelError
from stepwell.messages import ThinkingPart
from stepwell.models import ModelResponse
from stepwell.sessions.views.step_data import step_as_data
from stepwell.testing import MockTool, ScriptedModel, call


async def test_a_step_with_tools_tells_every_call_and_every_vote() -> None:
    tools = [MockTool.returning("look", "a cat"), MockTool.returning("hear", {"sound": "meow"})]
    model = ScriptedModel([[call("look", at="x"), call("hear"), call("nothing")], "A cat."])
    state = await Agent(model, tools=tools).run("What is it?")
    first, last = [step_as_data(recorded) for recorded in state.steps]

    assert json.decode(json.encode(first)) == first
    assert [(it["name"], it["outcome"]) for it in first["tool_executions"]] == [
        ("look", "completed"),
        ("hear", "completed"),
        ("nothing", "not_found"),
    ]
    assert [it["result"] for it in first["tool_executions"][:2]] == ["a cat", '{"sound":"meow"}']
    assert first["tool_executions"][0]["arguments"] == {"at": "x"}
    assert first["usage"] == {
        "input_tokens": 10,
        "output_tokens": 5,
        "cached_tokens": 0,
        "cache_write_tokens": 0,
        "reasoning_tokens": 0,
        "total_tokens": 15,
    }
    assert first["decision"]["should_continue"]
    assert (last["type"], last["text"], last["number"]) == ("final_response", "A cat.", 2)
    assert last["decision"]["stop_reason"] == "completed"
    votes = last["decision"]["evaluations"]
    assert all({"criterion", "decision", "reason", "context"} <= set(vote) for vote in votes)


async def test_a_failed_step_tells_its_error() -> None:
    state = await Agent(ScriptedModel([ModelError("no", kind="server", status=503)])).run("Hi")
    step = step_as_data(state.steps[0])
    assert step["type"] == "error"
    assert step["errors"][0]["message"] == "no"
    assert (step["errors"][0]["status"], step["errors"][0]["tool_name"]) == (503, None)
    assert step["decision"]["stop_reason"] == "error"


async def test_thinking_stands_apart_from_the_text() -> None:
    thinking = (ThinkingPart(text="Hm. "), ThinkingPart(text="Four?"))
    thought = ModelResponse(text="Four.", thinking=thinking)
    state = await Agent(ScriptedModel([thought])).run("2 + 2?")
    step = step_as_data(state.steps[0])
    assert (step["thinking"], step["text"]) == ("Hm. Four?", "Four.")

"""What is said stays out of telemetry unless it is asked for; secrets always do."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import SecretStr

from stepwell import (
    Agent,
    ErrorPolicy,
    Message,
    ModelError,
    ModelResponse,
    ToolOutput,
    UseSelfCritique,
    tool,
)
from stepwell.drivers import ReActDriver
from stepwell.testing import MockTool, ScriptedModel, call
from tests.unit.capabilities.telemetry.recording import Recorded

CANARY = "canary-7f31c0"


@tool
def sign_in(user: str, password: SecretStr) -> ToolOutput:
    """Sign in."""
    return ToolOutput(value={"echo": f"{user}:{password.get_secret_value()}"})


async def test_without_content_nothing_that_was_said_is_told() -> None:
    recorded = Recorded()
    turns = [
        ModelResponse(text=CANARY, tool_calls=(call("look", path=CANARY), call("burn", x=CANARY))),
        ModelError(f"refused: {CANARY}"),
        f"The answer is {CANARY}.",
    ]
    critic = ScriptedModel([json.dumps({"approved": False, "feedback": CANARY})])
    agent = Agent(
        ScriptedModel(turns),
        tools=[
            MockTool.returning("look", CANARY),
            MockTool.raising("burn", ValueError(CANARY)),
        ],
        system_prompt=CANARY,
        capabilities=[recorded.capability(), UseSelfCritique(1, model=critic)],
        error_policy=ErrorPolicy.retry_all(5),
    )
    state = await agent.run(CANARY)
    assert CANARY in state.explain()  # the critic's words: they would be told as a vote's reason
    assert len(recorded.spans) > 5
    assert CANARY not in recorded.everything()


async def test_with_content_the_conversation_is_told_as_the_conventions_say() -> None:
    recorded = Recorded()
    agent = Agent(
        ScriptedModel([call("look", id="c1", path="a"), "It says hello."]),
        tools=[MockTool.returning("look", "hello")],
        system_prompt="Be brief.",
        capabilities=[recorded.capability(content=True)],
    )
    await agent.run("What does it say?")
    first, second = [span for span in recorded.spans if span.name == "chat scripted"]

    def parts(told: Mapping[str, Any] | None, name: str) -> Any:
        return json.loads((told or {})[name])

    user = {"role": "user", "parts": [{"type": "text", "content": "What does it say?"}]}
    asks = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"path": "a"}}
    result = {"type": "tool_call_response", "id": "c1", "response": "hello"}
    said = {"type": "text", "content": "It says hello."}
    prompt = [{"type": "text", "content": "Be brief."}]
    assert parts(first.attributes, "gen_ai.input.messages") == [user]
    assert parts(first.attributes, "gen_ai.system_instructions") == prompt
    assert parts(first.attributes, "gen_ai.output.messages") == [
        {"role": "assistant", "parts": [asks], "finish_reason": "tool_calls"}
    ]
    assert parts(second.attributes, "gen_ai.input.messages") == [
        user,
        {"role": "assistant", "parts": [asks]},
        {"role": "tool", "parts": [result]},
    ]
    answer = [{"role": "assistant", "parts": [said], "finish_reason": "stop"}]
    assert parts(second.attributes, "gen_ai.output.messages") == answer
    call_told = recorded.told("execute_tool look")
    assert parts(call_told, "gen_ai.tool.call.arguments") == {"path": "a"}
    assert call_told["gen_ai.tool.call.result"] == "hello"
    run_told = recorded.told("invoke_agent helper")
    assert parts(run_told, "gen_ai.input.messages") == [user]
    assert parts(run_told, "gen_ai.output.messages") == answer
    votes = [it for it in recorded.spans[0].events if it.name == "stepwell.evaluation"]
    assert "of 20 steps used" in str((votes[0].attributes or {})["stepwell.evaluation.reason"])


@pytest.mark.parametrize("streams", [False, True])
async def test_secret_arguments_are_hidden_even_with_content(streams: bool) -> None:
    recorded = Recorded()
    asks = call("sign_in", user="ada", password=CANARY)
    turns = [
        ModelResponse(text=f"I sign in with {CANARY}.", tool_calls=(asks,)),
        call("sign_in", user="ada", passwort=CANARY, password=CANARY),
        "Done.",
    ]
    agent = Agent(
        ScriptedModel(turns),
        tools=[sign_in],
        capabilities=[recorded.capability(content=True)],
        max_retries=3,
    )
    if streams:
        _ = [part async for part in agent.stream("Sign in")]
    else:
        await agent.run("Sign in")
    assert "ada" in recorded.everything()
    assert CANARY not in recorded.everything()


async def test_react_hides_them_as_well() -> None:
    recorded = Recorded()
    wish = {"thought": "x", "type": "call_tool", "tool": "sign_in"}
    wants = {**wish, "args": {"user": "ada", "password": CANARY}}
    done = {"thought": "x", "type": "final_answer", "answer": "Done."}
    model = ScriptedModel([json.dumps(wants), json.dumps(done)])
    agent = Agent(
        driver=ReActDriver(model),
        tools=[sign_in],
        capabilities=[recorded.capability(content=True)],
    )
    state = await agent.run("Sign in")
    assert state.final_response == "Done."
    assert "execute_tool sign_in" in recorded.names
    assert CANARY not in recorded.everything()


async def test_data_of_files_stays_out() -> None:
    recorded = Recorded()
    from stepwell import AgentState
    from stepwell.messages import ImagePart, TextPart

    agent = Agent(ScriptedModel(["A cat."]), capabilities=[recorded.capability(content=True)])
    picture = ImagePart(data="QUJD" * 1000, media_type="image/png")
    state = AgentState.empty().with_message(Message.user([TextPart("What is it?"), picture]))
    await agent.run(state)
    told = recorded.everything()
    assert "image/png" in told
    assert "QUJDQUJD" not in told


async def test_half_characters_cost_neither_the_span_nor_its_content() -> None:
    recorded = Recorded()
    agent = Agent(
        ScriptedModel([call("look", id="c1", path="a\ud800"), call("burn"), "Done \ud800."]),
        tools=[
            MockTool.returning("look", "b\ud800"),
            MockTool.raising("burn", ValueError("c\ud800")),
        ],
        capabilities=[recorded.capability(content=True)],
        error_policy=ErrorPolicy.retry_all(5),
    )
    await agent.run("Go \ud800.")
    assert recorded.opened.open == set()
    assert recorded.names.count("invoke_agent helper") == 1
    run = recorded.told("invoke_agent helper")
    assert run["stepwell.status"] == "completed"
    assert json.loads(run["gen_ai.input.messages"])[0]["parts"][0]["content"] == "Go \ufffd."
    assert json.loads(run["gen_ai.output.messages"])[0]["parts"][0]["content"] == "Done \ufffd."
    for span in recorded.spans:  # as an exporter sends them
        for value in (*(span.attributes or {}).values(), span.status.description or ""):
            str(value).encode()

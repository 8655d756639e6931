"""What a model says beside a call with secret arguments is told without them."""

import pytest
from pydantic import SecretStr

from stepwell import Agent, ModelResponse, ToolCall, tool
from stepwell.events import StreamEventReceived
from stepwell.messages import ThinkingPart
from stepwell.testing import EventRecorder, ScriptedModel

SECRET = "tr0ub4dor"
CALLS = {
    "whole": ToolCall(id="c1", name="sign_in", arguments={"password": SECRET}),
    "cut": ToolCall(id="c1", name="sign_in", malformed=f'{{"password": "{SECRET}'),
}


@tool
def sign_in(password: SecretStr) -> str:
    """Sign in."""
    return "welcome"


@pytest.mark.parametrize("made", CALLS)
async def test_neither_text_nor_thinking_nor_chunks_have_it(made: str) -> None:
    said = ModelResponse(
        text=f"I use {SECRET}.",
        thinking=(ThinkingPart(f"The password is {SECRET}."),),
        tool_calls=(CALLS[made],),
    )
    recorder = EventRecorder()
    agent = Agent(ScriptedModel([said, "done"]), tools=[sign_in], max_retries=2)
    agent.wiretap(recorder)
    state = await agent.run("go")
    assert state.final_response == "done"
    assert SECRET not in repr(state)
    assert SECRET not in repr(recorder.events)
    chunks = "".join(event.content for event in recorder.of(StreamEventReceived))
    assert chunks.endswith("done")

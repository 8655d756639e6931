"""The agent that is served when none was given: with the configured model, or with scripted words
that say so, so that a new installation can be tried without a key.
"""

from collections.abc import AsyncIterator

from stepwell.agent import Agent
from stepwell.clock import SystemClock
from stepwell.criteria import ErrorPolicy
from stepwell.messages import FinishReason, Role, ToolCall, Usage
from stepwell.models import ModelRequest, ModelResponse, ResponseEnd, StreamPart, TextDelta
from stepwell.tools import ToolEffect, tool

NAME = "assistant"
PROMPT = "You are a helpful assistant. Use your tools where they help; answer briefly."


@tool(effect=ToolEffect.PURE)
def current_time() -> str:
    """The date and time, in UTC."""
    return SystemClock().now().isoformat(timespec="seconds")


def default_agent(model: str | None) -> Agent:
    """An assistant that knows the time; without a model its words are scripted."""
    return Agent(
        model or ScriptedWords(),
        tools=[current_time],
        system_prompt=PROMPT,
        error_policy=ErrorPolicy.retry_tool_errors(3),
    )


class ScriptedWords:
    """Stands in for a model: looks at the clock once, then says that it is scripted.

    >>> ScriptedWords().name
    'scripted'
    """

    name = "scripted"

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The whole answer at once."""
        last = request.messages[-1]
        if last.role is not Role.TOOL:
            look = ToolCall(id="", name="current_time", arguments={})
            return ModelResponse(
                text="Let me look at the clock.",
                tool_calls=(look,),
                finish_reason=FinishReason.TOOL_CALLS,
                usage=Usage(input_tokens=10, output_tokens=5),
            )
        said = next((m.text for m in reversed(request.messages) if m.role is Role.USER), "")
        return ModelResponse(
            text=(
                f"You said: {said}\nIt is {last.text}.\n"
                "(These words are scripted, because no model is configured. Start the server with "
                "--model openai:gpt-5, for example, or give it an agent of your own.)"
            ),
            finish_reason=FinishReason.STOP,
            usage=Usage(input_tokens=20, output_tokens=30),
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The same, word by word."""
        response = await self.respond(request)
        for word in response.text.split(" "):
            yield TextDelta(word if word == response.text.split(" ", 1)[0] else f" {word}")
        yield ResponseEnd(response)

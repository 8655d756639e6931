"""The built-in agent: uses the configured model, or scripted answers, so that a new installation
works without a key.
"""

from stepwell.agent import Agent, AgentDefinition, AgentDescriptor
from stepwell.app.scripted_words import Pace, ScriptedTurn, ScriptedWords, call
from stepwell.clock import Clock, SystemClock
from stepwell.criteria import ErrorPolicy
from stepwell.messages import Role
from stepwell.models import Model, ModelRequest
from stepwell.tools import ToolEffect, tool

NAME = "assistant"
PROMPT = "You are a helpful assistant. Use your tools where they help; answer briefly."
EXAMPLES = ("What time is it?", "What can you do?")


@tool(effect=ToolEffect.PURE)
def current_time() -> str:
    """The date and time, in UTC."""
    return SystemClock().now().isoformat(timespec="seconds")


class DefaultAgent(AgentDefinition):
    """An assistant that knows the time; without a model its answers are scripted."""

    def __init__(self, model: str | None = None, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        words = ScriptedWords(_script, pace=Pace(word=0.015), clock=self._clock)
        self._model: Model | str = model or words

    def descriptor(self) -> AgentDescriptor:
        """Describe the agent, with examples."""
        is_scripted = isinstance(self._model, ScriptedWords)
        description = "An assistant that knows the time."
        if is_scripted:
            description += " Scripted: no model is called until one is configured."
        return AgentDescriptor(
            name=NAME, description=description, tools=("current_time",), examples=EXAMPLES
        )

    def build_agent(self) -> Agent:
        """Build the agent."""
        return Agent(
            self._model,
            tools=[current_time],
            system_prompt=PROMPT,
            error_policy=ErrorPolicy.retry_tool_errors(3),
            clock=self._clock,
        )


def default_agent(model: str | None) -> DefaultAgent:
    """Return the built-in agent, with that model or with scripted answers."""
    return DefaultAgent(model)


def _script(request: ModelRequest) -> ScriptedTurn:
    """Call the clock once, then explain that the answers are scripted."""
    last = request.messages[-1]
    if last.role is not Role.TOOL:
        return ScriptedTurn("Let me look at the clock.", (call("current_time"),))
    said = next((m.text for m in reversed(request.messages) if m.role is Role.USER), "")
    quoted = "\n".join(f"> {line}" for line in said.splitlines())
    return ScriptedTurn(
        f"You said:\n\n{quoted}\n\nIt is **{last.text}**.\n\n"
        "These words are scripted, because no model is configured. The tool call was real. Next:\n"
        "\n- give the built-in agent a model: `stepwell serve --model openai:gpt-5`, for example\n"
        "- make an agent of your own: `stepwell init my_agent`\n"
        "- see all that an agent can do here: `stepwell demo`\n"
    )

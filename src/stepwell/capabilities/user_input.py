"""A tool with which the model asks a person. The run pauses until the answer is given."""

from typing import Any

from stepwell.agent.plan import AgentPlan
from stepwell.errors import ConfigurationError
from stepwell.tools import BaseTool, InputRequired, ToolEffect, ToolFailure

DESCRIPTION = (
    "Ask the user a question and wait for the answer. Use it only for what you need to go on and "
    "can't find out yourself."
)


class UserInputTool(BaseTool):
    """Asks the user; the answer becomes the result of the call."""

    name = "user_input"
    effect = ToolEffect.PURE

    async def __call__(
        self, question: str, options: list[str] | None = None
    ) -> InputRequired | ToolFailure:
        """Ask the user.

        Args:
            question: The whole question, understandable on its own.
            options: Answers to choose from, if there are only a few; the user may answer otherwise.
        """
        question = question.strip()
        if not question:
            return ToolFailure("the question is empty; write what you want to know")
        choices = [choice for option in options or () if (choice := option.strip())]
        details: dict[str, Any] = {"options": choices} if choices else {}
        return InputRequired(prompt=question, details=details)


class UseUserInput:
    """Gives the model ``user_input``: the run pauses, and ``state.pending`` says what is asked.

    ``state.with_answer(state.pending[0], answer)`` gives the answer, also days later and on
    another machine; then ``agent.run(state)`` goes on.

    >>> from stepwell.agent import Agent
    >>> from stepwell.testing import ScriptedModel, call
    >>> model = ScriptedModel([call("user_input", question="Which city?"), "Sunny."])
    >>> agent = Agent(model, capabilities=[UseUserInput()])
    >>> state = agent.run_sync("What is the weather?")
    >>> state.status, state.pending[0].prompt
    (<AgentStatus.PAUSED: 'paused'>, 'Which city?')
    >>> agent.run_sync(state.with_answer(state.pending[0], "Oslo")).final_response
    'Sunny.'
    """

    def __init__(self, *, description: str = DESCRIPTION) -> None:
        if not isinstance(description, str) or not description.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"UseUserInput wants a description as text, got {description!r:.80}; it tells the "
                "model when to ask"
            )
        self.description = description

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan with the tool."""
        return plan.with_tools(UserInputTool(description=self.description))

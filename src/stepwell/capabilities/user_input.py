"""A tool for asking a person. The run pauses until the answer is given."""

from typing import Any

from stepwell.agent.plan import AgentPlan
from stepwell.parameters import check_text
from stepwell.tools import BaseTool, InputRequired, ToolEffect, ToolFailure

DESCRIPTION = (
    "Ask the user a question and wait for the answer. Use it only if you need the answer to "
    "continue and can't find it out yourself."
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
            question: The complete question, understandable on its own.
            options: Suggested answers, if there are only a few; the user may give another answer.
        """
        question = question.strip()
        if not question:
            return ToolFailure("the question is empty; write the question")
        choices = [choice for option in options or () if (choice := option.strip())]
        details: dict[str, Any] = {"options": choices} if choices else {}
        return InputRequired(prompt=question, details=details)


class UseUserInput:
    """Adds the ``user_input`` tool: the run pauses, and ``state.pending`` holds the question.

    ``state.with_answer(state.pending[0], answer)`` answers it, even days later on another machine;
    then ``agent.run(state)`` resumes the run.

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
        self.description = check_text(description, "description")

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the tool."""
        return plan.with_tools(UserInputTool(description=self.description))

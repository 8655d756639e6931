"""A tool with which an agent asks a model one question, apart from its own conversation. Opt-in:
no agent has it unless it is given.
"""

from msgspec.structs import replace

from stepwell.errors import InvalidToolError, ModelError, ModelErrorKind
from stepwell.messages import FinishReason, Message, Usage
from stepwell.models import (
    CachedContext,
    Model,
    ModelPresets,
    ModelRequest,
    ModelResponse,
    ModelSettings,
)
from stepwell.models.settings import NO_SETTINGS
from stepwell.parameters import check_kind
from stepwell.state import Budget
from stepwell.tools.context import ToolContext
from stepwell.tools.function_tool import BaseTool
from stepwell.tools.side_turn import ask_model
from stepwell.tools.tool import ToolEffect, ToolFailure, ToolOutput

KNOWN_PRESETS = ModelPresets()
DESCRIPTION = (
    "Ask a language model one question and get its answer. It sees nothing of this conversation, "
    "so the prompt must say everything it needs to know."
)

PROMPTS_FAULT = frozenset(
    {ModelErrorKind.REFUSAL, ModelErrorKind.CONTENT_FILTER, ModelErrorKind.CONTEXT_TOO_LONG}
)
"""Failures that another prompt avoids: the asking model's business, not an error of the run."""

ACCEPTED_EVERYWHERE = 4096
"""A bound on an answer that every model takes; a larger one may be refused."""


class LlmQueryTool(BaseTool):
    """Asks a model, given as an object or by a name such as ``"openai:gpt-5"``, one question.

    Usage and cost of the turn count into the run's budgets, and what is left of them bounds the
    answer. Its effect is ``idempotent``: asking again after a crash changes nothing in the world,
    but costs once more and may be answered in other words.

    A refusal, a content filter or a prompt that is too long is a failure that the asking model
    sees. Any other ``ModelError`` is raised, and the error policy judges it as it judges those of
    the agent's own model.

    >>> from stepwell.testing import ScriptedModel
    >>> LlmQueryTool(ScriptedModel(["Paris."])).schema.name
    'llm_query'
    """

    def __init__(
        self,
        model: Model | str,
        *,
        model_presets: ModelPresets = KNOWN_PRESETS,
        name: str = "llm_query",
        description: str = DESCRIPTION,
        system_prompt: str | None = None,
        settings: ModelSettings = NO_SETTINGS,
        timeout: float | None = 120.0,
    ) -> None:
        self._model = model_presets.model(model) if isinstance(model, str) else model
        if not callable(getattr(self._model, "respond", None)):
            raise InvalidToolError(
                f"LlmQueryTool asks a model, and {model!r:.80} has no respond(); see stepwell.Model"
            )
        self._settings = check_kind(settings, "settings", ModelSettings)
        instructions = (Message.system(system_prompt),) if system_prompt else ()
        self._context = CachedContext(messages=instructions)
        super().__init__(
            name=name, description=description, effect=ToolEffect.IDEMPOTENT, timeout=timeout
        )

    async def __call__(self, prompt: str, context: ToolContext) -> ToolOutput | ToolFailure:
        """Ask the model.

        Args:
            prompt: The whole question, with all that is needed to answer it.
        """
        if not prompt.strip():
            return ToolFailure("the prompt is empty; write the question into it")
        left = context.budget_left
        request = ModelRequest(
            messages=(Message.user(prompt),),
            context=self._context,
            settings=bound_settings(self._settings, left),
            seconds_left=left.capped_by(Budget(seconds=self.timeout)).seconds,
        )
        try:
            response = await ask_model(self._model, request, context.state)
        except ModelError as error:
            if error.kind in PROMPTS_FAULT:
                failure = ToolFailure(f"the model gave no answer: {error}")
                paid = error.usage if isinstance(error.usage, Usage) else Usage()
                return ToolOutput(value=failure, usage=paid, cost=error.cost)
            raise
        return ToolOutput(value=_answer(response), usage=response.usage, cost=response.cost)


def bound_settings(settings: ModelSettings, left: Budget) -> ModelSettings:
    """The settings, with an answer no longer than the tokens that are left."""
    if left.tokens is None or left.tokens >= (settings.max_tokens or ACCEPTED_EVERYWHERE):
        return settings
    return replace(settings, max_tokens=max(left.tokens, 1))


def _answer(response: ModelResponse) -> str:
    """The text, and what the asking model should know about it."""
    was_cut = response.finish_reason is FinishReason.LENGTH
    if not response.text.strip():
        return "(The answer has no text" + (": its token limit was reached.)" if was_cut else ".)")
    return f"{response.text}\n\n(Cut off at the token limit.)" if was_cut else response.text

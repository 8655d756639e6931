"""One question to a model apart from the conversation: for critics, extraction, summaries."""

from hashlib import sha256

from msgspec.structs import replace

from stepwell.models import Model, ModelRequest, ModelResponse
from stepwell.state import AgentState, Budget
from stepwell.tools.llm_query import bound_settings
from stepwell.tools.side_turn import ask_model


async def ask_apart(
    model: Model,
    request: ModelRequest,
    state: AgentState,
    *,
    within: float | None = None,
    left: Budget | None = None,
) -> ModelResponse:
    """The answer, within that time and what is left of the budget; nothing is streamed.

    Raises ``ModelError``, also when no answer came in time. What ends the run ends the wait.
    """
    left = state.budget_left if left is None else left
    request = replace(
        request,
        settings=bound_settings(request.settings, left),
        seconds_left=left.capped_by(Budget(seconds=within)).seconds,
    )
    return await ask_model(model, request, state, within=within)


def between_tags(name: str, text: str) -> str:
    """A text as material for a model, between tags that it can't hold: they are made from it.

    >>> between_tags("task", "Add 2 and 2.").splitlines()[1]
    'Add 2 and 2.'
    """
    mark = f"{name}-{sha256(text.encode(errors='replace')).hexdigest()[:12]}"
    return f"<{mark}>\n{text}\n</{mark}>"

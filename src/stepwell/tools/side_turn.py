"""One turn of a model that is no step: under a guard of its own, so that who watches sees it."""

import asyncio

from stepwell.continuation import AgentStop
from stepwell.errors import ModelError, ModelErrorKind
from stepwell.models import Model, ModelRequest, ModelResponse
from stepwell.models.attempts import name_of
from stepwell.models.model import ModelTurn
from stepwell.models.response import check_response
from stepwell.models.turn_retries import TurnRetries, retries_itself
from stepwell.scope import refuse_in_replay
from stepwell.state import AgentState


async def ask_model(
    model: Model, request: ModelRequest, state: AgentState, *, within: float | None = None
) -> ModelResponse:
    """The answer, within that time; nothing is streamed. A fault that passes is retried.

    Raises ``ModelError``, also when no answer came in time. What ends the run ends the wait.
    """
    name = name_of(model)
    refuse_in_replay(name)
    retries = TurnRetries(
        name,
        state.scope,
        max_retries=0 if retries_itself(model) else state.scope.model_retries,
        step_number=state.step_number,
        within=within,
    )
    end = None if within is None else state.scope.clock.monotonic() + within

    async def ask(_: float | None) -> ModelResponse:
        left = None if end is None else max(end - state.scope.clock.monotonic(), 0.0)
        response = await _attempt(model, request, state, left)
        if response is None:
            retries.is_final = True
            raise ModelError(
                f"model {name} gave no answer within {within or 0:g} s", kind=ModelErrorKind.TIMEOUT
            )
        return response

    try:
        return await retries.run(ask)
    except AgentStop as stop:
        raise AgentStop(stop.signal, state=state) from stop


async def _attempt(
    model: Model, request: ModelRequest, state: AgentState, within: float | None
) -> ModelResponse | None:
    """Return the answer; None if none came in that time."""
    name = name_of(model)
    turn = ModelTurn(name, request)
    with state.scope.guard(within, around=turn) as guard:
        try:
            answer = await guard.call(lambda: model.respond(request), f"model {name}")
            turn.response = check_response(answer, name)
            return turn.response
        except asyncio.CancelledError as error:
            if guard.was_cancelled:
                raise
            raise ModelError(f"model {name} cancelled its own call") from error
    if guard.signal is not None:
        raise AgentStop(guard.signal.while_running(f"the call to {name}"))
    return None

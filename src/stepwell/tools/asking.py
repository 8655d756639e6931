"""One turn of a model that is no step: under a guard of its own, so that who watches sees it."""

import asyncio

from stepwell.continuation import AgentStop
from stepwell.errors import ModelError, ModelErrorKind
from stepwell.models import Model, ModelRequest, ModelResponse
from stepwell.models.attempts import name_of
from stepwell.models.soundness import sound
from stepwell.models.turn import ModelTurn
from stepwell.scope import refuse_in_replay
from stepwell.state import AgentState


async def asked(
    model: Model, request: ModelRequest, state: AgentState, *, within: float | None = None
) -> ModelResponse:
    """The answer, within that time; nothing is streamed.

    Raises ``ModelError``, also when no answer came in time. What ends the run ends the wait.
    """
    name = name_of(model)
    refuse_in_replay(name)
    turn = ModelTurn(name, request)
    with state.scope.guard(within, around=turn) as guard:
        try:
            turn.response = sound(await model.respond(request), name)
            return turn.response
        except asyncio.CancelledError as error:
            if guard.was_cancelled:
                raise
            raise ModelError(f"model {name} cancelled its own call") from error
    if guard.signal is not None:
        raise AgentStop(guard.signal.while_running(f"the call to {name}"), state=state)
    raise ModelError(
        f"model {name} gave no answer within {within or 0:g} s", kind=ModelErrorKind.TIMEOUT
    )

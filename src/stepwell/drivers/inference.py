"""One turn of a model inside a step: hooks, events, streaming, interruption. For the drivers."""

import asyncio
from collections.abc import Callable

from msgspec import json
from msgspec.structs import replace

from stepwell.continuation import AgentStop
from stepwell.errors import DriverError, ModelError
from stepwell.events import (
    InferenceRequestStarted,
    InferenceResponseReceived,
    StreamEventReceived,
    ThinkingReceived,
)
from stepwell.hooks import HookContext, HookStack, HookTrigger
from stepwell.models import (
    Model,
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    TextDelta,
    ThinkingDelta,
)
from stepwell.models.attempts import close, incomplete, name_of, parts_of
from stepwell.models.soundness import sound
from stepwell.models.turn import ModelTurn
from stepwell.scope import refuse_in_replay
from stepwell.state import AgentState


def text_of_response(response: ModelResponse) -> str:
    """The text as it is."""
    return response.text


class Inference:
    """Asks a model. A driver calls ``ask``, then ``receive`` with what it got."""

    def __init__(self, model: Model, *, hooks: HookStack | None = None) -> None:
        self._model = model
        self.model_name = name_of(model)
        self._hooks = hooks or HookStack()

    async def ask(
        self, state: AgentState, request: ModelRequest, *, turn: int = 1, shows_text: bool = True
    ) -> tuple[AgentState, ModelResponse]:
        """The model's answer to what the before-inference hooks made of the request.

        ``turn`` counts the turns of one step, so that each has an inference id of its own. Without
        ``shows_text`` the answer is not streamed, since its text is not meant for the reader.
        """
        state, request, given = await self._prepared(state, request, turn)
        if given is None:
            return state, await self._answered(state, request, shows_text)
        response = sound(given, "a before_inference hook")
        if shows_text and not repeats_arguments(response.text, response):
            tell_text(response.text, state)
        return state, response

    async def receive(
        self,
        state: AgentState,
        response: ModelResponse,
        *,
        turn: int = 1,
        told: "Callable[[ModelResponse], str]" = text_of_response,
    ) -> tuple[AgentState, ModelResponse]:
        """What the after-inference hooks made of the response. ``told`` is what the event may say
        of its text, which may hold secret arguments."""
        if self._hooks.has(HookTrigger.AFTER_INFERENCE):
            answer = await self._hooks.run(
                HookContext(trigger=HookTrigger.AFTER_INFERENCE, state=state, response=response),
                state.scope,
            )
            state, response = answer.state, answer.response or response
        emitter = state.scope.emitter
        if emitter.is_heard:
            emitter.emit(
                InferenceResponseReceived,
                inference_id=inference_id(state, turn),
                step_number=state.step_number,
                model=response.model or self.model_name,
                text=told(response),
                tool_call_count=len(response.tool_calls),
                finish_reason=response.finish_reason,
                usage=response.usage,
            )
        return state, response

    async def _prepared(
        self, state: AgentState, request: ModelRequest, turn: int
    ) -> tuple[AgentState, ModelRequest, ModelResponse | None]:
        given: ModelResponse | None = None
        if self._hooks.has(HookTrigger.BEFORE_INFERENCE):
            answer = await self._hooks.run(
                HookContext(trigger=HookTrigger.BEFORE_INFERENCE, state=state, request=request),
                state.scope,
            )
            state, request, given = answer.state, answer.request or request, answer.response
        emitter = state.scope.emitter
        if emitter.is_heard:
            emitter.emit(
                InferenceRequestStarted,
                inference_id=inference_id(state, turn),
                step_number=state.step_number,
                model=request.settings.model or self.model_name,
                message_count=len(request.messages),
                tool_count=len(request.tools),
            )
        return state, request, given

    async def _answered(
        self, state: AgentState, request: ModelRequest, shows_text: bool
    ) -> ModelResponse:
        """A deadline or a cancellation ends the wait and the run."""
        scope, name = state.scope, self.model_name
        refuse_in_replay(name)
        if scope.signal is not None:
            raise AgentStop(scope.signal, state=state)
        if scope.seconds_left is not None:
            request = replace(request, seconds_left=scope.seconds_left)
        response: ModelResponse | None = None
        watched = None if scope.watch is None else ModelTurn(name, request, is_of_step=True)
        with scope.guard(around=watched) as guard:
            try:
                if shows_text and scope.emitter.hears(StreamEventReceived):
                    response = await self._streamed(state, request)
                else:
                    response = sound(await self._model.respond(request), name)
                if watched is not None:
                    watched.response = response
            except asyncio.CancelledError as error:
                if guard.was_cancelled:
                    raise
                raise ModelError(f"model {name} cancelled its own call") from error
        if guard.signal is not None:
            raise AgentStop(guard.signal.while_running(f"the call to {name}"), state=state)
        if response is None:
            raise DriverError(f"the call to {name} gave no response")
        return response

    async def _streamed(self, state: AgentState, request: ModelRequest) -> ModelResponse:
        chunks = _Chunks(state, holds_json=bool(request.tools))
        parts = parts_of(self._model, request)
        try:
            async for part in parts:
                match part:
                    case TextDelta() if part.text:
                        chunks.add(part.text)
                    case ThinkingDelta() if part.text:
                        state.scope.emitter.emit(
                            ThinkingReceived, step_number=state.step_number, content=part.text
                        )
                    case ResponseEnd():
                        response = sound(part.response, self.model_name)
                        chunks.end(response)
                        return response
                    case _:
                        pass
        finally:
            await close(parts)
        raise incomplete(self.model_name)


class _Chunks:
    """Tells the text of one response piece by piece.

    Some models write the arguments of a call into their text as well. Text that begins like JSON
    while tools are offered is therefore held back until the response shows what it is.
    """

    def __init__(self, state: AgentState, *, holds_json: bool) -> None:
        self._emitter = state.scope.emitter
        self._step_number = state.step_number
        self._index = 0
        self._is_json: bool | None = None if holds_json else False
        self._held: list[str] = []

    def add(self, text: str) -> None:
        if self._is_json is None and (begun := text.lstrip()):
            self._is_json = begun.startswith("{")
        if self._is_json is not False:
            self._held.append(text)
            return
        if self._held:
            text = "".join((*self._held, text))
            self._held.clear()
        self._tell(text)

    def end(self, response: ModelResponse) -> None:
        held = "".join(self._held)
        if held and not repeats_arguments(held, response):
            self._tell(held)
        self.complete()

    def complete(self) -> None:
        if self._index:
            self._tell("", is_complete=True)

    def _tell(self, content: str, *, is_complete: bool = False) -> None:
        self._emitter.emit(
            StreamEventReceived,
            step_number=self._step_number,
            content=content,
            chunk_index=self._index,
            is_complete=is_complete,
        )
        self._index += 1


def tell_text(text: str, state: AgentState) -> None:
    """A text that is there whole, as one chunk and the empty one that completes it."""
    chunks = _Chunks(state, holds_json=False)
    if text:
        chunks.add(text)
    chunks.complete()


def repeats_arguments(text: str, response: ModelResponse) -> bool:
    """Whether the text is only the arguments of one of the response's calls."""
    if not response.tool_calls or not text.lstrip().startswith("{"):
        return False
    try:
        leaked = json.decode(text)
    except (ValueError, RecursionError):
        return False
    return any(leaked == call.arguments for call in response.tool_calls)


def inference_id(state: AgentState, turn: int = 1) -> str:
    """Names one model turn of the step in flight."""
    name = f"{step_prefix(state)}:inference"
    return name if turn == 1 else f"{name}:{turn}"


def step_prefix(state: AgentState) -> str:
    """What the ids of the step in flight begin with."""
    owner = state.agent_id if state.execution is None else state.execution.id
    return f"{owner}:{state.step_number}"

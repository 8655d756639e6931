"""One turn of a model inside a step: hooks, events, streaming, interruption. For the drivers."""

import asyncio
from collections.abc import Callable

from msgspec import json
from msgspec.structs import replace

from stepwell.continuation import AgentStop, StopSignal
from stepwell.errors import DriverError, ModelError
from stepwell.events import (
    InferenceRequestStarted,
    InferenceResponseReceived,
    StreamEventReceived,
    ThinkingReceived,
)
from stepwell.hooks import HookContext, HookStack, HookTrigger
from stepwell.messages import Usage
from stepwell.models import (
    Model,
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    StreamPart,
    TextDelta,
    ThinkingDelta,
    UsageReport,
)
from stepwell.models.attempts import close, incomplete, name_of, parts_of
from stepwell.models.soundness import sound
from stepwell.models.turn import ModelTurn
from stepwell.models.turn_retries import TurnRetries, retries_itself
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
            return state, await self._answered(state, request, turn, shows_text)
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
        self, state: AgentState, request: ModelRequest, turn: int, shows_text: bool
    ) -> ModelResponse:
        """Ask, and ask again after a fault that passes. What ends the run ends the turn: then
        ``CutTurn`` has what had arrived."""
        scope = state.scope
        refuse_in_replay(self.model_name)
        if scope.signal is not None:
            raise AgentStop(scope.signal, state=state)
        retries = TurnRetries(
            self.model_name,
            scope,
            max_retries=0 if retries_itself(self._model) else scope.model_retries,
            step_number=state.step_number,
            inference_id=inference_id(state, turn),
        )
        arrived = _Arrived(state, request, retries)

        async def ask(seconds_left: float | None) -> ModelResponse:
            wanted = request
            if seconds_left is not None:
                wanted = replace(request, seconds_left=seconds_left)
            return await self._attempt(state, wanted, arrived if shows_text else None)

        try:
            return await retries.run(ask)
        except AgentStop as stop:
            raise CutTurn(
                stop.signal, state=state, response=arrived.so_far(self.model_name)
            ) from stop

    async def _attempt(
        self, state: AgentState, request: ModelRequest, arrived: "_Arrived | None"
    ) -> ModelResponse:
        scope, name = state.scope, self.model_name
        response: ModelResponse | None = None
        watched = None if scope.watch is None else ModelTurn(name, request, is_of_step=True)
        with scope.guard(around=watched) as guard:
            try:
                if arrived is not None and scope.emitter.hears(StreamEventReceived):
                    streamed = arrived
                    response = await guard.call(
                        lambda: self._streamed(request, streamed), f"model {name}"
                    )
                else:
                    response = await guard.call(lambda: self._whole(request), f"model {name}")
                if watched is not None:
                    watched.response = response
            except asyncio.CancelledError as error:
                if guard.was_cancelled:
                    raise
                raise ModelError(f"model {name} cancelled its own call") from error
        if guard.signal is not None:
            raise AgentStop(guard.signal.while_running(f"the call to {name}"))
        if response is None:
            raise DriverError(f"the call to {name} gave no response")
        return response

    async def _whole(self, request: ModelRequest) -> ModelResponse:
        return sound(await self._model.respond(request), self.model_name)

    async def _streamed(self, request: ModelRequest, arrived: "_Arrived") -> ModelResponse:
        parts = parts_of(self._model, request)
        try:
            async for part in parts:
                if isinstance(part, ResponseEnd):
                    response = sound(part.response, self.model_name)
                    arrived.chunks.end(response)
                    return response
                arrived.add(part)
        finally:
            await close(parts)
        raise incomplete(self.model_name)


class CutTurn(AgentStop):
    """The run ended while the model answered; ``response`` is what had arrived, if anything."""

    def __init__(
        self, signal: StopSignal, *, state: AgentState, response: ModelResponse | None
    ) -> None:
        super().__init__(signal, state=state)
        self.response = response


class _Arrived:
    """What has arrived of a streamed turn."""

    def __init__(self, state: AgentState, request: ModelRequest, retries: TurnRetries) -> None:
        self.chunks = _Chunks(state, holds_json=bool(request.tools))
        self._state = state
        self._retries = retries
        self._report: UsageReport | None = None

    def add(self, part: StreamPart) -> None:
        if isinstance(part, UsageReport):
            self._report = part
            return
        if isinstance(part, TextDelta | ThinkingDelta) and not part.text:
            return
        self._retries.is_final = True
        match part:
            case TextDelta():
                self.chunks.add(part.text)
            case ThinkingDelta():
                self._state.scope.emitter.emit(
                    ThinkingReceived, step_number=self._state.step_number, content=part.text
                )
            case _:
                pass

    def so_far(self, model: str) -> ModelResponse | None:
        """Return the text that was shown and the usage that is known; None without both. Tool calls
        are left out, since they may not be whole."""
        report, text = self._report or UsageReport(Usage()), "".join(self.chunks.shown)
        if not text and not report.usage:
            return None
        return ModelResponse(text=text, usage=report.usage, cost=report.cost, model=model)


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
        self.shown: list[str] = []
        """The pieces that were told."""

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
        self.shown.append(content)
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

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
from stepwell.models.attempts import close, incomplete_stream, name_of, parts_of
from stepwell.models.model import ModelTurn
from stepwell.models.response import check_response
from stepwell.models.turn_retries import TurnRetries, retries_itself
from stepwell.scope import RunScope, refuse_in_replay
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
        self._has_before = self._hooks.has(HookTrigger.BEFORE_INFERENCE)
        self._has_after = self._hooks.has(HookTrigger.AFTER_INFERENCE)

    async def ask(
        self, state: AgentState, request: ModelRequest, *, turn: int = 1, shows_text: bool = True
    ) -> tuple[AgentState, ModelResponse]:
        """The model's answer to what the before-inference hooks made of the request.

        ``turn`` counts the turns of one step, so that each has an inference id of its own. Without
        ``shows_text`` the answer is not streamed, since its text is not meant for the reader.
        """
        given: ModelResponse | None = None
        scope = state.scope
        if self._has_before:
            answer = await self._hooks.run(
                HookContext(trigger=HookTrigger.BEFORE_INFERENCE, state=state, request=request),
                scope,
            )
            state, request, given = answer.state, answer.request or request, answer.response
        emitter = scope.emitter
        if emitter.is_heard:
            emitter.emit(
                InferenceRequestStarted,
                inference_id=inference_id(state, turn),
                step_number=state.step_number,
                model=request.settings.model or self.model_name,
                message_count=len(request.messages),
                tool_count=len(request.tools),
            )
        if given is None:
            return state, await self._request_answer(state, request, turn, shows_text)
        response = check_response(given, "a before_inference hook")
        if shows_text and not repeats_arguments(response.text, response):
            tell_text(response.text, state)
        return state, response

    async def receive(
        self,
        state: AgentState,
        response: ModelResponse,
        *,
        turn: int = 1,
        shown_text: "Callable[[ModelResponse], str]" = text_of_response,
    ) -> tuple[AgentState, ModelResponse]:
        """Return the response after the after-inference hooks. ``shown_text`` is the text for the
        event, because the response may hold secret arguments."""
        scope = state.scope
        if self._has_after:
            answer = await self._hooks.run(
                HookContext(trigger=HookTrigger.AFTER_INFERENCE, state=state, response=response),
                scope,
            )
            state, response = answer.state, answer.response or response
        emitter = scope.emitter
        if emitter.is_heard:
            emitter.emit(
                InferenceResponseReceived,
                inference_id=inference_id(state, turn),
                step_number=state.step_number,
                model=response.model or self.model_name,
                text=shown_text(response),
                tool_call_count=len(response.tool_calls),
                finish_reason=response.finish_reason,
                usage=response.usage,
            )
        return state, response

    async def _request_answer(
        self, state: AgentState, request: ModelRequest, turn: int, shows_text: bool
    ) -> ModelResponse:
        """Ask the model; a fault that passes is retried. What ends the run ends the turn: then
        ``CutTurn`` has what had arrived."""
        scope = state.scope
        refuse_in_replay(self.model_name)
        if (signal := scope.signal) is not None:
            raise AgentStop(signal, state=state)
        arrived: _Arrived | None = None
        if shows_text and scope.emitter.hears(StreamEventReceived):
            arrived = _Arrived(state, request)
        try:
            left = scope.seconds_left
            wanted = request if left is None else replace(request, seconds_left=left)
            return await self._attempt(scope, wanted, arrived)
        except ModelError as error:
            return await self._retry(state, request, turn, arrived, error)
        except AgentStop as stop:
            raise self._cut_turn(stop, state, arrived) from stop

    def _cut_turn(
        self, stop: AgentStop, state: AgentState, arrived: "_Arrived | None"
    ) -> "CutTurn":
        response = None if arrived is None else arrived.so_far(self.model_name)
        return CutTurn(stop.signal, state=state, response=response)

    async def _retry(
        self,
        state: AgentState,
        request: ModelRequest,
        turn: int,
        arrived: "_Arrived | None",
        error: ModelError,
    ) -> ModelResponse:
        """Ask again after a first attempt that failed so, as often as the fault allows it."""
        scope, first = state.scope, [error]
        retries = TurnRetries(
            self.model_name,
            scope,
            max_retries=0 if retries_itself(self._model) else scope.model_retries,
            step_number=state.step_number,
            inference_id=inference_id(state, turn),
        )

        async def ask(seconds_left: float | None) -> ModelResponse:
            wanted = request
            if seconds_left is not None:
                wanted = replace(request, seconds_left=seconds_left)
            try:
                if first:
                    raise first.pop()
                return await self._attempt(scope, wanted, arrived)
            finally:
                retries.is_final = arrived is not None and arrived.is_final

        try:
            return await retries.run(ask)
        except AgentStop as stop:
            raise self._cut_turn(stop, state, arrived) from stop

    async def _attempt(
        self, scope: RunScope, request: ModelRequest, arrived: "_Arrived | None"
    ) -> ModelResponse:
        name = self.model_name
        response: ModelResponse | None = None
        watched = None if scope.watch is None else ModelTurn(name, request, is_of_step=True)
        with scope.guard(around=watched) as guard:
            try:
                if arrived is not None:
                    response = await guard.call(
                        lambda: self._stream(request, arrived), f"model {name}"
                    )
                else:
                    answer = await guard.call(lambda: self._model.respond(request), f"model {name}")
                    response = check_response(answer, name)
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

    async def _stream(self, request: ModelRequest, arrived: "_Arrived") -> ModelResponse:
        parts = parts_of(self._model, request)
        try:
            async for part in parts:
                if isinstance(part, ResponseEnd):
                    response = check_response(part.response, self.model_name)
                    arrived.chunks.end(response)
                    return response
                arrived.add(part)
        finally:
            await close(parts)
        raise incomplete_stream(self.model_name)


class CutTurn(AgentStop):
    """The run ended while the model answered; ``response`` is what had arrived, if anything."""

    def __init__(
        self, signal: StopSignal, *, state: AgentState, response: ModelResponse | None
    ) -> None:
        super().__init__(signal, state=state)
        self.response = response


class _Arrived:
    """What has arrived of a streamed turn."""

    def __init__(self, state: AgentState, request: ModelRequest) -> None:
        self.chunks = _Chunks(state, holds_json=bool(request.tools))
        self._state = state
        self.is_final = False
        """Whether a part was shown, so that the turn can't be asked again."""
        self._report: UsageReport | None = None

    def add(self, part: StreamPart) -> None:
        if isinstance(part, UsageReport):
            self._report = part
            return
        if isinstance(part, TextDelta | ThinkingDelta) and not part.text:
            return
        self.is_final = True
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
        """The pieces that were emitted."""

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

"""The usual driver: the model's native tool calling.

Compile the messages to a request, ask the model (streaming if anyone listens to the stream), run
the calls, and describe it all as a step.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from msgspec import DecodeError, json
from msgspec.structs import replace

from stepwell.continuation import AgentStop
from stepwell.errors import DriverError, ErrorType, HookError, ModelError
from stepwell.events import (
    InferenceRequestStarted,
    InferenceResponseReceived,
    StreamEventReceived,
)
from stepwell.hooks import HookContext, HookStack, HookTrigger, signal_of
from stepwell.messages import Message, Part, Role, TextPart, ToolCall, ToolResult, Usage
from stepwell.models import (
    CachedContext,
    Model,
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    StreamPart,
    TextDelta,
)
from stepwell.state import AgentState, AgentStep, ErrorInfo, ToolExecution
from stepwell.tools import ToolBatch, ToolExecutor

WRAP_UP = Message.system(
    "The limit of this run is reached and no tool can be called any more. Answer now, as well as "
    "you can with what you know, and say what is left undone."
)


class ToolCallingDriver:
    """Drives a model that calls tools natively."""

    def __init__(
        self,
        model: Model,
        executor: ToolExecutor,
        *,
        hooks: HookStack | None = None,
        context: CachedContext | None = None,
    ) -> None:
        self._model = model
        self._name: str = getattr(model, "name", type(model).__name__)
        self._streams = callable(getattr(model, "stream", None))
        self._executor = executor
        self._hooks = hooks or HookStack()
        self._context = context or CachedContext()

    async def use_tools(self, state: AgentState) -> AgentState:
        """One model turn and the tool calls it asks for."""
        state, request = await self._prepared(state)
        response = await self._asked(state, request)
        try:
            state, response = await self._received(state, response)
        except (AgentStop, HookError) as stop:
            raise self._cut_short(state, response, stop) from stop
        calls = with_usable_ids(response.tool_calls, state)
        batch = await self._run_tools(calls, state) if calls else ToolBatch(state=state)
        return batch.state.with_current_step(_step(batch, response, calls))

    async def _prepared(self, state: AgentState) -> tuple[AgentState, ModelRequest]:
        wraps_up = is_wrapping_up(state)
        request = ModelRequest(
            messages=state.messages,
            context=self._context,
            tools=() if wraps_up else self._executor.tools.schemas,
            response_format=self._context.response_format,
            instruction=WRAP_UP if wraps_up else None,
        )
        if self._hooks.has(HookTrigger.BEFORE_INFERENCE):
            answer = await self._hooks.run(
                HookContext(trigger=HookTrigger.BEFORE_INFERENCE, state=state, request=request),
                state.scope,
            )
            state, request = answer.state, answer.request or request
        emitter = state.scope.emitter
        if emitter.is_heard:
            emitter.emit(
                InferenceRequestStarted,
                inference_id=inference_id(state),
                step_number=state.step_number,
                model=self._name,
                message_count=len(request.messages),
                tool_count=len(request.tools),
            )
        return state, request

    async def _asked(self, state: AgentState, request: ModelRequest) -> ModelResponse:
        """The model's answer; a deadline or a cancellation ends the wait and the run."""
        scope = state.scope
        if scope.signal is not None:
            raise AgentStop(scope.signal, state=state)
        response: ModelResponse | None = None
        with scope.guard() as guard:
            try:
                if scope.emitter.hears(StreamEventReceived):
                    response = await self._streamed(state, request)
                else:
                    response = sound(await self._model.respond(request), self._name)
            except asyncio.CancelledError as error:
                if guard.was_cancelled:
                    raise
                raise ModelError(f"model {self._name} cancelled its own call") from error
        if guard.signal is not None:
            raise AgentStop(guard.signal.while_running(f"the call to {self._name}"), state=state)
        if response is None:
            raise DriverError(f"the call to {self._name} gave no response")
        return response

    async def _streamed(self, state: AgentState, request: ModelRequest) -> ModelResponse:
        emitter, number, index = state.scope.emitter, state.step_number, 0
        async for part in self._parts(request):
            match part:
                case TextDelta():
                    emitter.emit(
                        StreamEventReceived,
                        step_number=number,
                        content=part.text,
                        chunk_index=index,
                        is_complete=False,
                    )
                    index += 1
                case ResponseEnd():
                    if index:
                        emitter.emit(
                            StreamEventReceived,
                            step_number=number,
                            content="",
                            chunk_index=index,
                            is_complete=True,
                        )
                    return sound(part.response, self._name)
                case _:
                    pass
        raise ModelError(f"the stream of {self._name} ended without its final part")

    async def _parts(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The model's stream; a model that can't stream gives its whole answer as one part."""
        if self._streams:
            async for part in self._model.stream(request):
                yield part
            return
        response = sound(await self._model.respond(request), self._name)
        if response.text:
            yield TextDelta(response.text)
        yield ResponseEnd(response)

    async def _received(
        self, state: AgentState, response: ModelResponse
    ) -> tuple[AgentState, ModelResponse]:
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
                inference_id=inference_id(state),
                step_number=state.step_number,
                model=response.model or self._name,
                text=response.text,
                tool_call_count=len(response.tool_calls),
                finish_reason=response.finish_reason,
                usage=response.usage,
            )
        return state, response

    def _cut_short(
        self, state: AgentState, response: ModelResponse, stop: AgentStop | HookError
    ) -> AgentStop:
        """A hook ended the run after the model had answered: what was said and paid is kept."""
        signal = stop.signal if isinstance(stop, AgentStop) else signal_of(stop)
        state = stop.state if isinstance(stop.state, AgentState) else state
        calls = with_usable_ids(response.tool_calls, state)
        batch = self._executor.skip(calls, state, signal)
        step = _step(batch, response, calls)
        if isinstance(stop, HookError):
            failure = ErrorInfo.from_exception(stop, ErrorType.UNKNOWN)
            step = replace(step, failures=(failure,))
        return AgentStop(signal, state=state.with_current_step(step))

    async def _run_tools(self, calls: tuple[ToolCall, ...], state: AgentState) -> ToolBatch:
        if is_wrapping_up(state):
            return self._executor.refuse(calls, state, "no tool can be called any more")
        return await self._executor.run(calls, state)


def sound(response: Any, model: str) -> ModelResponse:
    """What a model returned, if it is a response whose parts are what they should be."""
    if (
        type(response) is ModelResponse
        and type(response.text) is str
        and type(response.usage) is Usage
        and type(response.cost) is float
        and _are_sound(response.tool_calls)
    ):
        return response
    if isinstance(response, ModelResponse) and cast("Any", response.text) is None:
        return sound(replace(response, text=""), model)
    raise ModelError(f"model {model} returned {_what_is_wrong(response)}")


def _are_sound(calls: Any) -> bool:
    if type(calls) is not tuple:
        return False
    for call in cast("tuple[Any, ...]", calls):
        is_call = type(call) is ToolCall
        if not is_call or not (type(call.arguments) is dict or isinstance(call.arguments, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]
            return False
    return True


def _what_is_wrong(response: Any) -> str:
    if not isinstance(response, ModelResponse):
        return (
            f"a {type(response).__name__}; its respond() must be async and return a ModelResponse"
        )
    if type(response.text) is not str:
        return f"a {type(response.text).__name__} as text"
    if type(response.usage) is not Usage:
        return f"{response.usage!r:.80} as usage; give a Usage"
    if type(response.cost) is not float:
        return f"{response.cost!r:.80} as cost; give a float"
    return (
        f"{response.tool_calls!r:.120} as tool_calls; give a tuple of ToolCall whose arguments are "
        "a dict, or malformed=text where they could not be parsed"
    )


def is_wrapping_up(state: AgentState) -> bool:
    """Whether this is the last step after a limit, which answers without tools."""
    return state.execution is not None and state.execution.wrapping_up


def inference_id(state: AgentState) -> str:
    """Names the one model turn of the step in flight."""
    return f"{_prefix(state)}:inference"


def with_usable_ids(calls: Sequence[ToolCall], state: AgentState) -> tuple[ToolCall, ...]:
    """The calls, each with an id of its own; some providers give none or repeat them."""
    if len(calls) == 1 and calls[0].id:
        return (calls[0],)
    seen: set[str] = set()
    usable: list[ToolCall] = []
    for index, given in enumerate(calls, start=1):
        is_usable = bool(given.id) and given.id not in seen
        call = given if is_usable else replace(given, id=_call_id(state, index))
        seen.add(call.id)
        usable.append(call)
    return tuple(usable)


def step_messages(
    state: AgentState, parts: tuple[Part, ...], executions: Sequence[ToolExecution]
) -> tuple[Message, ...]:
    """The assistant's message, then one result per call, with ids that never change."""
    if not parts:
        return ()
    prefix = _prefix(state)
    messages = [Message(role=Role.ASSISTANT, parts=parts, id=f"{prefix}:0")]
    for index, execution in enumerate(executions, start=1):
        result = ToolResult(
            call_id=execution.call.id,
            tool_name=execution.call.name,
            content=execution.text,
            is_error=execution.is_error,
        )
        messages.append(Message(role=Role.TOOL, parts=(result,), id=f"{prefix}:{index}"))
    return tuple(messages)


def spent(usage: Usage, cost: float, executions: Sequence[ToolExecution]) -> tuple[Usage, float]:
    """What the model turn used, with what the tools (subagents, say) used in turn."""
    for execution in executions:
        usage, cost = usage + execution.usage, cost + execution.cost
    return usage, cost


def _step(batch: ToolBatch, response: ModelResponse, calls: tuple[ToolCall, ...]) -> AgentStep:
    state, executions = batch.state, batch.executions
    text = "" if _repeats_arguments(response.text, calls) else response.text
    said: tuple[Part, ...] = (TextPart(text), *calls) if text else calls
    usage, cost = spent(response.usage, response.cost, executions)
    return AgentStep(
        messages=step_messages(state, (*response.thinking, *said), executions),
        tool_executions=executions,
        failures=batch.failures,
        usage=usage,
        cost=cost,
        finish_reason=response.finish_reason,
        model=response.model,
    )


def _repeats_arguments(text: str, calls: Sequence[ToolCall]) -> bool:
    """Whether the text is only the arguments of a call, leaked into the content."""
    if not calls or not text.lstrip().startswith("{"):
        return False
    try:
        leaked = json.decode(text)
    except DecodeError:
        return False
    return any(leaked == call.arguments for call in calls)


def _call_id(state: AgentState, index: int) -> str:
    """Short and plain: providers accept letters, digits, _ and -, some at most 40 of them."""
    owner = state.agent_id if state.execution is None else state.execution.id
    return f"call_{owner[-12:]}_{state.step_number}_{index}"


def _prefix(state: AgentState) -> str:
    owner = state.agent_id if state.execution is None else state.execution.id
    return f"{owner}:{state.step_number}"

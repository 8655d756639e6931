"""The usual driver: the model's native tool calling.

Compile the messages to a request, ask the model (streaming if anyone listens to the stream), run
the calls, and describe it all as a step.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from stepwell.continuation import AgentStop
from stepwell.drivers.inference import CutTurn, Inference, repeats_arguments, step_prefix, tell_text
from stepwell.errors import ConfigurationError, ErrorType, HookError
from stepwell.hooks import HookStack, signal_of
from stepwell.messages import (
    FinishReason,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
)
from stepwell.models import (
    CachedContext,
    Model,
    ModelRequest,
    ModelResponse,
    ModelSettings,
)
from stepwell.models.settings import NO_SETTINGS
from stepwell.state import AgentState, AgentStep, ErrorInfo, ToolExecution
from stepwell.state.given_state import state_of
from stepwell.tools import ToolBatch, ToolExecutor

WRAP_UP = Message.system(
    "The limit of this run is reached and no tool can be called any more. Answer now, as well as "
    "you can with what you know, and say what is left undone."
)


ANSWER_AGAIN = Message.system(
    "Your last reply was empty: it had neither text nor a tool call. Answer now; if nothing is "
    "left to be done, say what was done."
)


class ToolCallingDriver:
    """Drives a model that calls tools natively. ``Agent(model)`` makes one by itself.

    >>> from stepwell import Agent
    >>> from stepwell.testing import ScriptedModel
    >>> agent = Agent(driver=ToolCallingDriver(ScriptedModel(["Four."])), system_prompt="Count.")
    >>> agent.run_sync("What is 2 + 2?").final_response
    'Four.'
    """

    def __init__(
        self,
        model: Model,
        executor: ToolExecutor | None = None,
        *,
        hooks: HookStack | None = None,
        context: CachedContext | None = None,
        settings: ModelSettings = NO_SETTINGS,
    ) -> None:
        check_model(model, "ToolCallingDriver")
        self._model = model
        self.hooks = hooks or HookStack()
        """What runs around each model turn."""
        self._inference = Inference(model, hooks=self.hooks)
        self._executor = executor or ToolExecutor()
        self._context = context or CachedContext()
        self._settings = settings

    def bound_to(
        self,
        executor: ToolExecutor,
        *,
        hooks: HookStack | None = None,
        context: CachedContext | None = None,
        settings: ModelSettings | None = None,
    ) -> "ToolCallingDriver":
        """The same driver inside an agent: its own context stands behind the agent's, and its own
        settings win."""
        return ToolCallingDriver(
            self._model,
            executor,
            hooks=hooks,
            context=self._context.behind(context),
            settings=self._settings.over(settings or NO_SETTINGS),
        )

    @property
    def executor(self) -> ToolExecutor:
        """What runs its calls, also those that are taken up again after a pause."""
        return self._executor

    async def use_tools(self, state: AgentState) -> AgentState:
        """One model turn and the tool calls it asks for."""
        tells_text = not self._executor.tools.have_secrets
        try:
            state, response = await self._inference.ask(
                state, self._request(state), shows_text=tells_text
            )
        except CutTurn as cut:
            if cut.response is None:
                raise
            raise AgentStop(cut.signal, state=self._with_cut_step(cut.state, cut.response)) from cut
        if not tells_text:  # what is said before a call may hold its secret
            response = self._without_secrets(response)
            tell_text(self._shown_text(response), state)
        try:
            state, response = await self._inference.receive(
                state, response, shown_text=self._shown_text
            )
        except (AgentStop, HookError) as stop:
            raise self._cut_short(state, response, stop) from stop
        calls = with_usable_ids(response.tool_calls, state)
        if not calls:
            batch = ToolBatch(state=state)
        elif state.execution is not None and state.execution.wrapping_up:
            batch = self._executor.refuse(calls, state, "no tool can be called any more")
        else:
            cut = cut_note(response, self._settings.max_tokens)
            batch = await self._executor.run(calls, state, cut_note=cut)
        return batch.state.with_current_step(self._step(batch, response, calls))

    def _request(self, state: AgentState) -> ModelRequest:
        execution = state.execution
        wraps_up = execution is not None and execution.wrapping_up
        return ModelRequest(
            messages=state.messages,
            context=self._context,
            tools=() if wraps_up else self._executor.tools.visible_to(state.context).schemas,
            response_format=self._context.response_format,
            instruction=WRAP_UP if wraps_up else instruction_after(state),
            settings=self._settings,
        )

    def _without_secrets(self, response: ModelResponse) -> ModelResponse:
        """Thinking that tells a secret is let go: it is signed as a whole."""
        calls, clean = response.tool_calls, self._executor.redact_text
        thinking = tuple(it for it in response.thinking if clean(it.text, calls) == it.text)
        if self._hides_all(response):
            thinking = ()
        return replace(response, thinking=thinking)

    def _hides_all(self, response: ModelResponse) -> bool:
        """An incomplete call may hold a secret that can't be distinguished from the rest."""
        tools = self._executor.tools
        return any(
            call.malformed is not None and tools.secret_arguments(call.name)
            for call in response.tool_calls
        )

    def _shown_text(self, response: ModelResponse) -> str:
        """The text, unless it only repeats arguments, and without those that are secret."""
        if not response.tool_calls:
            return response.text
        if response.text and repeats_arguments(response.text, response):
            return ""
        if not self._executor.tools.have_secrets:
            return response.text
        if self._hides_all(response):
            return ""
        return self._executor.redact_text(response.text, response.tool_calls)

    def _cut_short(
        self, state: AgentState, response: ModelResponse, stop: AgentStop | HookError
    ) -> AgentStop:
        """A hook ended the run after the model had answered: what was said and paid is kept."""
        signal = stop.signal if isinstance(stop, AgentStop) else signal_of(stop)
        state = state_of(stop.state) or state
        calls = with_usable_ids(response.tool_calls, state)
        batch = self._executor.skip(calls, state, signal)
        step = self._step(batch, response, calls)
        if isinstance(stop, HookError):
            failure = ErrorInfo.from_exception(stop, ErrorType.UNKNOWN)
            step = replace(step, failures=(failure,))
        return AgentStop(signal, state=state.with_current_step(step))

    def _with_cut_step(self, state: AgentState, response: ModelResponse) -> AgentState:
        """Keep what had arrived when the run ended, marked as incomplete."""
        step = self._step(ToolBatch(state=state), response, ())
        return state.with_current_step(step.marked_incomplete())

    def _step(
        self, batch: ToolBatch, response: ModelResponse, calls: tuple[ToolCall, ...]
    ) -> AgentStep:
        state, executions = batch.state, batch.executions
        text = self._shown_text(response)
        if not calls and not text.strip():  # providers refuse to be sent a blank answer
            text = ""
        usage, cost = spent(response.usage, response.cost, executions)
        if self._executor.tools.have_secrets:
            calls = tuple([self._executor.tools.redact_call(call) for call in calls])
        return AgentStep(
            messages=step_messages(state, _message_parts(response, text, calls), executions),
            tool_executions=executions,
            failures=batch.failures,
            usage=usage,
            cost=cost,
            finish_reason=response.finish_reason,
            model=response.model,
        )


def instruction_after(state: AgentState) -> Message | None:
    """The instruction for one turn after an empty step."""
    recorded = None if state.execution is None else state.execution.steps.last
    if recorded is None or recorded.step.tool_executions or not recorded.step.is_empty:
        return None
    return None if recorded.step.was_cut else ANSWER_AGAIN


def cut_note(response: ModelResponse, max_tokens: int | None) -> str:
    """The result of calls that are invalid because the reply was cut off."""
    if response.finish_reason is not FinishReason.LENGTH:
        return ""
    limit = max_tokens or response.usage.output_tokens
    at = f" of {limit} tokens" if limit else ""
    return (
        f"Your reply was cut off at the output limit{at}, so the arguments are not whole. Send "
        "less at once: shorten them, or split the work into several smaller calls."
    )


def check_model(model: object, driver: str) -> None:
    """Refuse what a driver could not ask."""
    if isinstance(model, type) or not callable(getattr(model, "respond", None)):
        raise ConfigurationError(
            f"{model!r} is not a model; give a {driver} an object with a respond(request) method"
        )


def is_wrapping_up(state: AgentState) -> bool:
    """Whether this is the last step after a limit, which answers without tools."""
    return state.execution is not None and state.execution.wrapping_up


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
    prefix = step_prefix(state)
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


def _message_parts(
    response: ModelResponse, text: str, calls: tuple[ToolCall, ...]
) -> tuple[Part, ...]:
    """The parts of the message: thinking, text, calls, or in the order in which they were given,
    unless a hook changed what that tells of."""
    usual = (*response.thinking, *((TextPart(text),) if text else ()), *calls)
    if not response.parts:
        return usual
    thought = tuple(part for part in response.parts if isinstance(part, ThinkingPart))
    spoken = "".join(part.text for part in response.parts if isinstance(part, TextPart))
    given = tuple(part for part in response.parts if isinstance(part, ToolCall))
    if (thought, spoken, given) != (response.thinking, text, response.tool_calls):
        return usual
    usable = iter(calls)
    return tuple(next(usable) if isinstance(p, ToolCall) else p for p in response.parts)


def _call_id(state: AgentState, index: int) -> str:
    """Short and plain: providers accept letters, digits, _ and -, some at most 40 of them."""
    owner = state.agent_id if state.execution is None else state.execution.id
    return f"call_{owner[-12:]}_{state.step_number}_{index}"

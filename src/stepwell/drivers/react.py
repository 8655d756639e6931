"""The driver for models without native tool calling: one decision per step, written as JSON.

It asks for a decision, runs the tool it names or ends with its answer, and describes it all as a
step like any other. The model is sent plain text only; the state keeps ordinary tool calls.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from stepwell.continuation import AgentStop
from stepwell.drivers.inference import CutTurn, Inference, tell_text
from stepwell.drivers.react_decision import (
    PlainMessages,
    ReActDecision,
    Unusable,
    decision_format,
    format_instruction,
    read_decision,
)
from stepwell.drivers.react_turns import Turns, tell_thoughts
from stepwell.drivers.tool_calling import (
    WRAP_UP,
    check_model,
    is_wrapping_up,
    with_usable_ids,
)
from stepwell.errors import (
    ConfigurationError,
    ErrorType,
    HookError,
    ModelError,
    StepwellError,
    ToolNotFoundError,
)
from stepwell.hooks import HookStack, signal_of
from stepwell.messages import FinishReason, Message, ToolCall
from stepwell.models import (
    CachedContext,
    Model,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ResponseFormat,
)
from stepwell.models.settings import NO_SETTINGS
from stepwell.state import AgentState, ErrorInfo, ToolOutcome
from stepwell.state.given_state import state_of
from stepwell.tools import ToolBatch, ToolExecutor, Tools

DEFAULT_EXTRACTION_RETRIES = 2
DECIDE_TO_ANSWER = "Decide for the final answer now."
ANSWER_NOW = (
    "You have decided to answer. Write your answer to the user now, as it should be read: the "
    "answer itself, not a decision."
)


class ReActDriver:
    """Drives a model that can't call tools itself: it decides in JSON, and reads observations.

    A reply that is no decision is asked for again, ``max_extraction_retries`` times; then the step
    fails with a validation error. With ``final_via_inference`` the answer comes from a turn of its
    own, as plain text that can be streamed.

    >>> from stepwell import Agent
    >>> from stepwell.testing import ScriptedModel
    >>> model = ScriptedModel(['{"thought": "Easy.", "type": "final_answer", "answer": "Four."}'])
    >>> Agent(driver=ReActDriver(model)).run_sync("What is 2 + 2?").final_response
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
        max_extraction_retries: int = DEFAULT_EXTRACTION_RETRIES,
        final_via_inference: bool = False,
    ) -> None:
        check_model(model, "ReActDriver")
        if not isinstance(max_extraction_retries, int) or max_extraction_retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"max_extraction_retries must be 0 or more, got {max_extraction_retries!r}"
            )
        self._model = model
        self._executor = executor or ToolExecutor()
        self.hooks = hooks or HookStack()
        """What runs around each model turn."""
        self._inference = Inference(model, hooks=self.hooks)
        self._context = context or CachedContext()
        self._settings = _without_tool_settings(settings)
        self._max_extraction_retries = max_extraction_retries
        self._final_via_inference = final_via_inference
        self._starts: dict[tuple[str, ...], CachedContext] = {}

    def bound_to(
        self,
        executor: ToolExecutor,
        *,
        hooks: HookStack | None = None,
        context: CachedContext | None = None,
        settings: ModelSettings | None = None,
    ) -> "ReActDriver":
        """The same driver inside an agent: its own context stands behind the agent's, and its own
        settings win."""
        return ReActDriver(
            self._model,
            executor,
            hooks=hooks,
            context=self._context.behind(context),
            settings=self._settings.over(settings or NO_SETTINGS),
            max_extraction_retries=self._max_extraction_retries,
            final_via_inference=self._final_via_inference,
        )

    @property
    def executor(self) -> ToolExecutor:
        """What runs its calls, also those that are taken up again after a pause."""
        return self._executor

    async def use_tools(self, state: AgentState) -> AgentState:
        """One decision, and the tool call or the answer it leads to."""
        turns = Turns(self._inference, state, tells_text=not self._executor.tools.have_secrets)
        try:
            decision = await self._decide(turns)
        except (AgentStop, HookError) as stop:
            if isinstance(stop, CutTurn) and stop.response is not None:
                turns.keep_cut(stop.response)
            if not turns.count:
                raise
            raise self._cut_short(turns, stop) from stop
        except (StepwellError, OSError) as error:
            if not turns.count:
                raise
            return turns.state.with_current_step(turns.failed_step(error))
        calls = _calls(decision, turns.state)
        batch = await self._run(calls, turns.state) if calls else ToolBatch(state=turns.state)
        return batch.state.with_current_step(turns.step(decision, self._redact(calls), batch))

    # Asking

    async def _decide(self, turns: Turns) -> ReActDecision:
        """What the model decided, with its answer if it has one; emitted to listeners."""
        decision = turns.decision = await self._first_usable(turns)
        tell_thoughts(decision, turns)
        if decision.call is not None:
            return decision
        if not self._final_via_inference:
            tell_text(decision.answer, turns.state)
            return decision
        form = self._context.response_format
        request = self._request(turns.state, form, _instruction(turns.state, ANSWER_NOW))
        response = await turns.ask(request, shows_text=True)
        return replace(decision, answer=response.text)

    async def _first_usable(self, turns: Turns) -> ReActDecision:
        complaint = ""
        for _ in range(self._max_extraction_retries + 1):
            wraps_up = is_wrapping_up(turns.state)
            texts = (DECIDE_TO_ANSWER if wraps_up else "", _asking_again(complaint))
            form = self._format(() if wraps_up else self._visible(turns.state).names)
            request = self._request(turns.state, form, _instruction(turns.state, *texts))
            response = await turns.ask(request, shows_text=False)
            decision = self._read(response, turns.state)
            if isinstance(decision, ReActDecision):
                return decision
            complaint = decision.problem
            if not turns.tells_text:  # it quotes the reply
                complaint = "the reply is not a decision as it was explained"
            if response.finish_reason is FinishReason.LENGTH:
                complaint += "; it was cut off at the limit of tokens, so be brief"
        raise ModelError(
            f"{self._inference.model_name} gave no usable decision in {turns.count} "
            f"{'reply' if turns.count == 1 else 'replies'}; the last time {complaint}",
            error_type=ErrorType.VALIDATION,
        )

    def _read(self, response: ModelResponse, state: AgentState) -> ReActDecision | Unusable:
        return read_decision(
            response.text,
            self._visible(state).names,
            needs_answer=not self._final_via_inference,
        )

    def _visible(self, state: AgentState) -> Tools:
        return self._executor.tools.visible_to(state.context)

    def _request(
        self,
        state: AgentState,
        form: ResponseFormat | Mapping[str, Any] | None,
        instruction: Message | None,
    ) -> ModelRequest:
        return ModelRequest(
            messages=PlainMessages(state.messages),
            context=self._start_of_prompt(self._visible(state)),
            response_format=form,
            instruction=instruction,
            settings=self._settings,
        )

    def _start_of_prompt(self, tools: Tools) -> CachedContext:
        """The same for every turn with these tools, so that a provider's prompt cache hits."""
        start = self._starts.get(tools.names)
        if start is None:
            given = self._context.response_format
            instruction = format_instruction(
                tools.schemas,
                needs_answer=not self._final_via_inference,
                answer_format=None if given is None else ResponseFormat.of(given),
            )
            start = CachedContext(messages=(*PlainMessages(self._context.messages), instruction))
            self._starts[tools.names] = start
        return start

    def _format(self, names: tuple[str, ...]) -> ResponseFormat:
        return decision_format(names, needs_answer=not self._final_via_inference)

    # Acting

    async def _run(self, calls: tuple[ToolCall, ...], state: AgentState) -> ToolBatch:
        if is_wrapping_up(state):
            return self._executor.refuse(calls, state, "no tool can be called any more")
        batch = await self._executor.run(calls, state)
        unknown = [e.call.name for e in batch.executions if e.outcome is ToolOutcome.NOT_FOUND]
        if not unknown:
            return batch
        # The decision does not fit its schema, which names the tools: for this driver an error.
        error = ToolNotFoundError(unknown[0], self._executor.tools.names)
        failure = ErrorInfo.from_exception(error, ErrorType.TOOL, tool_name=error.name)
        return replace(batch, failures=(*batch.failures, failure))

    def _redact(self, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        return tuple([self._executor.tools.redact_call(call) for call in calls])

    def _cut_short(self, turns: Turns, stop: AgentStop | HookError) -> AgentStop:
        """The run ends between or after turns: what was said and paid is kept."""
        signal = stop.signal if isinstance(stop, AgentStop) else signal_of(stop)
        state = state_of(stop.state) or turns.state
        decision = self._unfinished(turns)
        calls = _calls(decision, state)
        batch = self._executor.skip(calls, state, signal)
        step = turns.step(decision, self._redact(calls), batch)
        if isinstance(stop, HookError):
            failure = ErrorInfo.from_exception(stop, ErrorType.UNKNOWN)
            step = replace(step, failures=(failure,))
        if isinstance(stop, CutTurn):
            step = step.marked_incomplete()
        return AgentStop(signal, state=state.with_current_step(step))

    def _unfinished(self, turns: Turns) -> ReActDecision:
        """As much of a decision as the last reply held; hooks stopped the run before it counted."""
        if turns.last is None:
            return ReActDecision()
        if turns.decision is not None:
            return replace(turns.decision, answer=turns.last.text)
        decision = self._read(turns.last, turns.state)
        return decision if isinstance(decision, ReActDecision) else ReActDecision()


def _without_tool_settings(settings: ModelSettings) -> ModelSettings:
    """Raise for settings of native tool calling that a driver with one free decision per step can't
    honour; those that it honours anyway are not sent."""
    if settings.tool_choice not in (None, "auto"):
        raise ConfigurationError(
            f"ReActDriver can't honour tool_choice={settings.tool_choice!r}: its model decides in "
            "text between a tool and the answer. Leave it out, or use a ToolCallingDriver"
        )
    if settings.parallel_tool_calls:
        raise ConfigurationError(
            "ReActDriver can't honour parallel_tool_calls=True: it runs one call per step. Leave "
            "it out, or use a ToolCallingDriver"
        )
    return replace(settings, tool_choice=None, parallel_tool_calls=None)


def _calls(decision: ReActDecision, state: AgentState) -> tuple[ToolCall, ...]:
    return () if decision.call is None else with_usable_ids((decision.call,), state)


def _instruction(state: AgentState, *texts: str) -> Message | None:
    """Said for one turn only; that the run ends, if it does, first."""
    lines = [WRAP_UP.text, *texts] if is_wrapping_up(state) else texts
    text = "\n".join(line for line in lines if line)
    return Message.system(text, id="react:now") if text else None


def _asking_again(complaint: str) -> str:
    if not complaint:
        return ""
    return (
        f"Your last reply could not be used: {complaint}. Reply again with one JSON object, as it "
        "was explained to you, and nothing else."
    )

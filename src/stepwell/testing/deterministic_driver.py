"""A driver that takes scripted steps with real tools. Its place in the script is in the state."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stepwell.drivers.inference import tell_text
from stepwell.drivers.tool_calling import is_wrapping_up, spent, step_messages, with_usable_ids
from stepwell.errors import ErrorType, StepwellError
from stepwell.hooks import HookStack
from stepwell.messages import FinishReason, TextPart, ToolCall, Usage
from stepwell.models import CachedContext, ModelSettings
from stepwell.state import AgentState, AgentStep, ErrorInfo, StepType, ToolExecution, ToolOutcome
from stepwell.tools import ToolBatch, ToolExecutor

CURSOR = "stepwell.testing.cursor"
"""The metadata key under which a state remembers its place in the script."""

DEFAULT_RESPONSE = "(no script)"
NO_USAGE = Usage()


class ScenarioStep(Struct, frozen=True, kw_only=True):
    """One step of a script.

    >>> ScenarioStep.tool_call("add", {"a": 1}).type
    <StepType.TOOL_EXECUTION: 'tool_execution'>
    """

    type: StepType
    response: str = ""
    calls: tuple[ToolCall, ...] = ()
    executes_tools: bool = True
    usage: Usage = Usage()
    cost: float = 0.0
    error_type: ErrorType = ErrorType.MODEL

    @classmethod
    def final(cls, response: str, *, usage: Usage = NO_USAGE, cost: float = 0.0) -> "ScenarioStep":
        """The model answers without calling tools."""
        return cls(type=StepType.FINAL_RESPONSE, response=response, usage=usage, cost=cost)

    @classmethod
    def tool(cls, response: str = "", *, usage: Usage = NO_USAGE) -> "ScenarioStep":
        """The model calls a tool of which only the call matters; nothing is run."""
        return cls.tool_call("scripted", {}, response=response, usage=usage, executes_tools=False)

    @classmethod
    def error(
        cls,
        message: str,
        *,
        error_type: ErrorType | str = ErrorType.MODEL,
        usage: Usage = NO_USAGE,
    ) -> "ScenarioStep":
        """The step fails."""
        return cls(
            type=StepType.ERROR, response=message, error_type=ErrorType(error_type), usage=usage
        )

    @classmethod
    def tool_call(
        cls,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        response: str = "",
        usage: Usage = NO_USAGE,
        cost: float = 0.0,
        executes_tools: bool = True,
    ) -> "ScenarioStep":
        """The model calls one tool, which is run for real unless ``executes_tools`` is false."""
        call = ToolCall(id="", name=name, arguments=arguments or {})
        return cls.tool_calls(
            call, response=response, usage=usage, cost=cost, executes_tools=executes_tools
        )

    @classmethod
    def tool_calls(
        cls,
        *calls: ToolCall,
        response: str = "",
        usage: Usage = NO_USAGE,
        cost: float = 0.0,
        executes_tools: bool = True,
    ) -> "ScenarioStep":
        """The model calls several tools at once."""
        return cls(
            type=StepType.TOOL_EXECUTION,
            response=response,
            calls=calls,
            executes_tools=executes_tools,
            usage=usage,
            cost=cost,
        )


class DeterministicAgentDriver:
    """Replays a script. More steps than scripted repeat the last one, unless it is strict.

    >>> driver = DeterministicAgentDriver.from_responses("First.", "Second.")
    >>> driver.steps[1].response
    'Second.'
    """

    asks_model = False

    def __init__(
        self,
        *steps: ScenarioStep,
        executor: ToolExecutor | None = None,
        strict: bool = False,
        child_steps: tuple[ScenarioStep, ...] = (),
        default_response: str = DEFAULT_RESPONSE,
    ) -> None:
        self.steps = steps
        self._executor = executor or ToolExecutor()
        self._strict = strict
        self._child_steps = child_steps
        self._default_response = default_response

    @classmethod
    def from_responses(cls, *responses: str, strict: bool = False) -> "DeterministicAgentDriver":
        """One final step for each response."""
        return cls(*(ScenarioStep.final(text) for text in responses), strict=strict)

    @classmethod
    def from_steps(
        cls,
        *steps: ScenarioStep,
        strict: bool = False,
        child_steps: tuple[ScenarioStep, ...] = (),
    ) -> "DeterministicAgentDriver":
        """These steps; ``child_steps`` are what subagents of the agent replay."""
        return cls(*steps, strict=strict, child_steps=child_steps)

    def bound_to(
        self,
        executor: ToolExecutor,
        *,
        hooks: HookStack | None = None,
        context: CachedContext | None = None,
        settings: ModelSettings | None = None,
    ) -> "DeterministicAgentDriver":
        """The same script, with the agent's tools; it asks no model, so the rest is not needed."""
        return DeterministicAgentDriver(
            *self.steps,
            executor=executor,
            strict=self._strict,
            child_steps=self._child_steps,
            default_response=self._default_response,
        )

    @property
    def executor(self) -> ToolExecutor:
        """What runs the calls of the script."""
        return self._executor

    def for_child(self) -> "DeterministicAgentDriver":
        """The driver of a subagent, which replays the child steps."""
        return DeterministicAgentDriver(
            *self._child_steps, strict=self._strict, default_response=self._default_response
        )

    async def use_tools(self, state: AgentState) -> AgentState:
        """The next step of the script."""
        place = int(state.metadata.get(CURSOR, 0))
        scripted = self._step_at(place)
        state = state.with_metadata({CURSOR: place + 1})
        if scripted.type is StepType.ERROR:
            error = ErrorInfo(
                type=scripted.error_type, exception="ScriptedError", message=scripted.response
            )
            return state.with_current_step(AgentStep(failures=(error,), usage=scripted.usage))
        tell_text(scripted.response, state)
        calls = with_usable_ids(_with_ids(scripted.calls, place), state)
        batch = ToolBatch(state=state)
        if calls and is_wrapping_up(state):
            batch = self._executor.refuse(calls, state, "no tool can be called any more")
        elif calls and scripted.executes_tools:
            batch = await self._executor.run(calls, state)
        shown = tuple(self._executor.tools.redact_call(call) for call in calls)
        return batch.state.with_current_step(_step(scripted, batch, shown))

    def _step_at(self, place: int) -> ScenarioStep:
        if not self.steps:
            return ScenarioStep.final(self._default_response)
        if place < len(self.steps):
            return self.steps[place]
        if self._strict:
            raise StepwellError(
                f"the script has {len(self.steps)} steps, and step {place + 1} was asked for; add "
                "steps, stop the run earlier, or leave out strict=True to repeat the last one"
            )
        return self.steps[-1]


def _with_ids(calls: tuple[ToolCall, ...], place: int) -> tuple[ToolCall, ...]:
    return tuple(
        call if call.id else replace(call, id=f"call_{place + 1}_{index}")
        for index, call in enumerate(calls, start=1)
    )


def _step(scripted: ScenarioStep, batch: ToolBatch, calls: tuple[ToolCall, ...]) -> AgentStep:
    said = (TextPart(scripted.response), *calls) if scripted.response else calls
    shown = batch.executions or _skipped_results(calls, batch.state)
    usage, cost = spent(scripted.usage, scripted.cost, batch.executions)
    return AgentStep(
        messages=step_messages(batch.state, said, shown),
        tool_executions=batch.executions,
        failures=batch.failures,
        usage=usage,
        cost=cost,
        finish_reason=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
        model="deterministic",
    )


def _skipped_results(calls: tuple[ToolCall, ...], state: AgentState) -> tuple[ToolExecution, ...]:
    """Results for calls that the script does not run, so that the history stays valid."""
    return tuple(
        ToolExecution(
            call=call,
            outcome=ToolOutcome.COMPLETED,
            text="(not run by the script)",
            started_at=state.updated_at,
            completed_at=state.updated_at,
        )
        for call in calls
    )

"""Typed output: the final answer as a validated value, asked for again when it does not fit.

A capability like any other: it sets the response format and looks at each final answer after its
step. ``Agent(output_type=...)`` and ``with_output(...)`` add it.
"""

from typing import Any

from msgspec import json
from msgspec.structs import replace

from stepwell.agent.output_type import OutputType, complaint
from stepwell.agent.plan import AgentPlan
from stepwell.continuation import StopReason
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import Message
from stepwell.parameters import check_integer
from stepwell.state import AgentState, AgentStep

SOURCE = "TypedOutput"
MISFIT = "output_misfit"
"""The step's metadata key under which a rejected answer keeps what was wrong with it."""


class TypedOutput:
    """The final answer must fit a type: a pydantic model, a dataclass, a TypedDict, ``list[int]``.

    An answer that does not fit is asked for again, at most ``retries`` times in a run; then the
    run fails and says what was wrong.
    """

    def __init__(self, output_type: Any, *, retries: int = 2) -> None:
        self._retries = check_integer(retries, "output_retries", least=0)
        self._type = OutputType(output_type)
        self.format = self._type.format

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan that asks for this output and checks it."""
        context = replace(plan.context, response_format=self.format)
        # The last after-step hook, so that it sees the answer that others leave.
        check = make_hook(HookTrigger.AFTER_STEP, self._check_answer, priority=-1000, name=SOURCE)
        want = make_hook(HookTrigger.BEFORE_EXECUTION, _want_output, name=SOURCE)
        others = tuple(hook for hook in plan.hooks if hook.name != SOURCE)
        return replace(plan, context=context, hooks=(*others, want, check))

    def _check_answer(self, context: HookContext) -> HookContext | None:
        step = context.state.current_step
        if step is None or step.has_tool_calls or step.has_errors or step.is_incomplete:
            return None
        try:
            value = self._type.parse(step.text)
        except (ValueError, TypeError, RecursionError) as error:
            return self._reject(context, step, complaint(error, step.text, step.finish_reason))
        given = replace(step, output=self._type.dump(value))
        return context.with_state(context.state.with_output(given, typed=value))

    def _reject(self, context: HookContext, step: AgentStep, complaint: str) -> HookContext:
        state = context.state
        misfits = 1 + sum(MISFIT in taken.step.metadata for taken in state.steps)
        noted = replace(step, output=None, metadata={**step.metadata, MISFIT: complaint})
        if misfits <= self._retries:
            again = self._asked_again(state, complaint)
            state = state.with_output(noted, typed=None).with_message(again)
            words = f"the answer does not fit {self.format.name}: {complaint}"
            return context.with_state(state).request_step(words, source=SOURCE)
        state = state.with_output(noted, typed=None)
        words = (
            f"{misfits} {'answer' if misfits == 1 else 'answers'} did not fit {self.format.name}, "
            f"and output_retries is "
            f"{self._retries} (raise it, or make the type easier to fit); the last one: {complaint}"
        )
        return context.with_state(state).stop(words, reason=StopReason.ERROR, source=SOURCE)

    def _asked_again(self, state: AgentState, complaint: str) -> Message:
        schema = json.encode(self.format.schema).decode()
        text = (
            f"Your answer can't be used: {complaint}. Answer again, with only one JSON object that "
            f"fits this schema: {schema}"
        )
        owner = state.agent_id if state.execution is None else state.execution.id
        return Message.user(
            text, id=f"{owner}:{state.step_number}:again", metadata={"source": SOURCE}
        )


def _want_output(context: HookContext) -> HookContext:
    return context.with_state(context.state.with_output_wanted())

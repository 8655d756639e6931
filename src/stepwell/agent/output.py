"""Typed output: the final answer as a validated value, asked for again when it does not fit.

A capability like any other: it sets the response format and looks at each final answer after its
step. ``Agent(output=...)`` and ``with_output(...)`` add it.
"""

import re
from collections.abc import Mapping
from inspect import isroutine
from typing import TYPE_CHECKING, Any, cast

from msgspec import json
from msgspec.structs import replace

from stepwell.agent.plan import AgentPlan
from stepwell.continuation import StopReason
from stepwell.errors import ConfigurationError, text_of
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.messages import FinishReason, Message
from stepwell.models import ResponseFormat
from stepwell.state import AgentState, AgentStep

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

SOURCE = "TypedOutput"
MISFIT = "output_misfit"
"""The step's metadata key under which a rejected answer keeps what was wrong with it."""

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL)


class TypedOutput:
    """The final answer must fit a type: a pydantic model, a dataclass, a TypedDict, ``list[int]``.

    An answer that does not fit is asked for again, at most ``retries`` times in a run; then the
    run fails and says what was wrong.
    """

    def __init__(self, output_type: Any, *, retries: int = 2) -> None:
        if not isinstance(retries, int) or retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"output retries must be 0 or more, got {retries!r}")
        self._retries = retries
        self._adapter, schema = _adapter(output_type)
        self._is_wrapped = schema.get("type") != "object"
        if self._is_wrapped:
            schema = _wrapped(schema)
        self.format = ResponseFormat(schema=schema, name=_name(output_type))

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan that asks for this output and checks it."""
        context = replace(plan.context, response_format=self.format)
        # The last after-step hook, so that it sees the answer that others leave.
        check = make_hook(HookTrigger.AFTER_STEP, self._checked, priority=-1000, name=SOURCE)
        want = make_hook(HookTrigger.BEFORE_EXECUTION, _wanted, name=SOURCE)
        others = tuple(hook for hook in plan.hooks if hook.name != SOURCE)
        return replace(plan, context=context, hooks=(*others, want, check))

    def _checked(self, context: HookContext) -> HookContext | None:
        step = context.state.current_step
        if step is None or step.has_tool_calls or step.has_errors:
            return None
        try:
            value = self._parsed(step.text)
        except (ValueError, TypeError, RecursionError) as error:
            return self._rejected(context, step, _complaint(error, step))
        given = replace(step, output=self._adapter.dump_python(value, mode="json"))
        return context.with_state(context.state.with_output(given, typed=value))

    def _parsed(self, text: str) -> Any:
        fenced = _FENCED.fullmatch(text)
        text = fenced[1] if fenced else text
        if not self._is_wrapped:
            return self._adapter.validate_json(text)
        found = json.decode(text)
        wraps = isinstance(found, dict) and "result" in found
        return self._adapter.validate_json(json.encode(found["result"] if wraps else found))

    def _rejected(self, context: HookContext, step: AgentStep, complaint: str) -> HookContext:
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


def _wanted(context: HookContext) -> HookContext:
    return context.with_state(context.state.with_output_wanted())


def _adapter(output_type: Any) -> "tuple[TypeAdapter[Any], dict[str, Any]]":
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError
    from pydantic_core import SchemaError

    wanted = "use a pydantic model, a dataclass, a TypedDict or plain types"
    if isroutine(output_type) or isinstance(output_type, Mapping):
        raise ConfigurationError(f"{output_type!r:.80} can't be an output type: {wanted}")
    try:
        adapter = TypeAdapter[Any](output_type)
        return adapter, adapter.json_schema()
    except (PydanticUserError, SchemaError, TypeError) as error:
        why = str(error).splitlines()[0]
        raise ConfigurationError(
            f"{output_type!r:.80} can't be an output type: {wanted}. {why}"
        ) from None


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """Providers want an object; what is none becomes the only property of one."""
    definitions = schema.pop("$defs", None)
    wrapped = {
        "type": "object",
        "properties": {"result": schema},
        "required": ["result"],
        "additionalProperties": False,
    }
    return {**wrapped, "$defs": definitions} if definitions else wrapped


def _name(output_type: Any) -> str:
    """A name that all providers accept."""
    name = getattr(output_type, "__name__", "") or "output"
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]


def _complaint(error: Exception, step: AgentStep) -> str:
    if not step.text.strip():
        return "it is empty"
    if not hasattr(error, "errors"):
        return f"it can't be read ({text_of(error)})"
    wrong: list[str] = []
    for entry in cast("ValidationError", error).errors(include_url=False)[:10]:
        place = ".".join(str(part) for part in entry["loc"])
        is_plain = entry["type"] in ("missing", "json_invalid")
        got = "" if is_plain else f" (got {entry['input']!r:.80})"
        wrong.append(f"{place}: {entry['msg']}{got}" if place else f"{entry['msg']}{got}")
    was_cut = step.finish_reason is FinishReason.LENGTH
    return "; ".join(wrong) + ("; it was cut off at max_tokens" if was_cut else "")

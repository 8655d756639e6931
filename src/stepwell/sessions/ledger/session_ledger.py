"""The tool ledger of sessions: before a call that is not pure runs, the model's turn and the call
are in the database. On takeover neither is asked for again.

One per registered agent; the attempt in the scope of the run holds what it knows. Subagents' calls
pass: the call of their parent is in the ledger.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import json
from msgspec.structs import replace

from stepwell.errors import SerializationError
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.messages import ToolCall
from stepwell.models import ModelResponse
from stepwell.serialization.calls import response_to_json
from stepwell.sessions.attempt.attempt import FIRST, Attempt, attempt_of
from stepwell.sessions.attempt.takeovers import stopped_attempts
from stepwell.sessions.ledger.open_step import IntendedCall, storable
from stepwell.sessions.ledger.recovery import Asked, as_result, what_it_came_to
from stepwell.state import AgentState, Answered
from stepwell.tools import ToolEffect, Tools
from stepwell.tools.ledger import LedgerEntry
from stepwell.tools.results import Finished
from stepwell.tools.secrets import what_is_hidden


class SessionLedger:
    """Remembers the turns and calls of executions, in the database that they are rows of."""

    def __init__(self) -> None:
        self.tools = Tools()
        """Those of the agent; given once it is put together."""

    # Around tool calls

    async def begin(self, entries: Sequence[LedgerEntry], /) -> Mapping[str, Finished]:
        """Record that these calls are about to run, or say what they came to already."""
        state = entries[0].state
        attempt = attempt_of(state)
        if attempt is None:
            return {}
        known: dict[str, Finished] = {}
        fresh: list[LedgerEntry] = []
        for entry in entries:
            effect, answered = entry.tool.effect, entry.answered
            finished = _known_result(attempt, state, entry.call, effect, answered)
            if finished is None:
                fresh.append(entry)
            else:
                known[entry.call.id] = finished
        if fresh:
            await self._enter(attempt, fresh, state.step_number)
        return known

    async def _enter(
        self, attempt: Attempt, entries: Sequence[LedgerEntry], step_number: int
    ) -> None:
        at, open_step = attempt.clock.now(), attempt.open_step
        first, response = entries[0].call, open_step.response
        calls = [_intended_call(attempt, entry, at) for entry in entries]
        open_step.enter(step_number, calls, lambda: self._document(response, first))
        if any(entry.tool.effect is not ToolEffect.PURE for entry in entries):
            await attempt.store_intent()

    def end(self, entry: LedgerEntry, finished: Finished, /) -> None:
        """Record what a call came to; it is stored with its step, or before if that takes long."""
        attempt = attempt_of(entry.state)
        if attempt is not None:
            attempt.open_step.finish(entry.call.id, finished)
            attempt.journal.news.set()  # stored soon, also if hooks take their time

    # Around the model

    def hooks(self) -> tuple[Hook, ...]:
        """Return what the plan of the agent is given beside this ledger."""
        return (
            make_hook(HookTrigger.BEFORE_INFERENCE, _replay_turn, priority=FIRST, name="ledger"),
            make_hook(HookTrigger.AFTER_INFERENCE, _note_turn, priority=FIRST, name="ledger"),
            make_hook(HookTrigger.BEFORE_TOOL, self._settle, priority=FIRST, name="ledger"),
        )

    def _settle(self, context: HookContext) -> HookContext | None:
        """Give the result of a call that is known and could not even be prepared again: its secret
        arguments are gone, or its tool is. The executor would not come to ask."""
        attempt, call = attempt_of(context.state), context.call
        if attempt is None or call is None or attempt.known_step.is_empty:
            return None
        tool = self.tools.find(call.name)
        if tool is not None and not what_is_hidden(call, self.tools.secret_arguments(call.name)):
            return None
        effect = ToolEffect.PURE if tool is None else tool.effect
        finished = _known_result(attempt, context.state, call, effect, context.answered)
        return None if finished is None else context.with_result(as_result(finished))

    def _document(self, response: ModelResponse | None, call: ToolCall) -> str | None:
        """The model's turn as JSON; None for a driver of its own, or a call that was answered."""
        if response is None:
            return None
        shown = self._without_secrets(response, call)
        try:
            return response_to_json(shown)
        except SerializationError:
            return response_to_json(storable(shown))

    def _without_secrets(self, response: ModelResponse, call: ToolCall) -> ModelResponse:
        """Thinking and parts are let go where there is a secret: they are signed as a whole."""
        tools = self.tools
        if not tools.have_secrets:
            return response
        calls = response.tool_calls
        if not calls:  # a decision as JSON: with the arguments that may be kept
            return replace(response, text=_decision(call)) if tools.secrets_of(call) else response
        scrubbers = [(it, scrubber) for it in calls if (scrubber := tools.scrubber_for(it))]
        if not scrubbers:
            return response
        text = response.text
        for it, scrubber in scrubbers:
            text = "" if it.malformed is not None else scrubber.text(text)
        shown = tuple([tools.shown(it) for it in calls])
        return replace(response, text=text, tool_calls=shown, thinking=(), parts=())


def _replay_turn(context: HookContext) -> HookContext | None:
    """Answer with what the model said in this step before its worker died."""
    attempt = attempt_of(context.state)
    if attempt is None:
        return None
    number = context.state.step_number
    known = attempt.known_step
    if known.step_number != number or known.response is None or attempt.has_heard(number):
        return None
    return context.with_response(known.response)


def _note_turn(context: HookContext) -> None:
    attempt = attempt_of(context.state)
    if attempt is not None:
        attempt.open_step.hear(context.state.step_number, context.response)


def _known_result(
    attempt: Attempt,
    state: AgentState,
    call: ToolCall,
    effect: ToolEffect,
    answered: Answered | None,
) -> Finished | None:
    known, number = attempt.known_step, state.step_number
    is_known_step = known.step_number == number
    found = known.calls.get(call.id) if is_known_step else None
    asked = Asked(
        call=call,
        effect=effect,
        answered=answered,
        known=found if found is not None and found.tool_name == call.name else None,
        is_replayed=answered is not None or (is_known_step and known.response is not None),
        stopped=stopped_attempts(attempt.execution),
    )
    return what_it_came_to(asked, attempt.settings.when_unknown, attempt.clock.now())


def _intended_call(attempt: Attempt, entry: LedgerEntry, at: datetime) -> IntendedCall:
    return IntendedCall(
        call_id=entry.call.id,
        tool_name=entry.call.name,
        effect=entry.tool.effect,
        attempt=attempt.execution.attempt,
        started_at=at,
    )


def _decision(call: ToolCall) -> str:
    """The call as a ReAct model writes it."""
    decision = {"thought": "", "type": "call_tool", "tool": call.name}
    return json.encode({**decision, "args": dict(call.arguments)}).decode()

"""The tool ledger of sessions: before a call that is not pure runs, the model's turn and the call
are in the database. On takeover neither is asked for again.

One per registered agent; the attempt in the scope of the run holds what it knows. Subagents' calls
pass: the call of their parent is in the ledger.
"""

from collections.abc import Sequence
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
from stepwell.sessions.ledger.recovery import Asked, what_it_came_to
from stepwell.tools import ToolEffect, Tools
from stepwell.tools.ledger import LedgerEntry
from stepwell.tools.results import Finished


class SessionLedger:
    """Remembers the turns and calls of executions, in the database that they are rows of."""

    def __init__(self) -> None:
        self.tools = Tools()
        """Those of the agent; given once it is put together."""

    # Around tool calls

    def recall(self, entry: LedgerEntry, /) -> Finished | None:
        """Return what the call came to in an earlier attempt; None if it may run."""
        attempt = attempt_of(entry.state)
        if attempt is None:
            return None
        known, number = attempt.known_step, entry.state.step_number
        is_known_step = known.step_number == number
        found = known.calls.get(entry.call.id) if is_known_step else None
        asked = Asked(
            call=entry.call,
            effect=_effect(entry),
            answered=entry.answered,
            known=found if found is not None and found.tool_name == entry.call.name else None,
            is_replayed=entry.answered is not None
            or (is_known_step and known.response is not None),
            stopped=stopped_attempts(attempt.execution),
        )
        when_unknown = getattr(entry.tool, "when_unknown", None) or attempt.settings.when_unknown
        return what_it_came_to(asked, when_unknown, attempt.clock.now())

    async def begin(self, entries: Sequence[LedgerEntry], /) -> None:
        """Record that these calls are about to run."""
        state = entries[0].state
        attempt = attempt_of(state)
        if attempt is None:
            return
        at, open_step = attempt.clock.now(), attempt.open_step
        first, response = entries[0].call, open_step.response
        calls = [_intended_call(attempt, entry, at) for entry in entries]
        open_step.enter(state.step_number, calls, lambda: self._document(response, first))
        if any(_effect(entry) is not ToolEffect.PURE for entry in entries):
            await attempt.store_intent()

    def end(self, entry: LedgerEntry, finished: Finished, /) -> None:
        """Record what a call came to; it is stored with its step, or before if that takes long."""
        attempt = attempt_of(entry.state)
        if attempt is not None:
            attempt.open_step.finish(entry.call.id, finished)
            attempt.journal.wake_flush()

    # Around the model

    def hooks(self) -> tuple[Hook, ...]:
        """Return what the plan of the agent is given beside this ledger."""
        return (
            make_hook(HookTrigger.BEFORE_INFERENCE, _replay_turn, priority=FIRST, name="ledger"),
            make_hook(HookTrigger.AFTER_INFERENCE, _note_turn, priority=FIRST, name="ledger"),
        )

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
        shown = tuple([tools.redact_call(it) for it in calls])
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


def _effect(entry: LedgerEntry) -> ToolEffect:
    return ToolEffect.PURE if entry.tool is None else entry.tool.effect


def _intended_call(attempt: Attempt, entry: LedgerEntry, at: datetime) -> IntendedCall:
    return IntendedCall(
        call_id=entry.call.id,
        tool_name=entry.call.name,
        effect=_effect(entry),
        attempt=attempt.execution.attempt,
        started_at=at,
    )


def _decision(call: ToolCall) -> str:
    """The call as a ReAct model writes it."""
    decision = {"thought": "", "type": "call_tool", "tool": call.name}
    return json.encode({**decision, "args": dict(call.arguments)}).decode()

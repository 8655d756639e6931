"""The tool ledger of a running execution: before a tool runs, the model's turn and the call are in
the database; afterwards its result is. On takeover neither is asked for again.

One per registered agent; which execution a call belongs to says ``running_of``. Subagents' calls
pass: the call of their parent is in the ledger.
"""

import asyncio
from typing import Any, TypeVar, cast

from msgspec import Struct, convert, json, to_builtins
from msgspec.structs import replace

from stepwell.errors import SerializationError
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.messages import ToolCall
from stepwell.models import ModelResponse
from stepwell.serialization.calls import finished_to_json, response_to_json
from stepwell.sessions.log import append
from stepwell.sessions.ports import Transaction
from stepwell.sessions.records import CallStatus, LedgerCall, LedgerTurn
from stepwell.sessions.recovery import Asked, as_result, what_it_came_to
from stepwell.sessions.running import Held, Running, running_of
from stepwell.sessions.takeovers import stopped_attempts
from stepwell.state import AgentState, Answered
from stepwell.tools import ToolEffect, Tools
from stepwell.tools.ledger import LedgerEntry
from stepwell.tools.results import Finished
from stepwell.tools.secrets import what_is_hidden

Value = TypeVar("Value", bound=Struct)

FIRST = 1_000_000
"""Before all other hooks, which then do to a kept turn what they did to the first one."""
_LARGE = 256_000
"""Characters of a result that is encoded beside the loop."""


class SessionLedger:
    """Remembers the turns and calls of executions, in the database that they are rows of."""

    def __init__(self) -> None:
        self.tools = Tools()
        """Those of the agent; given once it is put together."""

    # Around a tool call

    async def begin(self, entry: LedgerEntry, /) -> Finished | None:
        """Note that the call begins, or say what it came to already."""
        running = running_of(entry.state)
        if running is None:
            return None
        finished = _known(running, entry.state, entry.call, entry.tool.effect, entry.answered)
        if finished is not None:
            return finished
        call = _started(running, entry)
        running.say(running.narrator.called(entry.call, call.started_at))

        async def note(tx: Transaction, held: Held) -> None:
            # Made here, where what can't be stored ends the run before the tool has run.
            if (turn := self._turn(running, entry)) is not None:
                await tx.add_turn(turn)
            await tx.save_call(call)
            if held.session is not None:
                await append(tx, held.session, held.told)

        await running.commit("call.begin", note)
        running.open_step = entry.state.step_number
        return None

    async def end(self, entry: LedgerEntry, finished: Finished, /) -> None:
        """Note what it came to."""
        running = running_of(entry.state)
        if running is None:
            return
        ran = finished.execution
        is_large = len(ran.text) >= _LARGE
        result = await asyncio.to_thread(_stored, finished) if is_large else _stored(finished)
        call = replace(
            _started(running, entry),
            status=CallStatus.FINISHED,
            started_at=ran.started_at,
            finished_at=ran.completed_at,
            result=result,
        )
        running.say(running.narrator.came_to(ran))

        async def note(tx: Transaction, held: Held) -> None:
            await tx.save_call(call)
            if held.session is not None:
                await append(tx, held.session, held.told)

        await running.commit("call.end", note)

    # Around the model

    def hooks(self) -> tuple[Hook, ...]:
        """What the plan of the agent is given beside this ledger."""
        return (
            make_hook(HookTrigger.BEFORE_INFERENCE, _replayed, priority=FIRST, name="ledger"),
            make_hook(HookTrigger.AFTER_INFERENCE, _remembered, priority=FIRST, name="ledger"),
            make_hook(HookTrigger.BEFORE_TOOL, self._settled, priority=FIRST, name="ledger"),
        )

    def _settled(self, context: HookContext) -> HookContext | None:
        """A call that is known and could not even be prepared again: its secret arguments are
        gone, or its tool is. The executor would not come to ask."""
        running, call = running_of(context.state), context.call
        if running is None or call is None:
            return None
        tool = self.tools.find(call.name)
        if tool is not None and not what_is_hidden(call, self.tools.secret_arguments(call.name)):
            return None
        effect = ToolEffect.PURE if tool is None else tool.effect
        finished = _known(running, context.state, call, effect, context.answered)
        return None if finished is None else context.with_result(as_result(finished))

    def _turn(self, running: Running, entry: LedgerEntry) -> LedgerTurn | None:
        response = running.response
        if response is None:  # a driver of its own, or a call that was answered
            return None
        shown = self._without_secrets(response, entry.call)
        try:
            document = response_to_json(shown)
        except SerializationError:
            document = response_to_json(storable(shown))
        return LedgerTurn(
            tenant_id=running.execution.tenant_id,
            execution_id=running.execution.id,
            step_number=entry.state.step_number,
            response=document,
            created_at=running.clock.now(),
        )

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


def _replayed(context: HookContext) -> HookContext | None:
    """What the model said in this step before its worker died."""
    running = running_of(context.state)
    if running is None:
        return None
    turn = running.recovered.turn_of(context.state.step_number)
    if turn is None or running.response is not None:
        return None
    return context.with_response(turn)


def _remembered(context: HookContext) -> None:
    running = running_of(context.state)
    if running is not None:
        running.response = context.response


def _known(
    running: Running,
    state: AgentState,
    call: ToolCall,
    effect: ToolEffect,
    answered: Answered | None,
) -> Finished | None:
    recovered, number = running.recovered, state.step_number
    asked = Asked(
        call=call,
        effect=effect,
        answered=answered,
        known=recovered.call(number, call),
        is_replayed=answered is not None or recovered.turn_of(number) is not None,
        stopped=stopped_attempts(running.execution),
    )
    return what_it_came_to(asked, running.settings.when_unknown, running.clock.now())


def _started(running: Running, entry: LedgerEntry) -> LedgerCall:
    return LedgerCall(
        tenant_id=running.execution.tenant_id,
        execution_id=running.execution.id,
        step_number=entry.state.step_number,
        call_id=entry.call.id,
        tool_name=entry.call.name,
        effect=entry.tool.effect,
        attempt=running.execution.attempt,
        status=CallStatus.STARTED,
        started_at=running.clock.now(),
    )


def _stored(finished: Finished) -> str:
    """The result; of one that JSON can't hold, the text that the model is shown."""
    try:
        return finished_to_json(finished)
    except SerializationError:
        ran = storable(replace(finished.execution, value=None))
        return finished_to_json(Finished(execution=ran, signal=finished.signal))


def storable(value: Value) -> Value:
    """The same with a mark in place of what JSON can't hold, such as half a surrogate pair; who
    knows of the call need not know it letter by letter."""
    plain = to_builtins(value, enc_hook=str)
    return convert(_encodable(plain), type(value))


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="replace").decode()
        case dict():
            entries = cast("dict[Any, Any]", value).items()
            return {_encodable(key): _encodable(item) for key, item in entries}
        case list() | tuple():
            return [_encodable(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _decision(call: ToolCall) -> str:
    """The call as a ReAct model writes it."""
    decision = {"thought": "", "type": "call_tool", "tool": call.name}
    return json.encode({**decision, "args": dict(call.arguments)}).decode()

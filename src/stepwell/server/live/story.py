"""One execution as the log tells it, in the words of a client's protocol.

The log says what happens and when; what it shortens is read from the ledger while a step runs, and
from the stored state after it. So a client is told the same whichever worker runs the execution.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from stepwell.broadcasting.client_stream import ClientTranslator, Told, encode_sse
from stepwell.events import AgentEvent, AgentStepCompleted, EventSource
from stepwell.journal.envelope import BroadcastStatus, EnvelopeType
from stepwell.messages import Message, ToolCall, Usage
from stepwell.serialization.calls import finished_from_json, response_from_json
from stepwell.server.live.feed import LiveSubscription, Reset
from stepwell.server.live.log_events import KnownCall, LogEvents
from stepwell.server.live.response import LiveResponse
from stepwell.server.live.sse import KEEP_ALIVE, is_ending
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.ports import Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import (
    Execution,
    ExecutionStatus,
    LedgerCall,
    LedgerTurn,
    LoggedEvent,
    SessionMessage,
)
from stepwell.state import AgentState

if TYPE_CHECKING:
    from stepwell.server.services import Services

SESSION_HEADER = "x-stepwell-session"
"""Names the session in every answer, since a new one may have been made."""
_STARTS = ("RUN_STARTED", "start")


class Followed(Struct, frozen=True, kw_only=True):
    """An execution that a client follows. ``begins_with`` is the state of one that goes on;
    ``message`` is what one that is new answers."""

    session_id: str
    execution_id: str
    after: int
    begins_with: AgentState | None = None
    message: SessionMessage | None = None


class Story:
    """Tells one execution; ``new_translator`` makes what knows the client's words."""

    def __init__(
        self,
        services: "Services",
        followed: Followed,
        new_translator: Callable[[], ClientTranslator],
        *,
        starts_over: bool,
    ) -> None:
        """``starts_over`` says that a client can take back what it showed, so that a step which
        another worker began anew is shown once."""
        self._services = services
        self.followed = followed
        self._new_translator = new_translator
        self._translator = new_translator()
        self._starts_over = starts_over
        self._reached: AgentState | None = None
        self._events: LogEvents | None = None
        self._open_step: int | None = None

    async def told(
        self, subscription: LiveSubscription, ping_seconds: float
    ) -> AsyncGenerator[list[Told], None]:
        """What the client is told, up to the end; an empty list when nothing came for a while."""
        while True:
            batch = await subscription.take(ping_seconds)
            if batch is None:
                yield self._translator.fail("the server ends; the run goes on", "server_ends")
                return
            told: list[Told] = []
            for item in batch:
                if isinstance(item, Reset):
                    lost = "the events are gone from the log; fetch the session's messages"
                    yield [*told, *self._translator.fail(lost, "reset")]
                    return
                told += await self._hear(item.event)
                if self._may_end(item.event) and (end := await self._end()) is not None:
                    yield [*told, *end]
                    return
            yield told

    # What happens

    async def _hear(self, event: LoggedEvent) -> list[Told]:
        is_own = event.execution_id == self.followed.execution_id
        if not event.type.startswith("agent."):
            return []
        told: list[Told] = []
        if self._events is None:
            if not is_own:
                return []
            self._events, told = await self._begun()
        if is_own and event.type == EnvelopeType.STEP_STARTED:
            told += self._anew(self._events, event)
            self._open_step = event.payload["step_number"]
        known = await self._known(event) if "tool" in event.type else None
        told += self._translated(self._events.events(event, known))
        if is_own and event.type == EnvelopeType.STEP_COMPLETED:
            told += await self._stored(event.payload["step_number"])
        return told

    def _translated(self, events: list[AgentEvent]) -> list[Told]:
        return [told for event in events for told in self._translator.events(event)]

    async def _begun(self) -> tuple[LogEvents, list[Told]]:
        state = self.followed.begins_with or await self._before()
        self._reached = state
        events = LogEvents(self.followed.execution_id, state.agent_id)
        return events, self._translator.start(state)

    async def _before(self) -> AgentState:
        """The conversation before the execution, with the message that it answers."""
        session_id = self.followed.session_id
        session = await self._services.store.read(lambda tx: tx.session(session_id))
        if session is None:
            raise NotThereError("session", session_id)
        state = AgentState.empty()
        if session.last_snapshot_id is not None:
            state = await self._services.reader.state_of(session.last_snapshot_id)
        own = f"{self.followed.execution_id}:"
        before = [message for message in state.messages if not message.id.startswith(own)]
        asked = self.followed.message
        if asked is not None and asked.id not in {message.id for message in before}:
            before.append(Message.user(asked.content, id=asked.id))
        return replace(state, execution=None).with_messages(before)

    def _anew(self, events: LogEvents, event: LoggedEvent) -> list[Told]:
        """A step that had begun begins anew, because another worker has the execution now."""
        if self._open_step != event.payload["step_number"] or self._reached is None:
            return []
        told = self._translated(events.cut_off(event))
        if not self._starts_over:
            return told
        told += self._translator.events(_step_left(self.followed, self._reached, event))
        self._translator = self._new_translator()
        again = self._translator.start(self._reached)
        return [*told, *(one for one in again if one["type"] not in _STARTS)]

    async def _stored(self, step_number: int) -> list[Told]:
        self._open_step = None
        try:
            state = await self._services.reader.state_at(self.followed.execution_id, step_number)
        except RefusedError:
            return []  # deleted by age: what follows, and the end, tell enough
        self._reached = state
        return self._translator.step(state)

    # Arguments and results of tools

    async def _known(self, event: LoggedEvent) -> KnownCall | None:
        payload, call_id = event.payload, event.payload["tool_call_id"]
        if event.execution_id != self.followed.execution_id:
            call = ToolCall(
                id=call_id, name=payload["tool_name"], arguments=payload.get("args") or {}
            )
            return KnownCall(call=call, has_result=True, value=payload.get("result_summary"))
        turn, calls = await self._services.store.read(self._ledger)
        call = self._call(call_id, turn)
        result = next((one.result for one in calls if one.call_id == call_id), None)
        if call is None or result is None:
            return None if call is None else KnownCall(call=call)
        value = finished_from_json(result).execution.value
        return KnownCall(call=call, has_result=True, value=value)

    async def _ledger(self, tx: Transaction) -> tuple[LedgerTurn | None, Sequence[LedgerCall]]:
        return await tx.ledger(self.followed.execution_id, self._open_step or 0)

    def _call(self, call_id: str, turn: LedgerTurn | None) -> ToolCall | None:
        calls = () if turn is None else response_from_json(turn.response).tool_calls
        if self._reached is not None and not calls:  # one that waited for a person goes on
            calls = [call for message in self._reached.messages for call in message.tool_calls]
        return next((call for call in reversed(calls) if call.id == call_id), None)

    # The end

    def _may_end(self, event: LoggedEvent) -> bool:
        execution_id = self.followed.execution_id
        is_paused = (
            event.execution_id == execution_id
            and event.type == EnvelopeType.STATUS
            and event.payload.get("status") == BroadcastStatus.PAUSED
        )
        return is_paused or is_ending(event, execution_id)

    async def _end(self) -> list[Told] | None:
        execution_id = self.followed.execution_id
        row = await self._services.store.read(lambda tx: tx.execution(execution_id))
        if row is None:
            return self._translator.fail("the execution was deleted", "execution_not_found")
        if not row.status.is_over and row.status is not ExecutionStatus.PAUSED:
            return None
        state = None
        if row.last_snapshot_id is not None:
            state = await self._services.reader.state_of(row.last_snapshot_id)
        if state is None or not _is_end_of(row, state):
            why = row.error_message or f"the execution is {row.status}"
            return self._translator.fail(why, row.stop_reason or row.status.value)
        return self._translator.finish(state)


def story_response(
    services: "Services",
    who: Principal,
    story: Story,
    *,
    headers: Mapping[str, str],
    end: bytes = b"",
    seat: ExitStack | None = None,
) -> LiveResponse:
    """The story as server-sent events, with ``end`` behind the last."""
    followed = story.followed

    async def body(subscription: LiveSubscription) -> AsyncGenerator[bytes, None]:
        async with aclosing(story.told(subscription, services.settings.ping_seconds)) as pieces:
            async for told in pieces:
                yield b"".join(map(encode_sse, told)) or KEEP_ALIVE
        if end:
            yield end

    return LiveResponse(
        services,
        who,
        followed.session_id,
        after=followed.after,
        body=body,
        headers={**headers, SESSION_HEADER: followed.session_id},
        seat=seat,
    )


def _is_end_of(row: Execution, state: AgentState) -> bool:
    """Whether the state tells the end: one that was cancelled before it ran, or set aside, has
    none that does."""
    execution = state.execution
    is_own = execution is not None and execution.id == row.id
    return is_own and ExecutionStatus.after(state.status) is row.status


def _step_left(followed: Followed, state: AgentState, event: LoggedEvent) -> AgentStepCompleted:
    source = EventSource(
        agent_id=state.agent_id, parent_agent_id=None, execution_id=followed.execution_id
    )
    return AgentStepCompleted(
        source=source,
        at=event.created_at,
        step_number=event.payload["step_number"],
        has_tool_calls=False,
        error_count=0,
        errors=(),
        usage=Usage(),
        finish_reason=None,
        duration_ms=0.0,
    )

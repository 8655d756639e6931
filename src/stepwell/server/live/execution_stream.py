"""One execution as its journal has it, in the protocol of a client.

The entries say what happens and when. What they shorten, the arguments and results of tools, is
read from the stored intents while a step runs, and from the stored step after it. So a client sees
the same whichever worker runs the execution, and whenever it begins to follow.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, convert
from msgspec.structs import replace

from stepwell.journal import Entry
from stepwell.journal.entry import CallDetail
from stepwell.journal.envelope import (
    PAYLOADS,
    EnvelopeType,
    StepCompletedPayload,
    StepStartedPayload,
    ToolCompletedPayload,
    ToolStartedPayload,
)
from stepwell.journal.status import BroadcastStatus, ExecutionStatus
from stepwell.messages import Message
from stepwell.protocols.client_stream import ClientTranslator, WireEvent, encode_sse
from stepwell.server.live.client_presence import ClientPresence
from stepwell.server.live.response import KEEP_ALIVE, LiveResponse, is_ending
from stepwell.server.live.session_feed import LiveSubscription, Reset
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.ledger.open_step import KnownStep
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Execution, SessionMessage, StoredEntry
from stepwell.state import AgentState, ToolOutcome

if TYPE_CHECKING:
    from stepwell.server.services import Services

SESSION_HEADER = "x-stepwell-session"
"""The header that names the session, which may be new."""


class FollowedExecution(Struct, frozen=True, kw_only=True):
    """An execution that a client follows. ``begins_with`` is the state of a resumed one;
    ``message`` is the message that a new one answers."""

    session_id: str
    execution_id: str
    after: int
    begins_with: AgentState | None = None
    message: SessionMessage | None = None


def stored_entry(event: StoredEntry) -> Entry | None:
    """Return the entry of a stored one; None for entries of the app server itself."""
    shape = PAYLOADS.get(cast("EnvelopeType", event.type))
    if shape is None:
        return None
    return Entry(
        type=EnvelopeType(event.type),
        execution_id=event.execution_id or "",
        at=event.created_at,
        payload=convert(event.payload, shape),
    )


class ExecutionStream:
    """Translates the entries of one execution and of its subagents."""

    def __init__(
        self, services: "Services", followed: FollowedExecution, translator: ClientTranslator
    ) -> None:
        self.followed = followed
        self._services = services
        self._translator = translator
        self._details = CallDetails(services, followed.execution_id)
        self._executions = {followed.execution_id}
        """The execution and its known subagents."""
        self._reached: AgentState | None = None
        """The newest stored state; None before the first entry."""
        self._open_step: int | None = None

    async def batches(
        self, subscription: LiveSubscription, ping_seconds: float
    ) -> AsyncGenerator[list[WireEvent], None]:
        """Yield what to send until the end; an empty list if nothing came for a while."""
        while True:
            batch = await subscription.take(ping_seconds)
            if batch is None:
                yield self._translator.fail("the server ends; the run goes on", "server_ends")
                return
            wire, may_end = list[WireEvent](), False
            for item in batch:
                if isinstance(item, Reset):
                    lost = "the events are gone from the log; fetch the session's messages"
                    yield [*wire, *self._translator.fail(lost, "reset")]
                    return
                wire += await self._translate(item.event)
                may_end = may_end or self._may_end(item.event)
                is_last = item is batch[-1] or item.event.type == EnvelopeType.AGENT_STATUS
                if may_end and is_last and (end := await self._end()) is not None:
                    yield [*wire, *end]
                    return
            yield wire

    # Entries

    async def _translate(self, event: StoredEntry) -> list[WireEvent]:
        entry = stored_entry(event)
        if entry is None or not self._follows(entry):
            return []
        is_own, wire = entry.execution_id == self.followed.execution_id, list[WireEvent]()
        if self._reached is None:
            self._reached = self.followed.begins_with or await self._state_before()
            wire = self._translator.start(self._reached)
        if is_own and isinstance(entry.payload, StepStartedPayload):
            if self._open_step == entry.payload.step_number:
                wire += self._translator.restart(self._reached)
            self._open_step = entry.payload.step_number
        if is_own and isinstance(entry.payload, ToolStartedPayload | ToolCompletedPayload):
            detailed = await self._details.add_to(entry, self._open_step or 0, self._reached)
            if detailed is None:
                return wire  # the stored step will tell of the call
            entry = detailed
        wire += self._translator.translate(entry)
        if is_own and isinstance(entry.payload, StepCompletedPayload):
            wire += await self._complete_step(entry.payload.step_number)
        return wire

    def _follows(self, entry: Entry) -> bool:
        """Whether the entry belongs to the execution or one of its subagents."""
        if entry.payload.parent_execution_id in self._executions:
            self._executions.add(entry.execution_id)
        return entry.execution_id in self._executions

    async def _state_before(self) -> AgentState:
        """Return the conversation before the execution, with the message that it answers."""
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

    async def _complete_step(self, step_number: int) -> list[WireEvent]:
        self._open_step = None
        state = await self._details.state_after(step_number)
        if state is None:
            return []  # deleted by age: what follows, and the end, tell enough
        self._reached = state
        return self._translator.step(state)

    # The end

    def _may_end(self, event: StoredEntry) -> bool:
        execution_id = self.followed.execution_id
        is_paused = (
            event.execution_id == execution_id
            and event.type == EnvelopeType.AGENT_STATUS
            and event.payload.get("status") == BroadcastStatus.PAUSED
        )
        return is_paused or is_ending(event, execution_id)

    async def _end(self) -> list[WireEvent] | None:
        execution_id = self.followed.execution_id
        row = await self._services.store.read(lambda tx: tx.execution(execution_id))
        if row is None:
            return self._translator.fail("the execution was deleted", "execution_not_found")
        if not row.status.is_terminal and row.status is not ExecutionStatus.PAUSED:
            return None
        state = None
        if row.last_snapshot_id is not None:
            state = await self._services.reader.state_of(row.last_snapshot_id)
        if state is None or not _is_end_of(row, state):
            why = row.error_message or f"the execution is {row.status}"
            return self._translator.fail(why, row.stop_reason or row.status.value)
        return self._translator.finish(state)


class CallDetails:
    """Loads the arguments and results of an execution's calls."""

    def __init__(self, services: "Services", execution_id: str) -> None:
        self._services = services
        self._execution_id = execution_id
        self._newest: tuple[int, AgentState] | None = None
        """The last step that was loaded, and the state after it."""

    async def add_to(self, entry: Entry, step: int, reached: AgentState) -> Entry | None:
        """Return the entry with its detail; None if what it needs is not stored yet."""
        payload = entry.payload
        if isinstance(payload, ToolStartedPayload):
            args = await self._arguments(payload.tool_call_id, step, reached)
            return None if args is None else replace(entry, detail=CallDetail(args=args))
        if not isinstance(payload, ToolCompletedPayload):
            return entry
        if payload.error is not None or payload.outcome is ToolOutcome.PENDING:
            return entry
        found = await self._value(payload.tool_call_id, step)
        return None if found is None else replace(entry, detail=CallDetail(value=found[0]))

    async def state_after(self, step: int) -> AgentState | None:
        """Return the stored state after a step; None if there is none yet or any longer."""
        if self._newest is None or self._newest[0] != step:
            try:
                state = await self._services.reader.state_at(self._execution_id, step)
            except RefusedError:
                return None
            self._newest = (step, state)
        return self._newest[1]

    async def _arguments(
        self, call_id: str, step: int, reached: AgentState
    ) -> Mapping[str, Any] | None:
        response = (await self._known_step(step)).response
        calls = () if response is None else response.tool_calls
        if not calls and (state := await self.state_after(step)) is not None:
            made = () if state.current_step is None else state.current_step.tool_executions
            calls = [ran.call for ran in made]
        if not calls:  # one that waited for a person goes on
            calls = [call for message in reached.messages for call in message.tool_calls]
        return next((call.arguments for call in reversed(calls) if call.id == call_id), None)

    async def _value(self, call_id: str, step: int) -> tuple[Any] | None:
        intended = (await self._known_step(step)).calls.get(call_id)
        if intended is not None and intended.finished is not None:
            return (intended.finished.execution.value,)
        state = await self.state_after(step)
        step_made = None if state is None else state.current_step
        made = () if step_made is None else step_made.tool_executions
        return next(((ran.value,) for ran in made if ran.call.id == call_id), None)

    async def _known_step(self, step: int) -> KnownStep:
        intent = await self._services.store.read(lambda tx: tx.intent(self._execution_id))
        return KnownStep.of(intent, step)


def stream_response(
    services: "Services",
    who: Principal,
    stream: ExecutionStream,
    *,
    headers: Mapping[str, str],
    end: bytes = b"",
    encode: Callable[[WireEvent], bytes] = encode_sse,
    seat: ExitStack | None = None,
) -> LiveResponse:
    """Return the stream as server-sent events, then ``end``."""
    followed = stream.followed

    async def body(subscription: LiveSubscription) -> AsyncGenerator[bytes, None]:
        batches = stream.batches(subscription, services.settings.ping_seconds)
        async with aclosing(batches):
            async for wire in batches:
                yield b"".join(map(encode, wire)) or KEEP_ALIVE
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
        presence=ClientPresence(services, who, followed.execution_id),
    )


def _is_end_of(row: Execution, state: AgentState) -> bool:
    """Whether the state is that of the end; an execution that was set aside, or cancelled before it
    ran, has none."""
    execution = state.execution
    is_own = execution is not None and execution.id == row.id
    return is_own and ExecutionStatus.of(state.status) is row.status

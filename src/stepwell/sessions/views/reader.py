"""Reads stored executions: states, steps, and the whole trace.

Called by the routes and by requests that change a stored state. Never writes. Documents are decoded
in a thread, one at a time, so that a large one does not block the event loop.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, to_builtins

from stepwell.journal.status import ExecutionStatus
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.errors import NotThereError, RefusedError
from stepwell.sessions.ports import Store, Transaction, session_topic
from stepwell.sessions.records import Execution, SessionMessage, Snapshot
from stepwell.sessions.views.hints import only_words, stop_of
from stepwell.sessions.views.removed_snapshots import (
    has_no_states_any_more,
    require_states,
    states_removed_text,
)
from stepwell.sessions.views.step_data import message_as_data, step_as_data
from stepwell.sessions.views.step_pages import PagePart, Shortener, take_part
from stepwell.state import AgentState, StepExecution
from stepwell.text import json_bytes

_SERIALIZER = AgentStateSerializer()
PAGE = 200
DEEPEST = 20
"""The depth of subagents in a trace."""
_LARGEST_KEPT = 16_000_000
"""The largest document, in characters, whose state is cached for the next page."""
_STEP_CHARACTERS = 500
LOOK_SECONDS = 2.0
"""Seconds between polls while waiting for an execution: the bus may lose messages."""


class TracePlace(Struct, frozen=True):
    """Where a page of a trace begins: after a step, and after a message."""

    step: int = 0
    message: tuple[datetime, str] | None = None


class TracePage(Struct, frozen=True):
    """A page of a trace, and where the next one begins; None at the end."""

    trace: dict[str, Any]
    next: TracePlace | None


class Reader:
    """Reads executions from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # One at a time: decoders hold the GIL, so two would block the loop twice as long.
        self._decoding = asyncio.Lock()
        self._loading: dict[str, asyncio.Task[AgentState]] = {}
        self._kept: tuple[str, AgentState] | None = None

    async def state_of(self, snapshot_id: str) -> AgentState:
        """Return the state of a snapshot, rebuilt from its chain; once for all concurrent
        callers."""
        loading = self._loading.get(snapshot_id)
        if loading is None:
            loading = asyncio.create_task(self._load(snapshot_id))
            self._loading[snapshot_id] = loading
            loading.add_done_callback(lambda task: self._forget(snapshot_id, task))
        return await asyncio.shield(loading)

    def _forget(self, snapshot_id: str, task: "asyncio.Task[AgentState]") -> None:
        del self._loading[snapshot_id]
        if not task.cancelled():
            task.exception()  # perhaps nobody waits any longer

    async def _load(self, snapshot_id: str) -> AgentState:
        async def work(transaction: Transaction) -> Sequence[str]:
            snapshot = await transaction.snapshot(snapshot_id)
            if snapshot is None:
                raise NotThereError("snapshot", snapshot_id)
            return await transaction.chain(snapshot)

        async with self._decoding:
            whole, *increments = await self._store.read(work)
            state = await asyncio.to_thread(_SERIALIZER.from_increments, whole, increments)
            if len(whole) + sum(map(len, increments)) <= _LARGEST_KEPT:
                self._kept = (snapshot_id, state)
            return state

    async def settled_execution(self, execution: Execution) -> Execution:
        """Wait until an execution pauses or is over, and return it as it is then."""
        async with self._store.bus.subscribe(session_topic(execution.session_id or "")) as news:
            while True:
                found = await self._store.read(lambda tx: tx.execution(execution.id))
                if found is None:
                    raise NotThereError("execution", execution.id)
                if found.status not in (ExecutionStatus.PENDING, ExecutionStatus.RUNNING):
                    return found
                await news.wait(LOOK_SECONDS)

    async def snapshot_json(self, snapshot_id: str) -> bytes:
        """Return a snapshot as whole JSON, however it is stored."""
        state = await self.state_of(snapshot_id)
        async with self._decoding:
            return await asyncio.to_thread(lambda: json_bytes(_SERIALIZER.serialize(state)))

    async def state_at(self, execution_id: str, step_number: int | None = None) -> AgentState:
        """Return the newest state of an execution, or the state after that step. Raises
        ``StatesRemovedError`` if retention has deleted it."""
        snapshots = await self._store.read(lambda tx: _snapshots(tx, execution_id))
        fitting = snapshots
        if step_number is not None:
            fitting = [it for it in snapshots if it.step_number == step_number]
        if not fitting:
            known = sorted({it.step_number for it in snapshots})
            after = "" if step_number is None else f" after step {step_number}"
            raise RefusedError(
                f"execution {execution_id} has no stored state{after}; stored after steps: "
                f"{', '.join(map(str, known)) or '(none)'}",
                code="step_not_stored",
            )
        return await self.state_of(fitting[-1].id)

    async def steps(self, execution_id: str) -> list[dict[str, Any]]:
        """Return every step of an execution with tools, usage, times and decision. Raises
        ``StatesRemovedError`` if retention has deleted them."""
        execution, state = await self._newest(execution_id)
        require_states(execution)
        return _steps(execution, state)

    async def step_page(self, execution_id: str, *, after: int, limit: int) -> PagePart:
        """Return the next steps after that number, with large values truncated; see ``step``.
        Raises ``StatesRemovedError`` if retention has deleted them."""
        execution, state = await self._newest(execution_id)
        require_states(execution)
        return _step_part(execution, state, after, limit)

    async def step(self, execution_id: str, number: int) -> bytes:
        """Return one whole step as JSON. Raises ``NotThereError`` or ``StatesRemovedError``."""
        execution, state = await self._newest(execution_id)
        require_states(execution)
        found = [it for it in _recorded_steps(execution, state) if it.number == number]
        if not found:
            raise NotThereError("step", str(number))
        data = {**step_as_data(found[0]), "truncated": False}
        async with self._decoding:
            return await asyncio.to_thread(json_bytes, data)

    async def trace(self, execution_id: str) -> dict[str, Any]:
        """Return the whole trace: the execution, its explanation, steps, subagents, messages. The
        steps are missing if retention has deleted the states."""
        execution, state = await self._newest(execution_id)

        async def work(transaction: Transaction) -> tuple[list[Any], list[Any], int]:
            children = await _subagents(transaction, execution_id, DEEPEST)
            session_id = execution.session_id
            if session_id is None:
                return children, [], 0
            messages = await messages_that(
                transaction, session_id, lambda it: it.agent_execution_id == execution_id
            )
            oldest, newest = await transaction.entry_range(session_id)
            return children, [message_as_data(it) for it in messages], newest - oldest + 1

        subagents, messages, event_count = await self._store.read(work)
        return {
            **_trace_head(execution, state),
            "steps": _steps(execution, state),
            "subagents": subagents,
            "messages": messages,
            "event_count": event_count,
        }

    async def trace_page(self, execution_id: str, place: TracePlace, *, limit: int) -> TracePage:
        """Return a page of a trace: steps and messages after a place, at most so many of each, with
        large values truncated. Everything else is the same on each page."""
        execution, state = await self._newest(execution_id)

        async def work(transaction: Transaction) -> tuple[list[Any], list[SessionMessage], int]:
            children = await _subagents(transaction, execution_id, DEEPEST)
            session_id = execution.session_id
            if session_id is None:
                return children, [], 0
            oldest, newest = await transaction.entry_range(session_id)
            messages = await _messages_of(transaction, execution, place.message, limit + 1)
            return children, messages, newest - oldest + 1

        subagents, found, event_count = await self._store.read(work)
        steps = _step_part(execution, state, place.step, limit)
        messages = take_part(found, limit, _short_message)
        page = {
            **_short_head(execution, state),
            "steps": steps.items,
            "subagents": [_short_subagent(child) for child in subagents],
            "messages": messages.items,
            "event_count": event_count,
        }
        if not (steps.has_more or messages.has_more):
            return TracePage(page, None)
        last = found[len(messages.items) - 1] if messages.items else None
        following = TracePlace(
            steps.items[-1]["number"] if steps.items else place.step,
            place.message if last is None else (last.created_at, last.id),
        )
        return TracePage(page, following)

    async def _newest(self, execution_id: str) -> tuple[Execution, AgentState | None]:
        async def work(transaction: Transaction) -> tuple[Execution, Snapshot | None]:
            execution = await transaction.execution(execution_id)
            if execution is None:
                raise NotThereError("execution", execution_id)
            return execution, await transaction.newest_snapshot(execution_id)

        execution, newest = await self._store.read(work)
        if newest is None:
            return execution, None
        kept = self._kept
        if kept is not None and kept[0] == newest.id:
            return execution, kept[1]
        return execution, await self.state_of(newest.id)


async def _snapshots(transaction: Transaction, execution_id: str) -> Sequence[Snapshot]:
    snapshots = await transaction.snapshots(execution_id)
    if not snapshots:
        execution = await transaction.execution(execution_id)
        if execution is None:
            raise NotThereError("execution", execution_id)
        require_states(execution)
    return snapshots


def _recorded_steps(execution: Execution, state: AgentState | None) -> Sequence[StepExecution]:
    if state is None or state.execution is None or state.execution.id != execution.id:
        return ()  # a fork has a snapshot before its first step: the state that it begins with
    return state.execution.steps


def _steps(execution: Execution, state: AgentState | None) -> list[dict[str, Any]]:
    return [step_as_data(recorded) for recorded in _recorded_steps(execution, state)]


def _step_part(execution: Execution, state: AgentState | None, after: int, limit: int) -> PagePart:
    def shorten(recorded: StepExecution) -> tuple[dict[str, Any], int]:
        whole = f"GET /agent/executions/{execution.id}/steps/{recorded.number} for the whole"
        shortener = Shortener(whole)
        data = step_as_data(recorded, shortener.shorten)
        size = _STEP_CHARACTERS * (1 + len(data["tool_executions"])) + shortener.characters
        return {**data, "truncated": shortener.has_cut}, size

    found = [it for it in _recorded_steps(execution, state) if it.number > after]
    return take_part(found, limit, shorten)


def _trace_head(execution: Execution, state: AgentState | None) -> dict[str, Any]:
    stop = {**_stop(execution, state), "status": execution.status.value}
    return {
        "execution": to_builtins(execution),
        "explanation": stop["text"],
        "stop": stop,
        "decision": execution.decision,
    }


def _short_head(execution: Execution, state: AgentState | None) -> dict[str, Any]:
    shortener = Shortener(f"GET /agent/executions/{execution.id} for the whole")
    head = _trace_head(execution, state)
    for part in ("execution", "stop"):
        head[part] = {name: shortener.shorten(value) for name, value in head[part].items()}
    head["explanation"], head["decision"] = head["stop"]["text"], head["execution"]["decision"]
    return head


def _short_message(message: SessionMessage) -> tuple[dict[str, Any], int]:
    shortener = Shortener("the session's messages have the whole")
    data = shortener.shorten(message_as_data(message))
    return {**data, "truncated": shortener.has_cut}, shortener.characters


def _short_subagent(child: Mapping[str, Any]) -> dict[str, Any]:
    shortener = Shortener(f"GET /agent/executions/{child['id']} for the whole")
    own = {name: value for name, value in child.items() if name != "subagents"}
    children = [_short_subagent(each) for each in child["subagents"]]
    return {**shortener.shorten(own), "subagents": children}


def _stop(execution: Execution, state: AgentState | None) -> dict[str, Any]:
    """Explain the status. An execution that ended outside of the loop, as after crashes, has its
    reason in the row, not in the state."""
    if has_no_states_any_more(execution):
        why = "" if execution.stop_reason is None else f" ({execution.stop_reason})"
        text = f"The execution is {execution.status}{why}; {states_removed_text(execution)}."
        return {**only_words(text), "reason": execution.stop_reason}
    has_it = state is not None and state.execution and state.execution.id == execution.id
    if state is not None and has_it:
        is_the_loops = str(state.status) == str(execution.status)
        if is_the_loops or not execution.error_message:
            return stop_of(state)
    words = f"The execution is {execution.status}; no step of it is stored."
    return {**only_words(execution.error_message or words), "reason": execution.stop_reason}


async def _subagents(
    transaction: Transaction, execution_id: str, depth: int
) -> list[dict[str, Any]]:
    if not depth:
        return []
    found: list[dict[str, Any]] = []
    for child in await transaction.executions(parent_execution_id=execution_id, limit=1000):
        children = await _subagents(transaction, child.id, depth - 1)
        found.append({**to_builtins(child), "subagents": children})
        await asyncio.sleep(0)
    return found


async def messages_that(
    transaction: Transaction, session_id: str, fits: Callable[[SessionMessage], bool]
) -> list[SessionMessage]:
    """Return the matching messages of a session in order, with only these in memory."""
    found: list[SessionMessage] = []
    before = None
    while page := await transaction.messages(session_id, before=before, limit=PAGE):
        found += [message for message in reversed(page) if fits(message)]
        await asyncio.sleep(0)  # SQLite's rows come without a pause
        before = (page[0].created_at, page[0].id)
        if len(page) < PAGE:
            break
    return found[::-1]


async def _messages_of(
    transaction: Transaction, execution: Execution, after: tuple[datetime, str] | None, most: int
) -> list[SessionMessage]:
    """Return the first messages of an execution after a place, in order."""
    found: list[SessionMessage] = []
    after = after or (datetime(1970, 1, 1, tzinfo=UTC), "")
    session_id = execution.session_id or ""
    while len(found) < most:
        page = await transaction.messages(session_id, after=after, limit=PAGE)
        found += [it for it in page if it.agent_execution_id == execution.id]
        if len(page) < PAGE:
            break
        after = (page[-1].created_at, page[-1].id)
        await asyncio.sleep(0)
    return found[:most]

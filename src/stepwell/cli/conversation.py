"""A conversation with an application in this process: send messages, follow executions, answer.

The application runs in its own thread, so that the main thread can wait for a person and Ctrl-C.
"""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from stepwell.cli.application import agent_that_ran
from stepwell.cli.options import USER
from stepwell.cli.process import LEFT_TASKS_SECONDS, leave_at_once, start_application
from stepwell.clock import SystemClock
from stepwell.foreign import end_event_loop
from stepwell.sessions.errors import ConflictError, NotThereError
from stepwell.sessions.ports import WORK_TOPIC
from stepwell.sessions.principal import Principal

if TYPE_CHECKING:
    from stepwell.app.agent_app import AgentApp
    from stepwell.sessions.records import Execution, Session, StoredEntry

Result = TypeVar("Result")
Hear = Callable[[Mapping[str, Any]], None]
LOOK_SECONDS = 1.0
SAME_SECONDS = 1.0
"""A second SIGTERM within this time is the same one: timeout(1) signals process and group."""
NUDGE_SECONDS = 0.2
NUDGES = 5
_ENDING = tuple(
    signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if name in signal.Signals.__members__
)
"""Windows has no SIGHUP."""
_AT_REST = ("completed", "failed", "stopped", "cancelled", "paused")


class BackgroundApp:
    """Runs an application in another thread for the length of a block. Within it, SIGTERM and
    SIGHUP (a closed terminal) act like Ctrl-C and end the command.

    A signal that reaches another thread, or that arrives just before the main thread starts to
    wait, does not wake the main thread. Python still writes it to the wakeup descriptor, so the
    other thread wakes the main thread again with a signal that has no meaning.
    """

    def __init__(self, application: "AgentApp") -> None:
        self.application = application
        self.ended_by: str | None = None
        """The signal that ends the command."""
        self._clock = SystemClock()
        self._signalled_at: float | None = None
        self._is_beginning = self._came_early = False
        self._ending = ExitStack()
        self._loop = asyncio.new_event_loop()
        self._signals, self._signalled = socket.socketpair()
        self._thread = threading.Thread(target=self._turn, name="stepwell", daemon=True)

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def __enter__(self) -> "BackgroundApp":
        self._thread.start()
        with ExitStack() as unless_started:
            unless_started.callback(self._end)
            for number in _ENDING:
                if signal.getsignal(number) is not signal.SIG_IGN:  # set by nohup
                    self._on(number, self._on_terminate)
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._on(signal.SIGINT, self._on_interrupt)
            if hasattr(signal, "pthread_kill"):  # not on Windows
                self._on(signal.SIGURG, lambda *_: None)
                self._watch_signals()
            self.wait(start_application(self.application))
            unless_started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait(self.application.stop())
        finally:
            self._end()

    @property
    def is_ending(self) -> bool:
        """Whether a signal ended the command."""
        return self.ended_by is not None

    def _on_terminate(self, number: int, *_: object) -> None:
        now = self._clock.monotonic()
        if self._signalled_at is None or now - self._signalled_at > SAME_SECONDS:
            self.ended_by, self._signalled_at = signal.Signals(number).name, now
            self._on_interrupt()

    def _on_interrupt(self, *_: object) -> None:
        if self._is_beginning:
            self._came_early = True
        else:
            raise KeyboardInterrupt

    def _on(self, number: signal.Signals, handler: Callable[..., None]) -> None:
        self._ending.callback(signal.signal, number, signal.signal(number, handler))

    def _watch_signals(self) -> None:
        for end in (self._signals, self._signalled):
            end.setblocking(False)
        before = signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        self._ending.callback(signal.set_wakeup_fd, before)
        self._loop.call_soon_threadsafe(self._loop.add_reader, self._signals, self._nudge_later)

    def _nudge_later(self) -> None:
        if {*_ENDING, signal.SIGINT} & set(self._signals.recv(64)):
            for times in range(1, NUDGES + 1):
                self._loop.call_later(times * NUDGE_SECONDS, self._nudge)

    def _nudge(self) -> None:
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGURG)

    def _end(self) -> None:
        self._ending.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        end_event_loop(self._loop, grace=LEFT_TASKS_SECONDS)
        self._loop.close()
        self._signals.close()
        self._signalled.close()

    def wait(
        self,
        work: Coroutine[Any, Any, Result],
        *,
        on_interrupt: Callable[[], None] | None = None,
    ) -> Result:
        """Run the work in the other thread and return its result. The first Ctrl-C calls
        ``on_interrupt`` and waits on; the second one exits immediately."""
        self._is_beginning = True  # defer an interrupt until there is something to wait for
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            self._is_beginning = False
            if self._came_early:
                raise KeyboardInterrupt
            return future.result()
        except KeyboardInterrupt:
            self._came_early = False
            if on_interrupt is None:
                leave_at_once()
            try:  # a second one may arrive during the first
                on_interrupt()
                return future.result()
            except KeyboardInterrupt:
                leave_at_once()

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start the work without waiting. It is cancelled if it runs at the end of the block."""
        asyncio.run_coroutine_threadsafe(work, self._loop)


class Conversation:
    """One session and its executions. Lives in the application's thread.

    The application runs executions of this session only and leaves those of others alone.
    """

    def __init__(self, application: "AgentApp", agent: str | None) -> None:
        self._sessions = set[str]()
        application.work_only_on(self._sessions)
        self.application = application
        self.agent = agent or application.agents.default
        self.session_id: str | None = None
        self.goes_on_with: str | None = None
        """An unfinished execution of a continued session; it runs first."""
        self._who = Principal(user_id=USER)
        self._position = 0

    async def go_on_with(self, given: str, agent: str | None) -> "Session":
        """Continue an existing session."""
        from stepwell.cli.database import find_session

        store = self.application.services.store
        session = await find_session(store, given)
        if agent is not None and agent != session.agent_type:
            raise ConflictError(
                f"session {session.id} belongs to agent {session.agent_type!r}, not {agent!r}; "
                "omit --agent",
                code="other_agent",
            )
        agent_that_ran(self.application, session.agent_type)
        self.agent, self.session_id = session.agent_type, session.id
        unfinished = await store.read(lambda tx: tx.unfinished(session.id))
        if unfinished and unfinished[0].status.value != "paused":
            self.goes_on_with = unfinished[0].id
        self._sessions.add(session.id)
        self._who = Principal(user_id=session.user_id, tenant_id=session.tenant_id)
        _, self._position = await store.read(lambda tx: tx.entry_range(session.id))
        return session

    def start_new_session(self) -> None:
        """Start a new session with the next message."""
        self.session_id, self._position = None, 0
        self._who = Principal(user_id=USER)

    async def paused_execution(self) -> "Execution | None":
        """Return the paused execution that blocks the session, if there is one."""
        session_id = self.session_id
        if session_id is None:
            return None
        store = self.application.services.store
        unfinished = await store.read(lambda tx: tx.unfinished(session_id))
        is_paused = bool(unfinished) and unfinished[0].status.value == "paused"
        return unfinished[0] if is_paused else None

    async def send(self, content: str) -> str:
        """Send a message and return the id of the execution that answers it."""
        from stepwell.sessions.intake.intake import NewMessage, NewSession

        new_session = NewSession(agent_type=self.agent)
        sent = await self.application.services.intake.send_message(
            self._who,
            NewMessage(content=content, session_id=self.session_id, new_session=new_session),
        )
        self.session_id = sent.session.id
        self._sessions.add(sent.session.id)
        self._wake_worker()
        if sent.execution is not None:
            return sent.execution.id
        return sent.message.agent_execution_id or ""

    async def follow(self, execution_id: str, hear: Hear) -> "Execution":
        """Pass the envelopes of the execution to ``hear`` until it ends or pauses."""
        from stepwell.server.live.live_event import LiveEvent
        from stepwell.sessions.occurrence import envelope_of

        feeds, known = self.application.services.feeds, {execution_id}
        async with await feeds.subscribe(self.session_id or "", self._position) as events:
            while (batch := await events.take(LOOK_SECONDS)) is not None:
                self._position = events.position
                is_at_rest = not batch
                for item in batch:
                    if isinstance(item, LiveEvent) and belongs(item.event, known):
                        hear(envelope_of(item.event))
                        is_at_rest = is_at_rest or _comes_to_rest(item.event, execution_id)
                if is_at_rest:
                    execution = await self.execution(execution_id)
                    if execution.status.is_terminal or execution.status.value == "paused":
                        return execution
        return await self.execution(execution_id)

    async def execution(self, execution_id: str) -> "Execution":
        """Return the current row."""
        found = await self.application.services.store.read(lambda tx: tx.execution(execution_id))
        if found is None:
            raise NotThereError("execution", execution_id)
        return found

    async def trace(self, execution_id: str) -> Mapping[str, Any]:
        """Return the trace as the API does."""
        from stepwell.server.views import trace_view

        return trace_view(await self.application.services.reader.trace(execution_id))

    async def answer(self, execution_id: str, question_id: str, answer: Any) -> None:
        """Answer a question."""
        await self.application.services.lifecycle.answer(execution_id, question_id, answer)
        self._wake_worker()

    async def grant(self, execution_id: str, question_id: str, **more: Any) -> None:
        """Grant the budget that it asked for."""
        lifecycle = self.application.services.lifecycle
        await lifecycle.resume(execution_id, question_id=question_id, **more)
        self._wake_worker()

    async def cancel(self, execution_id: str, reason: str) -> None:
        """Cancel the execution if it has not ended."""
        try:
            await self.application.services.lifecycle.cancel(execution_id, reason=reason)
        except ConflictError:
            return

    async def cancel_and_wait(self, execution_id: str, reason: str) -> None:
        """Cancel the execution and wait until it has ended."""
        await self.cancel(execution_id, reason)
        while not (await self.follow(execution_id, _ignore)).status.is_terminal:
            # It paused before it saw the request; now cancelling ends it at once.
            await self.cancel(execution_id, reason)

    def _wake_worker(self) -> None:
        """Wake the worker, which may have missed the job before the session was added."""
        self.application.services.store.bus.publish(WORK_TOPIC)


def _ignore(_envelope: Mapping[str, Any]) -> None:
    pass


def belongs(event: "StoredEntry", known: set[str]) -> bool:
    """Whether the event belongs to a known execution or to a subagent of one, which is added."""
    if event.execution_id is None:
        return False
    if event.payload.get("parent_execution_id") in known:
        known.add(event.execution_id)
    return event.execution_id in known


def _comes_to_rest(event: "StoredEntry", execution_id: str) -> bool:
    is_status = event.type == "agent.status" and event.execution_id == execution_id
    return is_status and event.payload["status"] in _AT_REST

"""The way to an MCP server over its standard streams: starts the process, carries the messages,
and ends the process with its group. Lines that are no messages are passed over.
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from stepwell.capabilities.mcp.ending import Ending
from stepwell.capabilities.mcp.errors import hidden
from stepwell.capabilities.mcp.launch import Command

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

logger = logging.getLogger("stepwell.capabilities.mcp")

LONGEST_MESSAGE = 32 * 1024 * 1024
LAST_WORDS = 600
"""Characters of its standard error that are told when a server ended."""

ODD_LINES_TOLD = 3
"""Lines that are no messages and are warned of; the others are counted."""

SECONDS_TO_LEAVE = 2.0
"""After its input was closed, and again after it was asked to end, before it is killed."""

_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError)


@asynccontextmanager
async def process_streams(command: Command, ending: Ending) -> AsyncGenerator[Any]:
    """Runs a server while the block lasts, and gives the streams of its messages."""
    process = await _started(command)
    talk = _Talk(process, command, ending)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk.read)
        tasks.start_soon(talk.write)
        tasks.start_soon(talk.listen)
        try:
            yield talk.incoming, talk.outgoing
        finally:
            talk.note_our_end()
            with anyio.CancelScope(shield=True):
                await _end(process)
            tasks.cancel_scope.cancel()
            talk.close()


class _Talk:
    """The messages between a session and a process."""

    def __init__(self, process: Process, command: Command, ending: Ending) -> None:
        self._process = process
        self._command = command
        self._ending = ending
        self._last_words = b""
        self._odd_lines = 0
        self._was_heard = asyncio.Event()
        self._to_session: MemoryObjectSendStream[SessionMessage | Exception]
        self.incoming: MemoryObjectReceiveStream[SessionMessage | Exception]
        self.outgoing: MemoryObjectSendStream[SessionMessage]
        self._from_session: MemoryObjectReceiveStream[SessionMessage]
        self._to_session, self.incoming = anyio.create_memory_object_stream(0)
        self.outgoing, self._from_session = anyio.create_memory_object_stream(0)

    async def read(self) -> None:
        """What the server says; until it is over, which ends every call that waits."""
        words = ""
        with suppress(*_GONE):
            words = await self._carried()
        await self._over(words)

    async def write(self) -> None:
        """What the session says; a server that no longer listens is as good as ended."""
        stdin = _there(self._process.stdin)
        try:
            async for item in self._from_session:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()
        except OSError:
            await self._over()

    async def listen(self) -> None:
        """Its standard error, of which only the end is kept."""
        stderr = _there(self._process.stderr)
        while said := await stderr.read(65536):
            self._last_words = (self._last_words + said)[-4 * LAST_WORDS :]
        self._was_heard.set()

    def note_our_end(self) -> None:
        """How it ends now explains nothing; what made us end it does."""
        self._ending.tell("", last_words=self._said())

    def close(self) -> None:
        """Nothing more is said."""
        if self._odd_lines > ODD_LINES_TOLD:
            logger.warning(
                "MCP server %s wrote %d lines to its standard output that are no messages",
                self._command.label,
                self._odd_lines,
            )
        for stream in (self._to_session, self.incoming, self.outgoing, self._from_session):
            stream.close()

    async def _carried(self) -> str:
        """Reads to the end; why, if it is not the server that ended."""
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        stdout = _there(self._process.stdout)
        while True:
            try:
                line = await stdout.readline()
            except ValueError:
                return f"sent a message of more than {LONGEST_MESSAGE} bytes"
            if not line:
                return ""
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                self._pass_over(line)
                continue
            await self._to_session.send(SessionMessage(message))

    def _pass_over(self, line: bytes) -> None:
        if not line.strip():
            return
        self._odd_lines += 1
        if self._odd_lines <= ODD_LINES_TOLD:
            logger.warning(
                "MCP server %s wrote a line of %d bytes to its standard output that is no "
                "message; it is passed over",
                self._command.label,
                len(line),
            )

    async def _over(self, words: str = "") -> None:
        """Tell how it ended; its exit code comes a moment after its last word."""
        if not words and await _exits(self._process, SECONDS_TO_LEAVE / 2):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._was_heard.wait(), SECONDS_TO_LEAVE / 4)
            words = _how(self._process.returncode or 0)
        self._ending.tell(words or "closed its output", last_words=self._said())
        self._to_session.close()

    def _said(self) -> str:
        said = hidden(self._last_words.decode(errors="replace"), self._command.secrets)
        return " ".join(said.split())[-LAST_WORDS:]


async def _started(command: Command) -> Process:
    """Only what is given to it and what every program needs is in its environment."""
    from mcp.client.stdio import get_default_environment

    return await asyncio.create_subprocess_exec(
        command.command,
        *command.args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**get_default_environment(), **command.env},
        cwd=command.cwd,
        limit=LONGEST_MESSAGE,
        start_new_session=True,
    )


async def _end(process: Process) -> None:
    """Closed input asks a server to leave; what stays is asked once more, then killed."""
    _there(process.stdin).close()
    if not await _exits(process, SECONDS_TO_LEAVE):
        _signal_group(process, "SIGTERM")
        if not await _exits(process, SECONDS_TO_LEAVE):
            _signal_group(process, "SIGKILL")
            await _exits(process, SECONDS_TO_LEAVE)
    _signal_group(process, "SIGKILL")  # what it left behind
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:  # stays open while something that left the group has its pipes
        transport.close()


async def _exits(process: Process, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), seconds)
    return process.returncode is not None


def _signal_group(process: Process, name: str) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, getattr(signal, name))
        else:
            process.kill()


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _there(stream: Any) -> Any:
    if stream is None:
        raise RuntimeError("the process was started without its pipes")
    return stream

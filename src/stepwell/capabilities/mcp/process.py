"""Connects to an MCP server over its standard streams: starts the process, forwards messages, and
kills the process with its group at the end. Skips lines that are not messages.
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

from stepwell.capabilities.mcp.endpoints import MAX_MESSAGE_BYTES, Command, ConnectionEnd
from stepwell.secrets import hide

if TYPE_CHECKING:
    from mcp.shared.message import SessionMessage

logger = logging.getLogger("stepwell.capabilities.mcp")

MAX_STDERR_CHARS = 600
"""How much of a server's stderr is reported after its end."""

MAX_LINE_WARNINGS = 3
"""How many skipped lines are logged one by one; the rest is only counted."""

EXIT_SECONDS = 2.0
"""How long to wait after closing stdin, and again after SIGTERM, before SIGKILL."""

_CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError)


@asynccontextmanager
async def process_streams(command: Command, end: ConnectionEnd) -> AsyncGenerator[Any]:
    """Run a server for the duration of the block and yield its message streams."""
    process = await _start(command)
    pump = _MessagePump(process, command, end)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(pump.read)
        tasks.start_soon(pump.write)
        tasks.start_soon(pump.read_stderr)
        try:
            yield pump.incoming, pump.outgoing
        finally:
            pump.report_own_end()
            with anyio.CancelScope(shield=True):
                await _end(process)
            tasks.cancel_scope.cancel()
            pump.close()


class _MessagePump:
    """Forwards messages between a session and a process."""

    def __init__(self, process: Process, command: Command, end: ConnectionEnd) -> None:
        self._process = process
        self._command = command
        self._connection_end = end
        self._stderr_tail = b""
        self._skipped_lines = 0
        self._stderr_read = asyncio.Event()
        self._to_session: MemoryObjectSendStream[SessionMessage | Exception]
        self.incoming: MemoryObjectReceiveStream[SessionMessage | Exception]
        self.outgoing: MemoryObjectSendStream[SessionMessage]
        self._from_session: MemoryObjectReceiveStream[SessionMessage]
        self._to_session, self.incoming = anyio.create_memory_object_stream(0)
        self.outgoing, self._from_session = anyio.create_memory_object_stream(0)

    async def read(self) -> None:
        """Forward the server's messages until its output ends, which ends every pending call."""
        reason = ""
        with suppress(*_CLOSED):
            reason = await self._forward_messages()
        await self._report_end(reason)

    async def write(self) -> None:
        """Forward the session's messages. A server that no longer reads counts as ended."""
        stdin = _require(self._process.stdin)
        try:
            async for item in self._from_session:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                await stdin.drain()
        except OSError:
            await self._report_end()

    async def read_stderr(self) -> None:
        """Read stderr and keep only its end."""
        stderr = _require(self._process.stderr)
        while chunk := await stderr.read(65536):
            self._stderr_tail = (self._stderr_tail + chunk)[-4 * MAX_STDERR_CHARS :]
        self._stderr_read.set()

    def report_own_end(self) -> None:
        """Record that we end the server, so that its exit code is not reported as the reason."""
        self._connection_end.report("", stderr_tail=self._stderr_text())

    def close(self) -> None:
        """Close all streams."""
        if self._skipped_lines > MAX_LINE_WARNINGS:
            logger.warning(
                "MCP server %s wrote %d lines to stdout that are not messages",
                self._command.label,
                self._skipped_lines,
            )
        for stream in (self._to_session, self.incoming, self.outgoing, self._from_session):
            stream.close()

    async def _forward_messages(self) -> str:
        """Forward messages until the output ends. Return the reason if the server did not end
        it."""
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        stdout = _require(self._process.stdout)
        while True:
            try:
                line = await stdout.readline()
            except ValueError:
                return f"sent a message of more than {MAX_MESSAGE_BYTES} bytes"
            if not line:
                return ""
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                self._skip_line(line)
                continue
            await self._to_session.send(SessionMessage(message))

    def _skip_line(self, line: bytes) -> None:
        if not line.strip():
            return
        self._skipped_lines += 1
        if self._skipped_lines <= MAX_LINE_WARNINGS:
            logger.warning(
                "MCP server %s wrote a line of %d bytes to stdout that is not a message; it is "
                "skipped",
                self._command.label,
                len(line),
            )

    async def _report_end(self, reason: str = "") -> None:
        """Report why the server ended; its exit code is known shortly after its output ends."""
        if not reason and await _exits(self._process, EXIT_SECONDS / 2):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stderr_read.wait(), EXIT_SECONDS / 4)
            reason = _exit_text(self._process.returncode or 0)
        self._connection_end.report(reason or "closed its output", stderr_tail=self._stderr_text())
        self._to_session.close()

    def _stderr_text(self) -> str:
        chunk = hide(self._stderr_tail.decode(errors="replace"), self._command.secrets)
        return " ".join(chunk.split())[-MAX_STDERR_CHARS:]


async def _start(command: Command) -> Process:
    """Start the server. Its environment has only the given variables and the basic ones."""
    from mcp.client.stdio import get_default_environment

    return await asyncio.create_subprocess_exec(
        command.command,
        *command.args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env={**get_default_environment(), **command.env},
        cwd=command.cwd,
        limit=MAX_MESSAGE_BYTES,
        start_new_session=True,
    )


async def _end(process: Process) -> None:
    """Close stdin to ask the server to exit; then send SIGTERM, then SIGKILL."""
    _require(process.stdin).close()
    if not await _exits(process, EXIT_SECONDS):
        _signal_group(process, "SIGTERM")
        if not await _exits(process, EXIT_SECONDS):
            _signal_group(process, "SIGKILL")
            await _exits(process, EXIT_SECONDS)
    _signal_group(process, "SIGKILL")  # processes it left behind
    transport: Any = getattr(process, "_transport", None)
    if transport is not None:  # stays open while a process outside the group holds its pipes
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


def _exit_text(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _require(stream: Any) -> Any:
    if stream is None:
        raise RuntimeError("the process was started without its pipes")
    return stream

"""Writes envelopes as lines for a person at a terminal.

Streamed text is written as it arrives; every other envelope is one line, worded in
``console_lines``. No output of a model or a tool can control the terminal.
"""

import sys
import threading
from collections.abc import Mapping
from typing import Any, TextIO

from stepwell.broadcasting.broadcasters.console_lines import (
    CYAN,
    DIM,
    Part,
    harmless_text,
    line_parts,
    one_line,
)
from stepwell.journal.envelope import EnvelopeType
from stepwell.journal.status import BroadcastStatus

_TIME_WIDTH = len("10:05:00 ")


class ConsoleBroadcaster:
    """Writes a run to a terminal or any other text stream, by default to stderr.

    ``color`` is true, false, or None: coloured if the stream is a terminal. It does not read the
    environment; to honour ``NO_COLOR``, pass ``color=False``. A closed stream raises.

    >>> screen = ConsoleBroadcaster(sys.stdout)
    >>> payload = {"agent_id": "a", "step_number": 1, "tool_name": "add", "args_summary": "a: 1"}
    >>> screen.broadcast(
    ...     "agent.42",
    ...     {
    ...         "type": "agent.tool.started",
    ...         "execution_id": "run-1",
    ...         "timestamp": "2026-01-16T10:05:00.123Z",
    ...         "payload": payload,
    ...     },
    ... )
    10:05:00 tool add(a: 1)
    """

    def __init__(self, stream: TextIO | None = None, *, color: bool | None = None) -> None:
        self._stream = stream
        self._color = color
        self._lock = threading.Lock()
        self._executions: dict[str, _Execution] = {}
        self._text_of: str | None = None
        """The execution whose streamed text is on the open line."""

    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:  # noqa: ARG002
        """Write it."""
        execution_id = str(envelope.get("execution_id", ""))
        payload: Mapping[str, Any] = envelope.get("payload") or {}
        with self._lock:
            stream = self._stream or sys.stderr
            execution = self._execution(execution_id, payload)
            start = self._start(stream, envelope, execution)
            if envelope.get("type") == EnvelopeType.AGENT_STREAM_CHUNK:
                execution.read(payload)
                written = self._chunk(execution_id, execution, payload, start)
            else:
                parts = line_parts(envelope, payload)
                written = self._end_of_text() + start + self._paint(stream, parts) + "\n"
                written += self._answer(envelope, payload, execution)
            self._forget(execution_id, envelope, payload)
            stream.write(_encodable(written, stream))
            stream.flush()

    def _chunk(
        self, execution_id: str, execution: "_Execution", payload: Mapping[str, Any], start: str
    ) -> str:
        text = harmless_text(str(payload.get("content", ""))).replace("\n", "\n" + execution.margin)
        written = ""
        if text:
            goes_on = self._text_of == execution_id
            written = text if goes_on else self._end_of_text() + start + text
            self._text_of = execution_id
        if payload.get("is_complete") and self._text_of == execution_id:
            written += self._end_of_text()
        return written

    def _end_of_text(self) -> str:
        was_open, self._text_of = self._text_of is not None, None
        return "\n" if was_open else ""

    def _answer(
        self, envelope: Mapping[str, Any], payload: Mapping[str, Any], execution: "_Execution"
    ) -> str:
        """Return the last response, unless it was streamed."""
        answer = str(payload.get("last_response") or "")
        if (
            envelope.get("type") != EnvelopeType.AGENT_STATUS
            or not answer
            or execution.has_streamed(answer)
        ):
            return ""
        lines = harmless_text(answer).splitlines()
        return "".join(f"{execution.margin}{line}\n" for line in lines)

    def _start(self, stream: TextIO, envelope: Mapping[str, Any], execution: "_Execution") -> str:
        time = one_line(str(envelope.get("timestamp", ""))[11:19]).ljust(_TIME_WIDTH - 1)
        roots = sum(known.depth == 0 for known in self._executions.values())
        label = f"[{execution.name}] " if execution.depth or roots > 1 else ""
        parts = ((f"{time} ", DIM), ("  " * execution.depth, ""), (label, CYAN))
        return self._paint(stream, parts)

    def _paint(self, stream: TextIO, parts: tuple[Part, ...]) -> str:
        color = stream.isatty() if self._color is None else self._color
        return "".join(
            f"\x1b[{code}m{text}\x1b[0m" if color and code and text else text
            for text, code in parts
        )

    def _execution(self, execution_id: str, payload: Mapping[str, Any]) -> "_Execution":
        if execution_id not in self._executions:
            parent_id = payload.get("parent_execution_id")
            parent = self._executions.get(str(parent_id))
            depth = 0 if parent_id is None else 1 if parent is None else parent.depth + 1
            own_name = payload.get("agent_name") or payload.get("agent_id") or execution_id
            name = execution_id if parent_id is None else own_name
            self._executions[execution_id] = _Execution(one_line(name), depth)
        return self._executions[execution_id]

    def _forget(
        self, execution_id: str, envelope: Mapping[str, Any], payload: Mapping[str, Any]
    ) -> None:
        """Forget an execution at its terminal status; a server's console lives long."""
        status = payload.get("status")
        if envelope.get("type") == EnvelopeType.AGENT_STATUS and status in _TERMINAL:
            del self._executions[execution_id]


_TERMINAL = {status for status in BroadcastStatus if status.is_terminal}


class _Execution:
    """What is known of one execution to write its lines."""

    def __init__(self, name: str, depth: int) -> None:
        self.name = name
        self.depth = depth
        self._pieces: list[str] = []
        """The pieces of the last response that was streamed."""
        self._is_whole = False

    @property
    def margin(self) -> str:
        return " " * _TIME_WIDTH + "  " * self.depth

    def read(self, chunk: Mapping[str, Any]) -> None:
        """Add a piece of a response; earlier pieces may have been dropped."""
        if self._is_whole or chunk.get("chunk_index") == 0:
            self._pieces = []
        self._pieces.append(str(chunk.get("content", "")))
        self._is_whole = bool(chunk.get("is_complete"))

    def has_streamed(self, answer: str) -> bool:
        """Whether that text was streamed last."""
        return "".join(self._pieces).strip() == answer.strip()


def _encodable(text: str, stream: TextIO) -> str:
    """Return the text with characters that the stream can't encode as escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)

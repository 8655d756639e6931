"""Prints a running execution: the streamed answer on standard output, steps and tools on standard
error. Into a pipe, the answer is printed once it is complete.
"""

from collections.abc import Mapping
from typing import IO, Any

from stepwell.cli.terminal import is_terminal, one_line, printable, seconds, style_of

Envelope = Mapping[str, Any]


class PrintedText:
    """The streamed text of a step, without repetition. A step that restarts after its worker died
    may stream the same text or another one."""

    def __init__(self) -> None:
        self.printed = ""
        """What was printed of the newest step."""
        self.has_restarted = False
        """Whether the last part replaces what was printed before."""
        self._received = ""
        self._step = 0
        self._index = -1

    def add(self, step: int, index: int, content: str) -> str:
        """Add a chunk and return its new text."""
        self.has_restarted = False
        if step != self._step:
            self.printed = self._received = ""
            self._step, self._index = step, -1
        if index <= self._index:
            self._received = ""
        self._index = index
        self._received += content
        if self.printed.startswith(self._received):
            return ""
        new = self._received
        if self._received.startswith(self.printed):
            new = self._received.removeprefix(self.printed)
        else:
            self.has_restarted = True
        self.printed = self._received
        return new


class LiveTextPrinter:
    """Prints the envelopes of one execution."""

    def __init__(
        self, execution_id: str, out: IO[str], err: IO[str], *, is_quiet: bool = False
    ) -> None:
        self._execution_id = execution_id
        self._out, self._err = out, err
        self._style = style_of(err)
        self._streams = is_terminal(out)
        self._is_quiet = is_quiet
        self._text = PrintedText()
        self._in_line = False
        """Whether the last line on the terminal is unfinished."""

    def hear(self, envelope: Envelope) -> None:
        """Print an envelope if it is of interest here."""
        payload, is_own = envelope["payload"], envelope["execution_id"] == self._execution_id
        match envelope["type"]:
            case "agent.stream.chunk" if is_own:
                self._stream(payload)
            case "agent.tool.started":
                name = self._tool_name(payload, is_own=is_own)
                arguments = one_line(payload["args_summary"] or "", 120)
                self.note(f"-> {name} {self._style.dim(f'({arguments})')}")
            case "agent.tool.completed":
                self._tool_completed(payload, is_own=is_own)
            case "agent.step.completed" if is_own:
                self._step_completed(payload)
            case "execution.started" if payload["metadata"].get("takeover"):
                self.note(self._style.warm(one_line(payload["content"], 200)))
            case _:
                pass

    def _stream(self, payload: Mapping[str, Any]) -> None:
        new = self._text.add(payload["step_number"], payload["chunk_index"], payload["content"])
        if not new or not self._streams:
            return
        if self._text.has_restarted:
            self.note(self._style.warm("the step restarted:"))
        self._write(printable(new))

    def _tool_completed(self, payload: Mapping[str, Any], *, is_own: bool) -> None:
        name, outcome = self._tool_name(payload, is_own=is_own), payload["outcome"]
        took = seconds((payload["duration_ms"] or 0.0) / 1000)
        if payload["error"]:
            why = one_line(str(payload["error"]).removeprefix("Error: "), 200)
            self.note(f"<- {name} {self._style.bad(outcome)} in {took}: {why}")
        elif outcome == "pending":
            self.note(f"<- {name} waits for an answer")
        else:
            result = one_line(str(payload["result_summary"] or ""), 80)
            self.note(f"<- {name} in {took}  {self._style.dim(result)}".rstrip())

    def _step_completed(self, payload: Mapping[str, Any]) -> None:
        number, tokens = payload["step_number"], payload["usage"]["total"]
        took = seconds((payload["duration_ms"] or 0.0) / 1000)
        self.note(self._style.dim(f"step {number}: {took}, {tokens} tokens"))
        if payload["errors"] and not payload["has_tool_calls"]:
            for message in payload["error_messages"]:
                self.note(self._style.bad(one_line(message, 300)))

    def _tool_name(self, payload: Mapping[str, Any], *, is_own: bool) -> str:
        name = self._style.bold(printable(payload["tool_name"]))
        if is_own:
            return name
        return f"{self._style.dim(printable(payload['agent_name'] or 'subagent'))} {name}"

    def note(self, text: str) -> None:
        """Print a line of progress."""
        if not self._is_quiet:
            self.end_line()
            self._err.write(f"  {text}\n")
            self._err.flush()

    def answer(self, text: str | None) -> None:
        """Print the whole answer unless it was streamed already."""
        if text and not (self._streams and text.strip() == self._text.printed.strip()):
            self.end_line()
            self._write(printable(text) if self._streams else text)
        self.end_line()
        if text and not self._streams:
            self._out.write("" if text.endswith("\n") else "\n")
            self._out.flush()

    def end_line(self) -> None:
        """End an unfinished line on the terminal."""
        if self._in_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._in_line = self._streams and not text.endswith("\n")

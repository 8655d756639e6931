"""An execution as it is told in a terminal: the answer on standard output as it streams, steps and
tools on standard error. In pipes the answer comes once, when it is whole.
"""

from collections.abc import Mapping
from typing import IO, Any

from stepwell.cli.terminal import is_terminal, one_line, seconds, shown, style_of

Envelope = Mapping[str, Any]


class StepText:
    """The text of the step that streams, each part of it once: a step that began again, since its
    worker died, says the same again or something else."""

    def __init__(self) -> None:
        self.told = ""
        """What was given out of the newest step."""
        self.began_anew = False
        """Whether the last part replaces what was told before it."""
        self._heard = ""
        self._step = 0
        self._index = -1

    def add(self, step: int, index: int, content: str) -> str:
        """What is new in a chunk."""
        self.began_anew = False
        if step != self._step:
            self.told = self._heard = ""
            self._step, self._index = step, -1
        if index <= self._index:
            self._heard = ""
        self._index = index
        self._heard += content
        if self.told.startswith(self._heard):
            return ""
        new = self._heard
        if self._heard.startswith(self.told):
            new = self._heard.removeprefix(self.told)
        else:
            self.began_anew = True
        self.told = self._heard
        return new


class LiveTextPrinter:
    """Tells the envelopes of one execution."""

    def __init__(
        self, execution_id: str, out: IO[str], err: IO[str], *, is_quiet: bool = False
    ) -> None:
        self._execution_id = execution_id
        self._out, self._err = out, err
        self._style = style_of(err)
        self._streams = is_terminal(out)
        self._is_quiet = is_quiet
        self._text = StepText()
        self._in_line = False
        """Whether the last line on the terminal is not ended."""

    def hear(self, envelope: Envelope) -> None:
        """Tell what an envelope says, if it matters here."""
        payload, is_own = envelope["payload"], envelope["execution_id"] == self._execution_id
        match envelope["type"]:
            case "agent.stream.chunk" if is_own:
                self._stream(payload)
            case "agent.tool.started":
                name = self._named(payload, is_own=is_own)
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
        if self._text.began_anew:
            self.note(self._style.warm("the step began again:"))
        self._write(shown(new))

    def _tool_completed(self, payload: Mapping[str, Any], *, is_own: bool) -> None:
        name, outcome = self._named(payload, is_own=is_own), payload["outcome"]
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

    def _named(self, payload: Mapping[str, Any], *, is_own: bool) -> str:
        name = self._style.bold(shown(payload["tool_name"]))
        if is_own:
            return name
        return f"{self._style.dim(shown(payload['agent_name'] or 'subagent'))} {name}"

    def note(self, text: str) -> None:
        """A line of progress."""
        if not self._is_quiet:
            self.end_line()
            self._err.write(f"  {text}\n")
            self._err.flush()

    def answer(self, text: str | None) -> None:
        """The whole answer, unless it has been read already."""
        if text and not (self._streams and text.strip() == self._text.told.strip()):
            self.end_line()
            self._write(shown(text) if self._streams else text)
        self.end_line()
        if text and not self._streams:
            self._out.write("" if text.endswith("\n") else "\n")
            self._out.flush()

    def end_line(self) -> None:
        """Begin a new line where somebody reads."""
        if self._in_line:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        self._in_line = self._streams and not text.endswith("\n")

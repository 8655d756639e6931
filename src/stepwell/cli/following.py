"""One execution followed in the terminal until it comes to rest. Ctrl-C cancels it, and so does
whatever else ends the following: nobody is there any more who could see to it.
"""

import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.live_text import LiveTextPrinter
from stepwell.cli.terminal import line_of
from stepwell.continuation import StopReason
from stepwell.messages import INCOMPLETE

if TYPE_CHECKING:
    from stepwell.cli.conversing import Conversation, InBackground
    from stepwell.sessions.records import Execution


def said(background: "InBackground", talk: "Conversation", text: str) -> tuple[str, bool]:
    """Say something; the id of the execution that answers, and whether it was interrupted while it
    was sent and so must not go on."""
    interruptions: list[str] = []
    execution_id = background.wait(
        talk.send(text), on_interrupt=lambda: interruptions.append("Ctrl-C")
    )
    return execution_id, bool(interruptions)


def tell_earlier(talk: "Conversation") -> None:
    """Say that another execution comes first, which nobody who takes up a session may expect."""
    if talk.goes_on_with is not None:
        click.echo(f"first goes on with execution {talk.goes_on_with}", err=True)


class Following:
    """Tells what happens in an execution, also after it was paused and goes on."""

    def __init__(
        self,
        background: "InBackground",
        talk: "Conversation",
        execution_id: str,
        *,
        as_jsonl: bool = False,
        is_quiet: bool = False,
        max_seconds: float | None = None,
        is_interrupted: bool = False,
    ) -> None:
        self.live = LiveTextPrinter(execution_id, sys.stdout, sys.stderr, is_quiet=is_quiet)
        self.has_timed_out = False
        self._background = background
        self._talk = talk
        self._execution_id = execution_id
        self._as_jsonl = as_jsonl
        self._is_quiet = is_quiet
        self._max_seconds = max_seconds
        self._is_interrupted = is_interrupted

    def until_rest(self) -> "Execution":
        """The execution once it is over, or waits for a person."""
        if self._max_seconds is not None:
            self._background.begin(self._cancel_in(self._max_seconds))
            self._max_seconds = None
        with ExitStack() as unless_at_rest:
            unless_at_rest.callback(self._end)
            if self._is_interrupted:
                self._is_interrupted = False
                self._cancel()
            execution = self._background.wait(
                self._talk.follow(self._execution_id, self._hear), on_interrupt=self._cancel
            )
            unless_at_rest.pop_all()
        return execution

    def _hear(self, envelope: Mapping[str, Any]) -> None:
        if self._as_jsonl:
            click.echo(line_of(envelope))
        elif not self._is_quiet or envelope["type"] == "agent.stream.chunk":
            self.live.hear(envelope)

    def _cancel(self) -> None:
        word = self._background.ended_by or "Ctrl-C"
        self._background.begin(self._talk.cancel(self._execution_id, word))
        again = "once more" if self._background.is_ending else "Ctrl-C again"
        click.echo(f"\ncancelling ({again} leaves at once)", err=True)

    def _end(self) -> None:
        """Cancel it and wait for that, without a word of what comes: what is to be said can't be,
        as after `| head -1`."""
        with suppress(OSError):
            click.echo("cancelling: what it does can't be told any more", err=True)
        self._background.wait(self._talk.ended(self._execution_id, "nobody follows it any more"))

    async def _cancel_in(self, seconds: float) -> None:
        from stepwell.clock import SystemClock

        await SystemClock().sleep(seconds)
        self.has_timed_out = True
        reason = f"the limit of --max-seconds {seconds:g} was reached"
        await self._talk.cancel(self._execution_id, reason)


def is_incomplete(trace: Mapping[str, Any]) -> bool:
    """Whether the answer was cut off by the end of the run or by a limit of the model."""
    said = [m for m in trace["messages"] if m["role"] == "assistant"]
    if not said:
        return False
    is_cut = trace["execution"]["stop_reason"] == StopReason.FINISH_REASON
    return is_cut or said[-1]["metadata"].get(INCOMPLETE) is True


def tell_incomplete(trace: Mapping[str, Any]) -> None:
    """Mark an answer that was cut off, behind it and on standard error."""
    if is_incomplete(trace):
        click.echo("[incomplete: the answer was cut off here]", err=True)


def answer_text(execution: "Execution", trace: Mapping[str, Any]) -> str | None:
    """The answer as text; a typed output as the model wrote it."""
    said = [m["content"] for m in trace["messages"] if m["role"] == "assistant"]
    if said:
        return str(said[-1])
    output = execution.output
    return output if isinstance(output, str) or output is None else line_of(output)

"""Follows one execution in the terminal until it ends or pauses. Ctrl-C cancels the execution, and
so does anything else that ends the following.
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
    from stepwell.cli.conversation import BackgroundApp, Conversation
    from stepwell.sessions.records import Execution


def send(background: "BackgroundApp", talk: "Conversation", text: str) -> tuple[str, bool]:
    """Send a message. Return the id of the execution, and whether Ctrl-C came while it was sent."""
    interruptions: list[str] = []
    execution_id = background.wait(
        talk.send(text), on_interrupt=lambda: interruptions.append("Ctrl-C")
    )
    return execution_id, bool(interruptions)


def print_earlier_execution(talk: "Conversation") -> None:
    """Print that an unfinished execution of the session runs first."""
    if talk.goes_on_with is not None:
        click.echo(f"execution {talk.goes_on_with} is unfinished and runs first", err=True)


class ExecutionFollower:
    """Prints what happens in an execution, also after a pause."""

    def __init__(
        self,
        background: "BackgroundApp",
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
        """Follow the execution until it ends or pauses, and return it."""
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
        again = "the signal again" if self._background.is_ending else "Ctrl-C again"
        click.echo(f"\ncancelling ({again} exits immediately)", err=True)

    def _end(self) -> None:
        """Cancel the execution and wait for its end without printing: the output is closed, as
        after `| head -1`."""
        with suppress(OSError):
            click.echo("cancelling: the output can't be written", err=True)
        self._background.wait(
            self._talk.cancel_and_wait(self._execution_id, "the client that followed it is gone")
        )

    async def _cancel_in(self, seconds: float) -> None:
        from stepwell.clock import SystemClock

        await SystemClock().sleep(seconds)
        self.has_timed_out = True
        reason = f"the limit of --max-seconds {seconds:g} was reached"
        await self._talk.cancel(self._execution_id, reason)


def is_incomplete(trace: Mapping[str, Any]) -> bool:
    """Whether the end of the run or a limit of the model cut the answer off."""
    answers = [m for m in trace["messages"] if m["role"] == "assistant"]
    if not answers:
        return False
    is_cut = trace["execution"]["stop_reason"] == StopReason.FINISH_REASON
    return is_cut or answers[-1]["metadata"].get(INCOMPLETE) is True


def print_incomplete(trace: Mapping[str, Any]) -> None:
    """Print a note on standard error if the answer was cut off."""
    if is_incomplete(trace):
        click.echo("[incomplete: the answer was cut off here]", err=True)


def answer_text(execution: "Execution", trace: Mapping[str, Any]) -> str | None:
    """Return the answer as text; a typed output as the model wrote it."""
    answers = [m["content"] for m in trace["messages"] if m["role"] == "assistant"]
    if answers:
        return str(answers[-1])
    output = execution.output
    return output if isinstance(output, str) or output is None else line_of(output)

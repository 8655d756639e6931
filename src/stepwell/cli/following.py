"""One execution followed in the terminal until it comes to rest; Ctrl-C cancels it."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.live_text import LiveText
from stepwell.cli.terminal import line_of

if TYPE_CHECKING:
    from stepwell.cli.conversing import Conversation, InBackground
    from stepwell.sessions.records import Execution


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
    ) -> None:
        self.live = LiveText(execution_id, sys.stdout, sys.stderr, is_quiet=is_quiet)
        self.has_timed_out = False
        self._background = background
        self._talk = talk
        self._execution_id = execution_id
        self._as_jsonl = as_jsonl
        self._is_quiet = is_quiet
        self._max_seconds = max_seconds

    def until_rest(self) -> "Execution":
        """The execution once it is over, or waits for a person."""
        if self._max_seconds is not None:
            self._background.begin(self._cancel_in(self._max_seconds))
            self._max_seconds = None
        return self._background.wait(
            self._talk.follow(self._execution_id, self._hear), on_interrupt=self._cancel
        )

    def _hear(self, envelope: Mapping[str, Any]) -> None:
        if self._as_jsonl:
            click.echo(line_of(envelope))
        elif not self._is_quiet or envelope["type"] == "agent.stream.chunk":
            self.live.hear(envelope)

    def _cancel(self) -> None:
        click.echo("\ncancelling (Ctrl-C again leaves at once)", err=True)
        self._background.begin(self._talk.cancel(self._execution_id, "Ctrl-C"))

    async def _cancel_in(self, seconds: float) -> None:
        from stepwell.clock import SystemClock

        await SystemClock().sleep(seconds)
        self.has_timed_out = True
        await self._talk.cancel(self._execution_id, f"--max-seconds {seconds:g} passed")


def answer_text(execution: "Execution", trace: Mapping[str, Any]) -> str | None:
    """The answer as text; a typed output as the model wrote it."""
    said = [m["content"] for m in trace["messages"] if m["role"] == "assistant"]
    if said:
        return str(said[-1])
    output = execution.output
    return output if isinstance(output, str) or output is None else line_of(output)

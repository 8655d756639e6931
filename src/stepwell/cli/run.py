"""``stepwell run``: one prompt, answered by an agent in this process and stored like any other."""

import sys
from math import isfinite
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from stepwell.cli.exit_codes import ExitCode, code_after
from stepwell.cli.options import config_option, db_option, log_level_option, model_option
from stepwell.cli.streams import as_utf8

if TYPE_CHECKING:
    from stepwell.cli.conversing import Conversation, InBackground
    from stepwell.cli.loaded import Hints
    from stepwell.sessions.records import Execution


class How(Struct, frozen=True, kw_only=True):
    """How the execution is told."""

    as_json: bool
    as_jsonl: bool
    is_quiet: bool
    max_seconds: float | None

    @property
    def is_for_programs(self) -> bool:
        """Whether nobody reads along."""
        return self.as_json or self.as_jsonl


def _finite(
    _context: click.Context, _option: click.Parameter, seconds: float | None
) -> float | None:
    """The seconds; nan and inf are numbers to click, and no time to wait for."""
    if seconds is not None and not isfinite(seconds):
        raise click.BadParameter(f"{seconds} is no number of seconds.")
    return seconds


class _Prompted(click.Command):
    """A command whose argument is anything that people say."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments; what seems to be an option may have been meant to be said."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            told = f"{error.message} A prompt that begins with - goes after --."
            raise click.NoSuchOption(
                error.option_name, told, possibilities=error.possibilities, ctx=ctx
            ) from None


@click.command("run", cls=_Prompted)
@click.argument("prompt")
@click.option("--app", help="An AgentApp, an agent, or agents by name, as module:name.")
@click.option("--agent", help="Which agent of the app; otherwise its first.")
@click.option("--session", help="Go on with this conversation, given by (the start of) its id.")
@model_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document, at the end.")
@click.option("--jsonl", "as_jsonl", is_flag=True, help="The events as they come, one per line.")
@click.option(
    "--max-seconds",
    type=click.FloatRange(0, min_open=True),
    callback=_finite,
    help="Cancel it then; exit code 3.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress on standard error.")
@db_option
@config_option
@log_level_option("error")
def command(
    prompt: str,
    agent: str | None,
    session: str | None,
    as_json: bool,
    as_jsonl: bool,
    max_seconds: float | None,
    quiet: bool,
    app: str | None,
    **options: Any,
) -> None:
    """Ask an agent one thing. The answer goes to standard output, progress to standard error.

    PROMPT - reads standard input. It is stored: `stepwell why` explains it afterwards. Questions
    and approvals are asked where there is a terminal; otherwise it pauses, and the exit code is 4;
    a conversation that waits for a person takes no further prompt, which is said, with 4 as well.
    Ctrl-C, SIGTERM and SIGHUP cancel it, and so does whoever closes its output (`| head`); while it
    asks you something they leave it waiting. The exit code is 130.

    \b
    stepwell run "What time is it?"
    stepwell run --app my_module:app "Where is order 7?" > answer.txt
    git diff | stepwell run - --model openai:gpt-5 --json
    """
    from stepwell.cli.conversing import Conversation, InBackground
    from stepwell.cli.loaded import Hints, loaded_app

    if as_json and as_jsonl:
        raise click.UsageError("--json and --jsonl exclude each other; leave one out.")
    text = as_utf8(sys.stdin.read() if prompt == "-" else prompt, "the prompt")
    if not text.strip():
        raise click.UsageError("the prompt is empty.")
    how = How(as_json=as_json, as_jsonl=as_jsonl, is_quiet=quiet, max_seconds=max_seconds)
    application = loaded_app(app, **options)
    talk = Conversation(application, agent)
    application.agents.get(talk.agent)
    with InBackground(application) as background:
        if session is not None:
            background.wait(talk.go_on_with(session, agent))
        one = _OneRun(background, talk, how, Hints(application, app, options["config"]))
        code = one.run(text)
    sys.exit(code)


class _OneRun:
    """One execution from its prompt to its exit code."""

    def __init__(
        self, background: "InBackground", talk: "Conversation", how: How, hints: "Hints"
    ) -> None:
        self._background = background
        self._talk = talk
        self._how = how
        self._hints = hints

    def run(self, text: str) -> ExitCode:
        """Send it, follow it, ask what it asks, tell how it ended."""
        from stepwell.cli.asking import Asking, answer_all, can_ask
        from stepwell.cli.following import Following, said, tell_earlier

        waiting = self._background.wait(self._talk.waiting())
        if waiting is not None:
            if self._how.as_json:
                self._tell_document(waiting, is_sent=False)
            self._tell_waiting(waiting, "Not sent: the conversation waits for a person first:")
            return ExitCode.PAUSED
        if not self._how.is_quiet:
            tell_earlier(self._talk)
        execution_id, is_interrupted = said(self._background, self._talk, text)
        how = self._how
        following = Following(
            self._background,
            self._talk,
            execution_id,
            as_jsonl=how.as_jsonl,
            is_quiet=how.is_quiet or how.is_for_programs,
            max_seconds=how.max_seconds,
            is_interrupted=is_interrupted,
        )
        execution, asking = following.until_rest(), Asking.ANSWERED
        while execution.status.value == "paused" and not how.is_for_programs and can_ask():
            asking = answer_all(self._background, self._talk, execution)
            if asking is not Asking.ANSWERED:
                break
            execution = following.until_rest()
        self._tell_end(following, execution)
        if asking is Asking.INTERRUPTED:
            return ExitCode.CANCELLED
        if following.has_timed_out and execution.status.value == "cancelled":
            return ExitCode.LIMIT
        return code_after(execution.status.value)

    def _tell_end(self, following: Any, execution: "Execution") -> None:
        from stepwell.cli.following import answer_text, tell_incomplete
        from stepwell.cli.loaded import ending_lines

        if self._how.as_json:
            self._tell_document(execution)
        if self._how.is_for_programs:
            return
        trace = self._background.wait(self._talk.trace(execution.id))
        following.live.answer(answer_text(execution, trace))
        tell_incomplete(trace)
        if execution.status.value == "paused":
            self._tell_waiting(execution)
        elif execution.status.value != "completed":
            for line in ending_lines(trace):
                click.echo(line, err=True)
        if not self._how.is_quiet:
            click.echo(f"{execution.id}  {self._hints.why(execution.id)}", err=True)

    def _tell_document(self, execution: "Execution", *, is_sent: bool = True) -> None:
        from stepwell.cli.following import answer_text, is_incomplete
        from stepwell.cli.terminal import document
        from stepwell.server.views import execution_view

        trace = self._background.wait(self._talk.trace(execution.id))
        told = {
            "sent": is_sent,
            "execution": execution_view(execution),
            "answer": answer_text(execution, trace) if is_sent else None,
            "incomplete": is_sent and is_incomplete(trace),
            "stop": trace["stop"],
        }
        click.echo(document(told))

    def _tell_waiting(self, execution: "Execution", first: str = "It waits for a person:") -> None:
        from stepwell.cli.asking import told_waiting

        for line in told_waiting(execution, self._hints.chat(self._talk.session_id), first):
            click.echo(line, err=True)

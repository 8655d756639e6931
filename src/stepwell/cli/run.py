"""``stepwell run``: send one prompt to an agent in this process, and store the execution."""

import sys
from math import isfinite
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from stepwell.cli.exit_codes import ExitCode, code_after
from stepwell.cli.options import config_option, db_option, log_level_option, model_option
from stepwell.cli.streams import as_utf8

if TYPE_CHECKING:
    from stepwell.cli.application import Hints
    from stepwell.cli.conversation import BackgroundApp, Conversation
    from stepwell.sessions.records import Execution


class OutputOptions(Struct, frozen=True, kw_only=True):
    """What the command prints."""

    as_json: bool
    as_jsonl: bool
    is_quiet: bool
    max_seconds: float | None

    @property
    def is_for_programs(self) -> bool:
        """Whether the output is for programs."""
        return self.as_json or self.as_jsonl


def _finite(
    _context: click.Context, _option: click.Parameter, seconds: float | None
) -> float | None:
    """Refuse nan and inf, which click accepts as numbers."""
    if seconds is not None and not isfinite(seconds):
        raise click.BadParameter(f"{seconds} is not a finite number of seconds.")
    return seconds


class _PromptCommand(click.Command):
    """A command whose argument is free text."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. An unknown option may be meant as a prompt: explain how."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            message = f"{error.message} A prompt that starts with - goes after --."
            raise click.NoSuchOption(
                error.option_name, message, possibilities=error.possibilities, ctx=ctx
            ) from None


@click.command("run", cls=_PromptCommand)
@click.argument("prompt")
@click.option("--app", help="AgentApp, agent, or agents by name, as module:name.")
@click.option("--agent", help="Agent of the app.  [default: the first]")
@click.option("--session", help="Continue this session, given by its id or a prefix.")
@model_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
@click.option(
    "--jsonl",
    "as_jsonl",
    is_flag=True,
    help="Print events as they occur, one JSON document per line.",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(0, min_open=True),
    callback=_finite,
    help="Cancel the execution after this time; exit code 3.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print no progress on standard error.")
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
    """Send one prompt to an agent. The answer goes to standard output, progress to standard error.

    If PROMPT is -, it is read from standard input. The execution is stored; `stepwell why` explains
    it. In a terminal the command asks questions and approvals. Elsewhere the execution pauses and
    the exit code is 4; a session with a paused execution accepts no prompt (exit code 4 as well).
    Ctrl-C, SIGTERM, SIGHUP and a closed output (`| head`) cancel the execution; during a question
    they leave it paused. The exit code is then 130.

    \b
    stepwell run "What time is it?"
    stepwell run --app my_module:app "Where is order 7?" > answer.txt
    git diff | stepwell run - --model openai:gpt-5 --json
    """
    from stepwell.cli.application import Hints, load_application
    from stepwell.cli.conversation import BackgroundApp, Conversation

    if as_json and as_jsonl:
        raise click.UsageError("--json and --jsonl can't be combined.")
    text = as_utf8(sys.stdin.read() if prompt == "-" else prompt, "the prompt")
    if not text.strip():
        raise click.UsageError("the prompt is empty.")
    how = OutputOptions(as_json=as_json, as_jsonl=as_jsonl, is_quiet=quiet, max_seconds=max_seconds)
    application = load_application(app, **options)
    talk = Conversation(application, agent)
    application.agents.get(talk.agent)
    with BackgroundApp(application) as background:
        if session is not None:
            background.wait(talk.go_on_with(session, agent))
        one = _OneRun(background, talk, how, Hints(application, app, options["config"]))
        code = one.run(text)
    sys.exit(code)


class _OneRun:
    """Runs one execution, from its prompt to the exit code."""

    def __init__(
        self, background: "BackgroundApp", talk: "Conversation", how: OutputOptions, hints: "Hints"
    ) -> None:
        self._background = background
        self._talk = talk
        self._how = how
        self._hints = hints

    def run(self, text: str) -> ExitCode:
        """Send the prompt, follow the execution, ask its questions and print how it ended."""
        from stepwell.cli.execution_follower import ExecutionFollower, print_earlier_execution, send
        from stepwell.cli.questions import AskResult, answer_all, can_ask

        waiting = self._background.wait(self._talk.paused_execution())
        if waiting is not None:
            if self._how.as_json:
                self._print_document(waiting, is_sent=False)
            self._print_waiting(
                waiting, "Not sent: the session has a paused execution that waits for a person:"
            )
            return ExitCode.PAUSED
        if not self._how.is_quiet:
            print_earlier_execution(self._talk)
        execution_id, is_interrupted = send(self._background, self._talk, text)
        how = self._how
        following = ExecutionFollower(
            self._background,
            self._talk,
            execution_id,
            as_jsonl=how.as_jsonl,
            is_quiet=how.is_quiet or how.is_for_programs,
            max_seconds=how.max_seconds,
            is_interrupted=is_interrupted,
        )
        execution, asking = following.until_rest(), AskResult.ANSWERED
        while execution.status.value == "paused" and not how.is_for_programs and can_ask():
            asking = answer_all(self._background, self._talk, execution)
            if asking is not AskResult.ANSWERED:
                break
            execution = following.until_rest()
        self._print_end(following, execution)
        if asking is AskResult.INTERRUPTED:
            return ExitCode.CANCELLED
        if following.has_timed_out and execution.status.value == "cancelled":
            return ExitCode.LIMIT
        return code_after(execution.status.value)

    def _print_end(self, following: Any, execution: "Execution") -> None:
        from stepwell.cli.application import ending_lines
        from stepwell.cli.execution_follower import answer_text, print_incomplete

        if self._how.as_json:
            self._print_document(execution)
        if self._how.is_for_programs:
            return
        trace = self._background.wait(self._talk.trace(execution.id))
        following.live.answer(answer_text(execution, trace))
        print_incomplete(trace)
        if execution.status.value == "paused":
            self._print_waiting(execution)
        elif execution.status.value != "completed":
            for line in ending_lines(trace):
                click.echo(line, err=True)
        if not self._how.is_quiet:
            click.echo(f"{execution.id}  {self._hints.why(execution.id)}", err=True)

    def _print_document(self, execution: "Execution", *, is_sent: bool = True) -> None:
        from stepwell.cli.execution_follower import answer_text, is_incomplete
        from stepwell.cli.terminal import document
        from stepwell.server.views import execution_view

        trace = self._background.wait(self._talk.trace(execution.id))
        result = {
            "sent": is_sent,
            "execution": execution_view(execution),
            "answer": answer_text(execution, trace) if is_sent else None,
            "incomplete": is_sent and is_incomplete(trace),
            "stop": trace["stop"],
        }
        click.echo(document(result))

    def _print_waiting(
        self, execution: "Execution", first: str = "Paused, waiting for a person:"
    ) -> None:
        from stepwell.cli.questions import waiting_lines

        for line in waiting_lines(execution, self._hints.chat(self._talk.session_id), first):
            click.echo(line, err=True)

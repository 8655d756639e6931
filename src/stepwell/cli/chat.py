"""``stepwell chat``: chat with an agent in the terminal."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.cli.exit_codes import ExitCode, code_after
from stepwell.cli.options import config_option, db_option, log_level_option, model_option
from stepwell.cli.streams import as_utf8
from stepwell.sessions.errors import SessionError

if TYPE_CHECKING:
    from stepwell.cli.application import Hints
    from stepwell.cli.conversation import BackgroundApp, Conversation
    from stepwell.sessions.records import Execution

HELP = """\
/help      show this text
/why       explain why the last execution stopped
/tools     list the tools of the agent
/new       start a new session
/session   show the id of this session, and how to continue it later
/cancel    cancel the paused execution of this session
/quit      quit (as does Ctrl-D)
Ctrl-C cancels the running execution."""


@click.command("chat")
@click.argument("app", required=False)
@click.option("--agent", help="Agent of the app.  [default: the first]")
@click.option("--session", help="Continue this session, given by its id or a prefix.")
@model_option
@db_option
@config_option
@log_level_option("error")
def command(
    app: str | None,
    agent: str | None,
    session: str | None,
    model: str | None,
    db: str | None,
    config: Path | None,
    log_level: str | None,
) -> None:
    """Chat with an agent. It asks its questions and approvals as they come up.

    APP is an AgentApp, an agent, or agents by name, as module:name; without it, the built-in agent
    answers. /help lists the commands. Ctrl-C cancels the running answer, Ctrl-D quits. Sessions are
    stored: `stepwell sessions` lists them.

    \b
    stepwell chat --model openai:gpt-5
    stepwell chat my_module:app --session 01a1e4ea
    """
    from stepwell.cli.application import Hints, load_application
    from stepwell.cli.conversation import BackgroundApp, Conversation
    from stepwell.cli.execution_follower import print_earlier_execution

    application = load_application(app, config, log_level, model=model, db=db)
    talk = Conversation(application, agent)
    application.agents.get(talk.agent)
    with BackgroundApp(application) as background:
        chat = Chat(background, talk, Hints(application, app, config))
        if session is not None:
            background.wait(talk.go_on_with(session, agent))
            chat.show_last()
            print_earlier_execution(talk)
        chat.greet()
        code = chat.run()
    sys.exit(code)


class Chat:
    """Reads lines, runs commands and prints answers until the input ends."""

    def __init__(self, background: "BackgroundApp", talk: "Conversation", hints: "Hints") -> None:
        from stepwell.cli.terminal import out_style

        self._background = background
        self._talk = talk
        self._hints = hints
        self._style = out_style()
        self._last: Execution | None = None

    def greet(self) -> None:
        """Print the agent and its model."""
        agent = self._talk.application.agents.get(self._talk.agent)
        click.echo(
            self._style.dim(
                f"{agent.name} ({agent.config['model']}); /help lists commands, Ctrl-D quits"
            ),
            err=True,
        )

    def show_last(self) -> None:
        """Print the last messages of a continued session."""
        from stepwell.cli.session_messages import last_spoken
        from stepwell.cli.terminal import clip

        store, id = self._talk.application.services.store, self._talk.session_id or ""
        for message in self._background.wait(last_spoken(store, id, 2)):
            text = clip(message.content, 6, way="")
            click.echo(self._style.dim(f"{message.role.value}: {text}"), err=True)

    def run(self) -> ExitCode:
        """Run until Ctrl-D, /quit, SIGTERM or the end of the input. Without a terminal, return the
        exit code of the last execution."""
        from stepwell.cli.terminal import is_terminal

        with suppress(ImportError):  # enables line editing
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
        self._answer_what_waits()
        while (line := self._line()) is not None:
            try:
                if not self._obey(as_utf8(line, "not sent: that line")):
                    break
            except (SessionError, click.UsageError) as error:
                click.echo(self._style.bad(" ".join(str(error).split())), err=True)
        if self._background.is_ending:
            return ExitCode.CANCELLED
        if is_terminal(sys.stdin) or self._last is None:
            return ExitCode.COMPLETED
        return code_after(self._last.status.value)

    def _line(self) -> str | None:
        """Read a line; None at the end of the input."""
        from stepwell.cli.terminal import is_terminal

        while not self._background.is_ending:
            try:
                if not is_terminal(sys.stdin):
                    return input().strip()
                # readline does not count characters between these marks.
                prompt = "\x01\x1b[1m\x02> \x01\x1b[0m\x02" if self._style.is_colored else "> "
                return input(prompt).strip()
            except EOFError:
                click.echo("", err=True)
                return None
            except KeyboardInterrupt:
                if not self._background.is_ending:
                    click.echo("\n(Ctrl-D or /quit quits)", err=True)
        return None

    def _obey(self, line: str) -> bool:
        """Handle a line. Return whether the chat continues."""
        word, _, rest = line.partition(" ")
        match word.lower():
            case "":
                pass
            case "/quit" | "/exit":
                return False
            case "/help":
                click.echo(HELP)
            case "/why":
                self._why(rest.strip())
            case "/tools":
                self._tools()
            case "/new":
                self._talk.start_new_session()
                self._last = None
                click.echo("the next message starts a new session", err=True)
            case "/session":
                self._session()
            case "/cancel":
                self._cancel()
            case _ if word.startswith("/") and "/" not in word[1:]:
                click.echo(f"unknown command {word}; /help lists the commands", err=True)
            case _:
                self._say(line)
        return True

    def _say(self, line: str) -> None:
        from stepwell.cli.execution_follower import send

        self._answer_what_waits()
        if self._background.wait(self._talk.paused_execution()) is not None:
            click.echo("not sent: answer the open question first, or /cancel it", err=True)
            return
        self._follow(*send(self._background, self._talk, line))

    def _answer_what_waits(self) -> None:
        from stepwell.cli.questions import AskResult, answer_all

        waiting = self._background.wait(self._talk.paused_execution())
        if waiting is None:
            return
        if answer_all(self._background, self._talk, waiting) is AskResult.ANSWERED:
            self._follow(waiting.id)

    def _follow(self, execution_id: str, is_interrupted: bool = False) -> None:
        from stepwell.cli.application import ending_lines
        from stepwell.cli.execution_follower import ExecutionFollower, answer_text, print_incomplete
        from stepwell.cli.questions import AskResult, answer_all

        following = ExecutionFollower(
            self._background, self._talk, execution_id, is_interrupted=is_interrupted
        )
        self._last = following.until_rest()
        while self._last.status.value == "paused":
            following.live.end_line()
            if answer_all(self._background, self._talk, self._last) is not AskResult.ANSWERED:
                return
            self._last = following.until_rest()
        trace = self._background.wait(self._talk.trace(execution_id))
        following.live.answer(answer_text(self._last, trace))
        print_incomplete(trace)
        if self._last.status.value != "completed":
            for line in ending_lines(trace):
                click.echo(self._style.warm(line), err=True)

    def _why(self, given: str) -> None:
        from stepwell.cli.terminal import printable

        if self._last is None and not given:
            click.echo("no execution in this session yet", err=True)
            return
        execution_id = given or (self._last.id if self._last is not None else "")
        trace = self._background.wait(self._talk.trace(execution_id))
        click.echo(printable(trace["stop"]["text"]))
        click.echo(self._style.dim(self._hints.why(trace["execution"]["id"])), err=True)

    def _tools(self) -> None:
        from stepwell.cli.tools import tool_lines

        for line in tool_lines(self._talk.application.agents.get(self._talk.agent), self._style):
            click.echo(line)

    def _session(self) -> None:
        if self._talk.session_id is None:
            click.echo("the next message starts the session", err=True)
        else:
            click.echo(self._talk.session_id)
            click.echo(self._style.dim(self._hints.chat(self._talk.session_id)), err=True)

    def _cancel(self) -> None:
        waiting = self._background.wait(self._talk.paused_execution())
        if waiting is None:
            click.echo("no paused execution in this session", err=True)
            return
        self._background.wait(self._talk.cancel(waiting.id, "/cancel"))
        click.echo("cancelled", err=True)

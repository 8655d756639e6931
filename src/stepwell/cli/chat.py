"""``stepwell chat``: a conversation with an agent in the terminal."""

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
    from stepwell.cli.conversing import Conversation, InBackground
    from stepwell.cli.loaded import Hints
    from stepwell.sessions.records import Execution

HELP = """\
/help      this text
/why       why the last execution stopped
/tools     the tools of the agent
/new       begin a new conversation
/session   the id of this one, and how to go on with it later
/cancel    cancel what waits in this conversation
/quit      end (Ctrl-D does as well)
Ctrl-C cancels what is running."""


@click.command("chat")
@click.argument("app", required=False)
@click.option("--agent", help="Which agent of the app; otherwise its first.")
@click.option("--session", help="Go on with this conversation, given by (the start of) its id.")
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
    """Talk with an agent. Questions and approvals are asked as they come.

    APP names an AgentApp, an agent, or agents by name, as module:name; without it the built-in
    agent talks. /help lists what else can be typed; Ctrl-C cancels the answer under way, Ctrl-D
    ends. What was said is stored: `stepwell sessions` lists it.

    \b
    stepwell chat --model openai:gpt-5
    stepwell chat my_module:app --session 01a1e4ea
    """
    from stepwell.cli.conversing import Conversation, InBackground
    from stepwell.cli.following import tell_earlier
    from stepwell.cli.loaded import Hints, loaded_app

    application = loaded_app(app, config, log_level, model=model, db=db)
    talk = Conversation(application, agent)
    application.agents.get(talk.agent)
    with InBackground(application) as background:
        chat = Chat(background, talk, Hints(application, app, config))
        if session is not None:
            background.wait(talk.go_on_with(session, agent))
            chat.show_last()
            tell_earlier(talk)
        chat.greet()
        code = chat.run()
    sys.exit(code)


class Chat:
    """Reads lines and says what comes of them, until there are no more."""

    def __init__(self, background: "InBackground", talk: "Conversation", hints: "Hints") -> None:
        from stepwell.cli.terminal import out_style

        self._background = background
        self._talk = talk
        self._hints = hints
        self._style = out_style()
        self._last: Execution | None = None

    def greet(self) -> None:
        """Whom one talks with."""
        agent = self._talk.application.agents.get(self._talk.agent)
        click.echo(
            self._style.dim(f"{agent.name} ({agent.config['model']}); /help helps, Ctrl-D ends"),
            err=True,
        )

    def show_last(self) -> None:
        """What was said last in a conversation that goes on."""
        from stepwell.cli.said import last_said
        from stepwell.cli.terminal import clipped

        store, id = self._talk.application.services.store, self._talk.session_id or ""
        for message in self._background.wait(last_said(store, id, 2)):
            text = clipped(message.content, 6, way="")
            click.echo(self._style.dim(f"{message.role.value}: {text}"), err=True)

    def run(self) -> ExitCode:
        """Until Ctrl-D, /quit, SIGTERM, or the end of the input; the code is that of the last
        execution where nobody sits at a terminal."""
        from stepwell.cli.terminal import is_terminal

        with suppress(ImportError):  # lines can be edited where it is there
            import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
        self._answer_what_waits()
        while (line := self._line()) is not None:
            try:
                if not self._obeyed(as_utf8(line, "not sent: that line")):
                    break
            except (SessionError, click.UsageError) as error:
                click.echo(self._style.bad(" ".join(str(error).split())), err=True)
        if self._background.is_ending:
            return ExitCode.CANCELLED
        if is_terminal(sys.stdin) or self._last is None:
            return ExitCode.COMPLETED
        return code_after(self._last.status.value)

    def _line(self) -> str | None:
        """What was typed; None at the end."""
        from stepwell.cli.terminal import is_terminal

        while not self._background.is_ending:
            try:
                if not is_terminal(sys.stdin):
                    return input().strip()
                # What is between these marks takes no room on the line.
                prompt = "\x01\x1b[1m\x02> \x01\x1b[0m\x02" if self._style.is_colored else "> "
                return input(prompt).strip()
            except EOFError:
                click.echo("", err=True)
                return None
            except KeyboardInterrupt:
                if not self._background.is_ending:
                    click.echo("\n(Ctrl-D or /quit ends)", err=True)
        return None

    def _obeyed(self, line: str) -> bool:
        """Do what the line says; whether the conversation goes on."""
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
                self._talk.begin_anew()
                self._last = None
                click.echo("a new conversation begins", err=True)
            case "/session":
                self._session()
            case "/cancel":
                self._cancel()
            case _ if word.startswith("/") and "/" not in word[1:]:
                click.echo(f"there is no {word}; /help lists what there is", err=True)
            case _:
                self._say(line)
        return True

    def _say(self, line: str) -> None:
        from stepwell.cli.following import said

        self._answer_what_waits()
        if self._background.wait(self._talk.waiting()) is not None:
            click.echo("not sent: answer what waits first, or /cancel it", err=True)
            return
        self._follow(*said(self._background, self._talk, line))

    def _answer_what_waits(self) -> None:
        from stepwell.cli.asking import Asking, answer_all

        waiting = self._background.wait(self._talk.waiting())
        if waiting is None:
            return
        if answer_all(self._background, self._talk, waiting) is Asking.ANSWERED:
            self._follow(waiting.id)

    def _follow(self, execution_id: str, is_interrupted: bool = False) -> None:
        from stepwell.cli.asking import Asking, answer_all
        from stepwell.cli.following import Following, answer_text, tell_incomplete
        from stepwell.cli.loaded import ending_lines

        following = Following(
            self._background, self._talk, execution_id, is_interrupted=is_interrupted
        )
        self._last = following.until_rest()
        while self._last.status.value == "paused":
            following.live.end_line()
            if answer_all(self._background, self._talk, self._last) is not Asking.ANSWERED:
                return
            self._last = following.until_rest()
        trace = self._background.wait(self._talk.trace(execution_id))
        following.live.answer(answer_text(self._last, trace))
        tell_incomplete(trace)
        if self._last.status.value != "completed":
            for line in ending_lines(trace):
                click.echo(self._style.warm(line), err=True)

    def _why(self, given: str) -> None:
        from stepwell.cli.terminal import shown

        if self._last is None and not given:
            click.echo("nothing was run in this conversation yet", err=True)
            return
        execution_id = given or (self._last.id if self._last is not None else "")
        trace = self._background.wait(self._talk.trace(execution_id))
        click.echo(shown(trace["stop"]["text"]))
        click.echo(self._style.dim(self._hints.why(trace["execution"]["id"])), err=True)

    def _tools(self) -> None:
        from stepwell.cli.tools import tool_lines

        for line in tool_lines(self._talk.application.agents.get(self._talk.agent), self._style):
            click.echo(line)

    def _session(self) -> None:
        if self._talk.session_id is None:
            click.echo("it begins with the next message", err=True)
        else:
            click.echo(self._talk.session_id)
            click.echo(self._style.dim(self._hints.chat(self._talk.session_id)), err=True)

    def _cancel(self) -> None:
        waiting = self._background.wait(self._talk.waiting())
        if waiting is None:
            click.echo("nothing waits here", err=True)
            return
        self._background.wait(self._talk.cancel(waiting.id, "/cancel"))
        click.echo("cancelled", err=True)

"""Questions of an execution, asked in the terminal: answers, approvals, more budget."""

import sys
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec import DecodeError, json

from stepwell.cli.terminal import (
    indented,
    is_terminal,
    line_of,
    one_line,
    shown,
    shown_arguments,
    style_of,
)
from stepwell.sessions.errors import QuestionChangedError, SessionError

if TYPE_CHECKING:
    from stepwell.cli.conversing import Conversation, InBackground
    from stepwell.sessions.records import Execution

Pending = Mapping[str, Any]
_BUDGETS: dict[str, tuple[str, type[int] | type[float]]] = {
    "steps_limit": ("steps", int),
    "token_limit": ("tokens", int),
    "time_limit": ("seconds", float),
    "cost_limit": ("cost", float),
}


def can_ask() -> bool:
    """Whether somebody sits there who could answer."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def asked(prompt: str) -> str:
    """A line that a person types; raises ``EOFError`` for Ctrl-D."""
    if is_terminal(sys.stdout):
        return input(prompt)
    # With a pipe behind it, the prompt must not stand in the answer.
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return input()


class Asking(Enum):
    """What came of asking."""

    ANSWERED = auto()
    """All of it, so that the execution goes on."""
    LEFT = auto()
    """Nobody answers now, by Ctrl-D: the execution waits on."""
    INTERRUPTED = auto()
    """The same by Ctrl-C or a signal that ends the command: to wait on loses nothing."""


def answer_all(background: "InBackground", talk: "Conversation", execution: "Execution") -> Asking:
    """Ask for all that it waits for; what somebody else answered meanwhile is asked no more."""
    waiting = list[Pending](execution.questions)
    try:
        while waiting:
            try:
                is_answered = _answered(background, talk, execution.id, waiting[0])
            except QuestionChangedError as error:
                click.echo("It was answered elsewhere meanwhile; nothing was sent.", err=True)
                waiting = list(error.pending)
            else:
                waiting = waiting[1:] if is_answered else waiting
    except (EOFError, KeyboardInterrupt) as error:
        click.echo("\nleft waiting", err=True)
        return Asking.LEFT if isinstance(error, EOFError) else Asking.INTERRUPTED
    return Asking.ANSWERED


def _answered(
    background: "InBackground", talk: "Conversation", execution_id: str, pending: Pending
) -> bool:
    style = style_of(sys.stderr)
    kind = pending["kind"]
    click.echo(style.bold(prompt_of(pending)), err=True)
    if kind == "approval":
        click.echo(arguments_of(pending), err=True, nl=False)
    try:
        if kind == "budget":
            more = _granted(pending)
            work = (
                None if more is None else talk.grant(execution_id, pending["question_id"], **more)
            )
        else:
            answer = _approval(pending) if kind == "approval" else _chosen(pending)
            question_id = pending["question_id"]
            work = None if answer is None else talk.answer(execution_id, question_id, answer)
        if work is None:
            return False
        background.wait(work)
    except QuestionChangedError:
        raise
    except SessionError as error:
        click.echo(style.bad(str(error)), err=True)
        return False
    return True


def prompt_of(pending: Pending) -> str:
    """What is asked, without the ways of the HTTP API."""
    if pending["kind"] != "budget":
        return shown(pending["prompt"])
    return f"{pending['details'].get('stop_reason', 'a limit')} was reached; more is needed"


def arguments_of(pending: Pending) -> str:
    """The arguments of a call that somebody is to approve, whole: the prompt may be clipped."""
    arguments = pending["details"].get("arguments")
    if not arguments:
        return ""
    width = max(20, get_terminal_size().columns - 4)
    return indented(shown_arguments(arguments, width), "  ") + "\n"


def _chosen(pending: Pending) -> Any:
    options = cast("Sequence[Any]", pending["details"].get("options") or ())
    for number, option in enumerate(options, start=1):
        click.echo(f"  {number}  {shown(str(option))}", err=True)
    return choice_of(asked("? ").strip(), options)


def choice_of(typed: str, options: Sequence[Any]) -> Any:
    """The answer that a line means: an option by its number, else what was typed.

    >>> choice_of("2", ["red", "blue"]), choice_of("green", ["red"]), choice_of("", [])
    ('blue', 'green', None)
    """
    if not typed:
        return None
    if typed.isdigit() and 1 <= int(typed) <= len(options):
        return options[int(typed) - 1]
    return typed


def _approval(pending: Pending) -> Any:
    arguments = pending["details"].get("arguments")
    click.echo(
        "  y lets it run, n refuses (n and a reason tells the model why), e {...} other arguments",
        err=True,
    )
    try:
        answer = approval_of(asked("[y/n/e] ").strip())
    except ValueError as error:
        told = "" if arguments is None else f"; they are {line_of(arguments)}"
        click.echo(shown(f"{error}{told}"), err=True)
        return None
    if answer is None:
        click.echo("that was not understood; please answer y or n", err=True)
    return answer


def approval_of(typed: str) -> Any:
    """What a line says about a call; None if it says nothing.

    >>> approval_of("y"), approval_of("n not today")
    (True, {'approved': False, 'message': 'not today'})
    >>> approval_of('e {"path": "b.txt"}')
    {'approved': True, 'arguments': {'path': 'b.txt'}}
    """
    word, _, rest = typed.partition(" ")
    match word.lower():
        case "y" | "yes":
            return True
        case "n" | "no":
            return {"approved": False, "message": rest.strip()}
        case "e" | "edit":
            try:
                arguments = json.decode(rest)
            except DecodeError as error:
                raise ValueError(f"the arguments must be a JSON object ({error})") from None
            if not isinstance(arguments, dict):
                raise ValueError("the arguments must be a JSON object")
            return {"approved": True, "arguments": cast("dict[str, Any]", arguments)}
        case _:
            return None


def _granted(pending: Pending) -> dict[str, Any] | None:
    reason = str(pending["details"].get("stop_reason"))
    name, number = _BUDGETS.get(reason, ("steps", int))
    typed = asked(f"how many more {name}? ").strip()
    try:
        more = number(typed)
    except ValueError:
        more = 0
    if more > 0:
        return {name: more}
    click.echo("that was not understood; please give a number above 0", err=True)
    return None


def told_waiting(
    execution: "Execution", again: str, first: str = "It waits for a person:"
) -> list[str]:
    """What a paused execution waits for, and how to answer it later."""
    asked_for = [
        f"  {one_line(' '.join(filter(None, (pending['kind'], pending['call_id']))))}: "
        f"{prompt_of(pending)}"
        for pending in execution.questions
    ]
    return [first, *asked_for, f"Answer it with: {again}"]

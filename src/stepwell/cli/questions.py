"""Asks the questions of a paused execution in the terminal: answers, approvals, budgets."""

import sys
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec import DecodeError, json

from stepwell.cli.terminal import (
    indent,
    is_terminal,
    line_of,
    one_line,
    printable,
    printable_arguments,
    style_of,
)
from stepwell.sessions.errors import QuestionChangedError, SessionError

if TYPE_CHECKING:
    from stepwell.cli.conversation import BackgroundApp, Conversation
    from stepwell.sessions.records import Execution

Pending = Mapping[str, Any]
_BUDGETS: dict[str, tuple[str, type[int] | type[float]]] = {
    "steps_limit": ("steps", int),
    "token_limit": ("tokens", int),
    "time_limit": ("seconds", float),
    "cost_limit": ("cost", float),
}


def can_ask() -> bool:
    """Whether a person at a terminal can answer."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def read_answer(prompt: str) -> str:
    """Read a line that a person types. Raises ``EOFError`` for Ctrl-D."""
    if is_terminal(sys.stdout):
        return input(prompt)
    # Standard output is a pipe: the prompt must not end up in the answer.
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return input()


class AskResult(Enum):
    """How asking ended."""

    ANSWERED = auto()
    """Every question was answered; the execution continues."""
    LEFT = auto()
    """Ctrl-D: the execution stays paused."""
    INTERRUPTED = auto()
    """Ctrl-C or a signal that ends the command: the execution stays paused."""


def answer_all(
    background: "BackgroundApp", talk: "Conversation", execution: "Execution"
) -> AskResult:
    """Ask every open question. Skip those that somebody else answered in the meantime."""
    waiting = list[Pending](execution.questions)
    try:
        while waiting:
            try:
                is_answered = _ask_one(background, talk, execution.id, waiting[0])
            except QuestionChangedError as error:
                click.echo("It was answered elsewhere in the meantime; nothing was sent.", err=True)
                waiting = list(error.pending)
            else:
                waiting = waiting[1:] if is_answered else waiting
    except (EOFError, KeyboardInterrupt) as error:
        click.echo("\nleft paused", err=True)
        return AskResult.LEFT if isinstance(error, EOFError) else AskResult.INTERRUPTED
    return AskResult.ANSWERED


def _ask_one(
    background: "BackgroundApp", talk: "Conversation", execution_id: str, pending: Pending
) -> bool:
    style = style_of(sys.stderr)
    kind = pending["kind"]
    click.echo(style.bold(prompt_of(pending)), err=True)
    if kind == "approval":
        click.echo(arguments_of(pending), err=True, nl=False)
    try:
        if kind == "budget":
            more = _ask_budget(pending)
            work = (
                None if more is None else talk.grant(execution_id, pending["question_id"], **more)
            )
        else:
            answer = _ask_approval(pending) if kind == "approval" else _ask_choice(pending)
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
    """Return the question without the instructions for the HTTP API."""
    if pending["kind"] != "budget":
        return printable(pending["prompt"])
    return f"{pending['details'].get('stop_reason', 'a limit')} was reached; more budget is needed"


def arguments_of(pending: Pending) -> str:
    """Return all arguments of a call that needs approval; the prompt may be clipped."""
    arguments = pending["details"].get("arguments")
    if not arguments:
        return ""
    width = max(20, get_terminal_size().columns - 4)
    return indent(printable_arguments(arguments, width), "  ") + "\n"


def _ask_choice(pending: Pending) -> Any:
    options = cast("Sequence[Any]", pending["details"].get("options") or ())
    for number, option in enumerate(options, start=1):
        click.echo(f"  {number}  {printable(str(option))}", err=True)
    return choice_of(read_answer("? ").strip(), options)


def choice_of(typed: str, options: Sequence[Any]) -> Any:
    """Return the option with that number, or the text itself.

    >>> choice_of("2", ["red", "blue"]), choice_of("green", ["red"]), choice_of("", [])
    ('blue', 'green', None)
    """
    if not typed:
        return None
    if typed.isdigit() and 1 <= int(typed) <= len(options):
        return options[int(typed) - 1]
    return typed


def _ask_approval(pending: Pending) -> Any:
    arguments = pending["details"].get("arguments")
    click.echo(
        "  y approves, n denies (n REASON tells the model why), e {...} changes the arguments",
        err=True,
    )
    try:
        answer = approval_of(read_answer("[y/n/e] ").strip())
    except ValueError as error:
        current = "" if arguments is None else f"; they are {line_of(arguments)}"
        click.echo(printable(f"{error}{current}"), err=True)
        return None
    if answer is None:
        click.echo("please answer y, n or e", err=True)
    return answer


def approval_of(typed: str) -> Any:
    """Parse the answer to an approval; None if it is none.

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


def _ask_budget(pending: Pending) -> dict[str, Any] | None:
    reason = str(pending["details"].get("stop_reason"))
    name, number = _BUDGETS.get(reason, ("steps", int))
    typed = read_answer(f"how many more {name}? ").strip()
    try:
        more = number(typed)
    except ValueError:
        more = 0
    if more > 0:
        return {name: more}
    click.echo("please enter a number above 0", err=True)
    return None


def waiting_lines(
    execution: "Execution", again: str, first: str = "Paused, waiting for a person:"
) -> list[str]:
    """Describe what a paused execution waits for, and how to answer later."""
    asked_for = [
        f"  {one_line(' '.join(filter(None, (pending['kind'], pending['call_id']))))}: "
        f"{prompt_of(pending)}"
        for pending in execution.questions
    ]
    return [first, *asked_for, f"To answer, run: {again}"]

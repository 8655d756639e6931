"""``stepwell sessions``: list, show and change the sessions of a database."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import USER, DatabaseOptions, database_options
from stepwell.sessions.principal import DEFAULT_TENANT

if TYPE_CHECKING:
    from stepwell.sessions.ports import SessionFilter, Store
    from stepwell.sessions.records import Execution, Session, SessionMessage

_PAGE = 200
_MOST_MESSAGES = 500
_FEW_EXECUTIONS = 20


@click.group("sessions", invoke_without_command=True)
@click.option("--search", help="Words to find in titles and messages.")
@click.option(
    "--status",
    type=click.Choice(["active", "archived", "closed"]),
    help="Only sessions with this status.",
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--user", default=USER, show_default=True, help="Only sessions of this user.")
@click.option("--all-users", is_flag=True, help="Sessions of all users of the tenant.")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@database_options
@click.pass_context
def command(
    ctx: click.Context,
    db: str | None,
    config: Path | None,
    as_json: bool,
    **wanted: Any,
) -> None:
    """List sessions, newest first; show, rename, archive or close one.

    \b
    stepwell sessions --search invoice
    stepwell sessions show 01a1e4ea
    stepwell sessions rename 01a1e4ea "Invoices of May"
    stepwell chat --session 01a1e4ea          continue one
    """
    ctx.obj = where = DatabaseOptions(db, config, as_json)
    if ctx.invoked_subcommand is not None:
        return
    from stepwell.cli.database import read_database
    from stepwell.cli.terminal import document
    from stepwell.server.views import session_view

    which = _filter(wanted)
    found = read_database(
        where.database(None, None), lambda store: _list_sessions(store, which, wanted["limit"])
    )
    if as_json:
        click.echo(document([session_view(session) for session in found]))
    else:
        _print_list(found, with_user=wanted["all_users"])


def _filter(wanted: dict[str, Any]) -> "SessionFilter":
    from stepwell.sessions.ports import SessionFilter
    from stepwell.sessions.records import SessionStatus

    status = wanted["status"]
    return SessionFilter(
        tenant_id=wanted["tenant"],
        user_id=None if wanted["all_users"] else wanted["user"],
        status=None if status is None else SessionStatus(status),
        search=wanted["search"] or None,
    )


async def _list_sessions(store: "Store", which: "SessionFilter", limit: int) -> "Sequence[Session]":
    found: list[Session] = []
    before = None
    while len(found) < limit:
        at, size = before, min(_PAGE, limit - len(found))
        page = await store.read(
            lambda tx, at=at, size=size: tx.sessions(which, before=at, limit=size)
        )
        found += page
        if len(page) < size:
            break
        before = (page[-1].updated_at, page[-1].id)
    return found


def _print_list(found: "Sequence[Session]", *, with_user: bool) -> None:
    from stepwell.cli.terminal import moment, one_line, table

    if not found:
        click.echo("no sessions found; --all-users lists those of all users", err=True)
        return
    rows = [
        [
            session.id,
            session.status.value,
            one_line(session.agent_type, 60),
            *([one_line(session.user_id, 60)] if with_user else []),
            moment(session.last_message_at),
            one_line(session.title or "-", 60),
        ]
        for session in found
    ]
    click.echo(table(rows))


@command.command("show")
@click.argument("session")
@click.option(
    "--all",
    "whole",
    is_flag=True,
    help="Include steps, tools, and older messages and executions.",
)
@database_options
@click.pass_obj
def show(
    where: DatabaseOptions,
    session: str,
    whole: bool,
    db: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Show the messages of a session, newest last, and its executions.

    `stepwell why` and `stepwell trace` take the id of an execution.
    """
    from stepwell.cli.database import read_database
    from stepwell.cli.terminal import document
    from stepwell.server.views import execution_view, message_view, session_view

    as_json = as_json or where.as_json
    found, messages, executions = read_database(
        where.database(db, config),
        lambda store: _conversation(store, session, everything=whole or as_json),
    )
    if as_json:
        result = {
            "session": session_view(found),
            "messages": [message_view(message) for message in messages],
            "executions": [execution_view(execution) for execution in executions],
        }
        click.echo(document(result))
        return
    _print_conversation(found, messages, whole=whole)
    _print_executions(executions, whole=whole)


async def _conversation(
    store: "Store", given: str, *, everything: bool
) -> "tuple[Session, Sequence[SessionMessage], Sequence[Execution]]":
    from stepwell.cli.database import find_session
    from stepwell.cli.session_messages import all_messages, last_spoken

    session = await find_session(store, given)
    if everything:
        messages = await all_messages(store, session.id)
    else:
        messages = await last_spoken(store, session.id, _MOST_MESSAGES + 1)
    return session, messages, await _executions(store, session.id)


async def _executions(store: "Store", session_id: str) -> "Sequence[Execution]":
    found: list[Execution] = []
    while True:
        after = (found[-1].created_at, found[-1].id) if found else None
        page = await store.read(
            lambda tx, after=after: tx.executions(session_id=session_id, after=after, limit=_PAGE)
        )
        found += page
        if len(page) < _PAGE:
            return found


def _print_executions(executions: "Sequence[Execution]", *, whole: bool) -> None:
    from stepwell.cli.terminal import moment, one_line, out_style, table

    style = out_style()
    newest = executions if whole else executions[-_FEW_EXECUTIONS:]
    if not newest:
        return
    left = len(executions) - len(newest)
    click.echo(f"\n{style.bold('Executions')}{f'  ({left} older: --all)' if left else ''}")
    rows = [
        [
            each.id,
            each.status.value,
            each.stop_reason or "-",
            moment(each.created_at),
            one_line(f"{each.step_count} step{'' if each.step_count == 1 else 's'}"),
        ]
        for each in newest
    ]
    click.echo(table(rows))
    click.echo(style.dim(f"stepwell why {newest[-1].id}"), err=True)


def _print_conversation(
    session: "Session", messages: "Sequence[SessionMessage]", *, whole: bool
) -> None:
    from stepwell.cli.session_messages import is_spoken
    from stepwell.cli.terminal import indent, moment, out_style, printable

    style = out_style()
    title = printable(session.title or "(no title)")
    click.echo(f"{style.bold(title)}  {session.agent_type}, {session.status}  {session.id}")
    if not whole and len(messages) > _MOST_MESSAGES:
        messages = messages[-_MOST_MESSAGES:]
        click.echo(style.dim(f"(the last {_MOST_MESSAGES} messages; older ones: --all)"))
    for message in messages:
        if is_spoken(message):
            click.echo(
                f"\n{style.bold(message.role.value)}  {style.dim(moment(message.created_at))}"
            )
            click.echo(indent(printable(message.content), "  "))
        else:
            click.echo(style.dim(f"  {moment(message.created_at)}  {printable(message.content)}"))


@command.command("rename")
@click.argument("session")
@click.argument("title")
@database_options
@click.pass_obj
def rename(where: DatabaseOptions, session: str, title: str, **options: Any) -> None:
    """Change the title of a session."""
    _change(where, session, options, title=title)


@command.command("archive")
@click.argument("session")
@database_options
@click.pass_obj
def archive(where: DatabaseOptions, session: str, **options: Any) -> None:
    """Archive a session; it accepts no messages until it is active again."""
    _change(where, session, options, status="archived")


@command.command("close")
@click.argument("session")
@database_options
@click.pass_obj
def close(where: DatabaseOptions, session: str, **options: Any) -> None:
    """Close a session permanently and cancel its executions."""
    _change(where, session, options, status="closed")


def _change(where: DatabaseOptions, given: str, options: dict[str, Any], **change: Any) -> None:
    from stepwell.cli.database import change_database
    from stepwell.cli.terminal import document, one_line
    from stepwell.server.views import session_view

    database = where.database(options["db"], options["config"])
    changed = change_database(
        database,
        lambda store: _apply(store, given, change),
        bus_url=where.bus_url(options["db"], options["config"]),
    )
    if options["as_json"] or where.as_json:
        click.echo(document(session_view(changed)))
    else:
        click.echo(f"{changed.id}  {changed.status}  {one_line(changed.title or '-')}")


async def _apply(store: "Store", given: str, change: dict[str, Any]) -> "Session":
    from stepwell.cli.database import find_session
    from stepwell.clock import SystemClock
    from stepwell.sessions.endings.end import EndDeps
    from stepwell.sessions.endings.end_request import EndRequest
    from stepwell.sessions.records import SessionStatus
    from stepwell.sessions.requests.session_change import SessionChange
    from stepwell.sessions.settings import SessionSettings
    from stepwell.worker.jobs import PolledJobs

    if "status" in change:
        change = {**change, "status": SessionStatus(change["status"])}
    session = await find_session(store, given)
    deps = EndDeps(jobs=PolledJobs(), clock=SystemClock(), settings=SessionSettings())
    request = EndRequest(reason="session closed", deps=deps)
    work = SessionChange(**change).validate().work(session.id, request)
    return await store.write(work, name="change_session")

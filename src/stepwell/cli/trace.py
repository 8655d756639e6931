"""``stepwell trace``: show everything that is stored of an execution."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import configuration, database_options

if TYPE_CHECKING:
    from stepwell.sessions.ports import Store

_PAGE = 500


@click.command("trace")
@click.argument("execution", required=False)
@click.option("--full", is_flag=True, help="Do not clip long texts.")
@click.option(
    *("--events", "--jsonl", "events"),
    is_flag=True,
    help="Print the envelopes that live clients received, one JSON document per line.",
)
@database_options
def command(
    execution: str | None,
    full: bool,
    events: bool,
    db: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Show everything an execution did: steps, tool calls, times, tokens, cost.

    EXECUTION is an id or a prefix of one; the default is the newest execution. The id of a session
    (`stepwell sessions`) stands for its newest execution.

    \b
    stepwell trace                      the newest
    stepwell trace 01a1e4ea --full      nothing clipped
    stepwell trace 01a1e4ea --jsonl     the envelopes, for programs
    """
    from stepwell.cli.database import read_database
    from stepwell.cli.terminal import document, out_style
    from stepwell.cli.why import trace_of

    if events and as_json:
        raise click.UsageError("--json and --jsonl can't be combined.")
    database = configuration(config, db=db).db
    if events:
        read_database(database, lambda store: _print_events(store, execution))
        return
    trace = read_database(database, lambda store: trace_of(store, execution))
    if as_json:
        click.echo(document(trace))
        return
    for line in _lines(trace, out_style(), full=full):
        click.echo(line)


async def _print_events(store: "Store", given: str | None) -> None:
    """Print the envelopes of an execution and of its subagents, in order."""
    from stepwell.cli.database import find_execution
    from stepwell.cli.terminal import line_of
    from stepwell.sessions.occurrence import envelope_of

    execution = await find_execution(store, given)
    session_id = execution.session_id
    if session_id is None:
        raise click.ClickException(
            f"execution {execution.id} is a subagent of {execution.parent_execution_id}; "
            "trace that one for its events"
        )
    oldest, _ = await store.read(lambda tx: tx.entry_range(session_id))
    position = oldest - 1
    while True:
        at = position
        page = await store.read(lambda tx, at=at: tx.entries_after(session_id, at, limit=_PAGE))
        for event in page:
            if event.execution_id == execution.id:
                click.echo(line_of(envelope_of(event)))
        if len(page) < _PAGE:
            return
        position = page[-1].seq


def _lines(trace: Mapping[str, Any], style: Any, *, full: bool) -> Iterator[str]:
    from stepwell.cli.step_lines import heading_line, whole_step
    from stepwell.cli.terminal import moment
    from stepwell.cli.why import reason_lines, where_it_stands

    execution = trace["execution"]
    yield heading_line(trace, style)
    yield style.dim(
        f"began {moment(execution['started_at'])}, ended {moment(execution['completed_at'])} (UTC)"
        f", session {execution['session_id'] or '-'}, attempt {execution['attempt']}"
    )
    if (now := where_it_stands(trace)) is not None:
        yield style.warm(now)
    for step in trace["steps"]:
        yield ""
        yield from whole_step(step, style, full=full)
    if trace["subagents"]:
        yield ""
        yield style.bold("Subagents")
        yield from _tree(trace["subagents"], style)
    if trace["messages"]:
        yield ""
        yield style.bold("Messages")
        yield from _messages(trace["messages"], style, full=full)
    yield ""
    yield style.bold("Why")
    yield from reason_lines(trace, style)


def _tree(children: Sequence[Mapping[str, Any]], style: Any, by: str = "  ") -> Iterator[str]:
    for place, child in enumerate(children):
        is_last = place == len(children) - 1
        facts = f"{child['step_count']} steps, {child['token_usage']} tokens"
        status = style.status(child["status"])
        branch = "`-" if is_last else "|-"
        yield f"{by}{branch} {child['agent_type']}: {status}, {facts}  {style.dim(child['id'])}"
        yield from _tree(child["subagents"], style, by + ("   " if is_last else "|  "))


def _messages(messages: Sequence[Mapping[str, Any]], style: Any, *, full: bool) -> Iterator[str]:
    from stepwell.cli.terminal import indent, one_line, printable

    for message in messages:
        at, role = message["created_at"][11:23], message["role"]
        if role in ("user", "assistant"):
            name = style.bold(role.ljust(12))
            text = printable(message["content"]) if full else one_line(message["content"], 300)
            yield f"  {style.dim(at)}  {name}  {indent(text, ' ' * 30).strip()}"
        else:
            yield style.dim(f"  {at}  {role.ljust(12)}  {one_line(message['content'], 120)}")

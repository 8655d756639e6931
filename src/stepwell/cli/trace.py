"""``stepwell trace``: all that is stored of an execution."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import configuration, stored_options

if TYPE_CHECKING:
    from stepwell.sessions.ports import Store

_PAGE = 500


@click.command("trace")
@click.argument("execution", required=False)
@click.option("--full", is_flag=True, help="Long texts are not clipped.")
@click.option(
    *("--events", "--jsonl", "events"),
    is_flag=True,
    help="Its envelopes instead, one JSON document per line, as live clients got them.",
)
@stored_options
def command(
    execution: str | None,
    full: bool,
    events: bool,
    db: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """All that an execution did: steps, tools with arguments and results, times, tokens, cost.

    EXECUTION is an id, or how it begins; without it the newest is shown. That of a session
    (`stepwell sessions`) means its newest execution.

    \b
    stepwell trace                      the newest
    stepwell trace 01a1e4ea --full      nothing clipped
    stepwell trace 01a1e4ea --jsonl     the envelopes, for programs
    """
    from stepwell.cli.stored import read_stored
    from stepwell.cli.terminal import document, out_style
    from stepwell.cli.why import trace_of

    if events and as_json:
        raise click.UsageError("--json and --jsonl exclude each other; leave one out.")
    database = configuration(config, db=db).db
    if events:
        read_stored(database, lambda store: _tell_events(store, execution))
        return
    trace = read_stored(database, lambda store: trace_of(store, execution))
    if as_json:
        click.echo(document(trace))
        return
    for line in _lines(trace, out_style(), full=full):
        click.echo(line)


async def _tell_events(store: "Store", given: str | None) -> None:
    """The envelopes of an execution and of its subagents, in order."""
    from stepwell.cli.stored import find_execution
    from stepwell.cli.terminal import line_of
    from stepwell.sessions.log import envelope_of

    execution = await find_execution(store, given)
    session_id = execution.session_id
    if session_id is None:
        raise click.ClickException(
            f"execution {execution.id} belongs to {execution.parent_execution_id}; its events are "
            "told there"
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
    from stepwell.cli.step_lines import heading, whole_step
    from stepwell.cli.terminal import moment
    from stepwell.cli.why import reason_lines, where_it_stands

    execution = trace["execution"]
    yield heading(trace, style)
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
    from stepwell.cli.terminal import indented, one_line, shown

    for message in messages:
        at, role = message["created_at"][11:23], message["role"]
        if role in ("user", "assistant"):
            name = style.bold(role.ljust(12))
            text = shown(message["content"]) if full else one_line(message["content"], 300)
            yield f"  {style.dim(at)}  {name}  {indented(text, ' ' * 30).strip()}"
        else:
            yield style.dim(f"  {at}  {role.ljust(12)}  {one_line(message['content'], 120)}")

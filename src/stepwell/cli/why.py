"""``stepwell why``: explain why an execution stopped, with the decision after each step."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stepwell.cli.options import configuration, database_options

if TYPE_CHECKING:
    from stepwell.sessions.ports import Store


@click.command("why")
@click.argument("execution", required=False)
@click.option(
    "--all", "all_votes", is_flag=True, help="Show every vote of every step, with its numbers."
)
@database_options
def command(
    execution: str | None, all_votes: bool, db: str | None, config: Path | None, as_json: bool
) -> None:
    """Explain why an execution stopped.

    EXECUTION is an id or a prefix of one; the default is the newest execution. The id of a session
    (`stepwell sessions`) stands for its newest execution. The page shows the same text.

    \b
    stepwell why                 the newest
    stepwell why 01a1e4ea --all  with every vote
    """
    from stepwell.cli.database import read_database
    from stepwell.cli.terminal import document, out_style

    trace = read_database(configuration(config, db=db).db, lambda store: trace_of(store, execution))
    if as_json:
        click.echo(document(_as_data(trace)))
        return
    for line in _lines(trace, out_style(), all_votes=all_votes):
        click.echo(line)


async def trace_of(store: "Store", given: str | None) -> Mapping[str, Any]:
    """Load the trace of an execution as the API returns it."""
    from stepwell.cli.database import find_execution
    from stepwell.server.views import trace_view
    from stepwell.sessions.views.reader import Reader

    execution = await find_execution(store, given)
    return trace_view(await Reader(store).trace(execution.id))


def _as_data(trace: Mapping[str, Any]) -> dict[str, Any]:
    execution = trace["execution"]
    kept = ("number", "type", "duration_seconds", "usage", "decision")
    return {
        "execution_id": execution["id"],
        "status": execution["status"],
        "stop": trace["stop"],
        "steps": [
            {
                **{name: step[name] for name in kept},
                "tools": [
                    {"name": ran["name"], "outcome": ran["outcome"]}
                    for ran in step["tool_executions"]
                ],
            }
            for step in trace["steps"]
        ],
    }


def _lines(trace: Mapping[str, Any], style: Any, *, all_votes: bool) -> Iterator[str]:
    from stepwell.cli.step_lines import (
        decision_line,
        heading_line,
        outcome_line,
        step_line,
        vote_lines,
    )

    yield heading_line(trace, style)
    if (now := where_it_stands(trace)) is not None:
        yield style.warm(now)
    yield ""
    yield from reason_lines(trace, style)
    if trace["steps"]:
        yield ""
        yield style.bold("Steps")
    for step in trace["steps"]:
        yield step_line(step, style)
        yield f"     {decision_line(step, style)}"
        if all_votes:
            yield from (f"       {line}" for line in vote_lines(step["decision"]))
    last = trace["decision"]
    if last is not None and (not trace["steps"] or trace["steps"][-1]["decision"] != last):
        yield f"     before the next step: {outcome_line(last, style)}"
        if all_votes:
            yield from (f"       {line}" for line in vote_lines(last))


def where_it_stands(trace: Mapping[str, Any]) -> str | None:
    """Describe what an unfinished execution waits for; None if it has ended."""
    execution = trace["execution"]
    match execution["status"]:
        case "pending":
            return "Not finished: waiting for a worker (`stepwell worker` or `stepwell serve`)."
        case "running":
            number = len(trace["steps"]) + 1
            return f"Still running, in step {number}; this is its current state."
        case "paused":
            return "Not finished: waiting for a person."
        case _:
            return None


def reason_lines(trace: Mapping[str, Any], style: Any) -> Iterator[str]:
    """Yield the text that the page shows, with the command that answers in a terminal."""
    from stepwell.cli.terminal import printable

    lines = printable(trace["stop"]["text"]).splitlines()
    execution = trace["execution"]
    if execution["status"] == "paused" and execution["session_id"]:
        again = f"stepwell chat [APP] --session {execution['session_id']}"
        ways = (place for place, line in enumerate(lines) if line.startswith(_WAY_OF_THE_API))
        place = next(ways, len(lines))
        lines.insert(place, style.warm(f"  To answer in the terminal: {again}"))
    yield from lines


_WAY_OF_THE_API = "  What to change: "

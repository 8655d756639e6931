"""``stepwell snapshots``: list the stored states of an execution, or print one as JSON."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.cli.options import DatabaseOptions, database_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.sessions.ports import Store
    from stepwell.sessions.records import Snapshot


@click.group("snapshots")
@database_options
@click.pass_context
def command(ctx: click.Context, db: str | None, config: Path | None, as_json: bool) -> None:
    """List the stored states of an execution, or print one as JSON.

    \b
    stepwell snapshots list 01a1e4ea
    stepwell snapshots show 01a1e4eb | jq .body.messages
    """
    ctx.obj = DatabaseOptions(db, config, as_json)


@command.command("list")
@click.argument("execution", required=False)
@database_options
@click.pass_obj
def list_snapshots(
    where: DatabaseOptions,
    execution: str | None,
    db: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """List the snapshots of an execution, oldest first.

    EXECUTION is an id or a prefix of one; the default is the newest execution.
    """
    from stepwell.cli.database import read_database
    from stepwell.cli.terminal import document, moment, table
    from stepwell.server.views import snapshot_view

    found = read_database(where.database(db, config), lambda store: _snapshots(store, execution))
    if as_json or where.as_json:
        click.echo(document([snapshot_view(snapshot) for snapshot in found]))
        return
    rows = [
        [
            snapshot.id,
            f"step {snapshot.step_number}",
            "whole" if snapshot.is_whole else "increment",
            "final" if snapshot.is_final else "-",
            moment(snapshot.created_at),
        ]
        for snapshot in found
    ]
    click.echo(table(rows) if rows else "this execution has no snapshots")


@command.command("show")
@click.argument("snapshot")
@database_options
@click.pass_obj
def show(
    where: DatabaseOptions, snapshot: str, db: str | None, config: Path | None, as_json: bool
) -> None:
    """Print the whole state of a snapshot as JSON.

    SNAPSHOT is an id or a prefix of one.
    """
    del as_json  # it is always JSON
    from stepwell.cli.database import read_database

    click.echo(read_database(where.database(db, config), lambda store: _state(store, snapshot)))


async def _snapshots(store: "Store", given: str | None) -> "Sequence[Snapshot]":
    from stepwell.cli.database import find_execution

    execution = await find_execution(store, given)
    return await store.read(lambda tx: tx.snapshots(execution.id))


async def _state(store: "Store", given: str) -> str:
    from msgspec import json

    from stepwell.cli.database import find_snapshot_id
    from stepwell.sessions.views.reader import Reader

    id = await find_snapshot_id(store, given)
    return json.format(await Reader(store).snapshot_json(id), indent=2).decode()

"""``stepwell snapshots``: the stored states of an execution, each as whole JSON."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.cli.options import Where, stored_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepwell.sessions.ports import Store
    from stepwell.sessions.records import Snapshot


@click.group("snapshots")
@stored_options
@click.pass_context
def command(ctx: click.Context, db: str | None, config: Path | None, as_json: bool) -> None:
    """List the stored states of an execution, or show one as JSON.

    \b
    stepwell snapshots list 01a1e4ea
    stepwell snapshots show 01a1e4eb | jq .body.messages
    """
    ctx.obj = Where(db, config, as_json)


@command.command("list")
@click.argument("execution", required=False)
@stored_options
@click.pass_obj
def list_snapshots(
    where: Where, execution: str | None, db: str | None, config: Path | None, as_json: bool
) -> None:
    """List the snapshots of an execution, oldest first.

    EXECUTION is an id, or how it begins; without it the newest is meant.
    """
    from stepwell.cli.stored import read_stored
    from stepwell.cli.terminal import document, moment, table
    from stepwell.server.views import snapshot_view

    found = read_stored(where.database(db, config), lambda store: _snapshots(store, execution))
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
    click.echo(table(rows) if rows else "no snapshots are stored of this execution")


@command.command("show")
@click.argument("snapshot")
@stored_options
@click.pass_obj
def show(where: Where, snapshot: str, db: str | None, config: Path | None, as_json: bool) -> None:
    """Print the whole state of a snapshot as JSON.

    SNAPSHOT is an id, or how it begins.
    """
    del as_json  # it is always JSON
    from stepwell.cli.stored import read_stored

    click.echo(read_stored(where.database(db, config), lambda store: _state(store, snapshot)))


async def _snapshots(store: "Store", given: str | None) -> "Sequence[Snapshot]":
    from stepwell.cli.stored import find_execution

    execution = await find_execution(store, given)
    return await store.read(lambda tx: tx.snapshots(execution.id))


async def _state(store: "Store", given: str) -> str:
    from msgspec import json

    from stepwell.cli.stored import find_snapshot_id
    from stepwell.sessions.views.reader import Reader

    id = await find_snapshot_id(store, given)
    return json.format(await Reader(store).snapshot_json(id), indent=2).decode()

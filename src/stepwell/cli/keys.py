"""``stepwell keys``: the API keys of a database."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepwell.cli.options import config_option, configuration, db_option
from stepwell.clock import SystemClock
from stepwell.sessions.principal import DEFAULT_TENANT, Principal

if TYPE_CHECKING:
    from stepwell.server.auth.keys import ApiKey, KeyRing
    from stepwell.sessions.ports import Store


@click.group("keys")
@db_option
@config_option
@click.pass_context
def command(ctx: click.Context, db: str | None, config: Path | None) -> None:
    """Make, list and revoke API keys.

    Serve with STEPWELL_AUTH__MODE=keys, or mode = "keys" in the section [auth] of stepwell.toml.

    \b
    stepwell keys create --user ada        prints a key, once
    stepwell keys list
    stepwell keys revoke KEY_ID
    """
    ctx.obj = configuration(config, db=db).db


@command.command("create")
@click.option("--user", required=True, help="Whose key it is.")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@click.option("--name", default="command line", show_default=True, help="What it is for.")
@click.option("--admin", is_flag=True, help="It may see all of its tenant.")
@click.pass_obj
def create(db: str, user: str, tenant: str, name: str, admin: bool) -> None:
    """Make a key and print it. It is shown only now; the database keeps a hash of it."""
    # Whoever has the database in hand may make any key.
    who = Principal(user_id=user, tenant_id=tenant, is_admin=True)
    key, secret = asyncio.run(_created(db, who, name, is_admin=admin))
    click.echo(f"key {key.id} of {user} in tenant {tenant}; it is not shown again:", err=True)
    click.echo(secret)


@command.command("list")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@click.pass_obj
def list_keys(db: str, tenant: str) -> None:
    """List keys, without their secrets."""
    from stepwell.cli.stored import read_stored

    for key in read_stored(db, lambda store: _keys(store).listed(tenant)):
        state = "revoked" if key.revoked_at else "valid"
        role = "admin" if key.is_admin else "user"
        click.echo(f"{key.id}  {key.prefix}  {key.user_id}  {role}  {state}  {key.name}")


@command.command("revoke")
@click.argument("key_id")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@click.pass_obj
def revoke(db: str, key_id: str, tenant: str) -> None:
    """Revoke a key; live channels that were opened with it are closed."""
    from stepwell.cli.stored import change_stored

    change_stored(db, lambda store: _keys(store).revoke(key_id, tenant_id=tenant))
    click.echo(f"key {key_id} is revoked", err=True)


async def _created(db: str, who: Principal, name: str, *, is_admin: bool) -> "tuple[ApiKey, str]":
    """A key, in a database that is made if need be: keys are made before the server starts."""
    from stepwell.stores.opening import open_store

    store = await open_store(db)
    try:
        return await _keys(store).create(who, name, is_admin=is_admin)
    finally:
        await store.close()


def _keys(store: "Store") -> "KeyRing":
    from stepwell.server.auth.keys import KeyRing

    return KeyRing(store, SystemClock())

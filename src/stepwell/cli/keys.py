"""``stepwell keys``: create, list and revoke API keys."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from stepwell.cli.options import DatabaseOptions, database_options
from stepwell.clock import SystemClock
from stepwell.sessions.principal import DEFAULT_TENANT, Principal

if TYPE_CHECKING:
    from stepwell.server.auth.keys import ApiKeyRecord, KeyRing
    from stepwell.sessions.ports import Store


class _Database(Struct, frozen=True):
    """The database, and what the command line said about it."""

    db: str
    given: str | None
    config: Path | None

    @classmethod
    def of(cls, where: DatabaseOptions, db: str | None, config: Path | None) -> "_Database":
        """Combine the options of a subcommand and of the group."""
        return cls(where.database(db, config), db or where.db, config or where.config)

    def require_meant(self) -> None:
        """Raise if this would create a database that nobody named, as in a wrong folder."""
        from stepwell.app.config import is_database_named
        from stepwell.errors import ConfigurationError

        if self.new_file is None or is_database_named(self.given, file=self.config):
            return
        raise ConfigurationError(
            f"there is no database {self.new_file} in {Path.cwd()}, and no other is configured. "
            "Change to the folder where the server runs, or create it here: stepwell keys create "
            f"--db {self.db} ..."
        )

    @property
    def new_file(self) -> Path | None:
        """The file of an SQLite database that does not exist yet."""
        from stepwell.app.config import shown_database

        file = Path(shown_database(self.db))
        return None if not self.db.startswith("sqlite") or file.exists() else file


@click.group("keys")
@database_options
@click.pass_context
def command(ctx: click.Context, db: str | None, config: Path | None, as_json: bool) -> None:
    """Create, list and revoke API keys.

    To use them, serve with STEPWELL_AUTH__MODE=keys, or set mode = "keys" in [auth] of
    stepwell.toml.

    \b
    stepwell keys create --user ada        print a new key, once
    stepwell keys list
    stepwell keys revoke KEY_ID
    """
    ctx.obj = DatabaseOptions(db, config, as_json)


@command.command("create")
@click.option("--user", required=True, help="User of the key.")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@click.option("--name", default="command line", show_default=True, help="Purpose of the key.")
@click.option("--admin", is_flag=True, help="Allow access to the whole tenant.")
@click.option("--role", "roles", multiple=True, help="Role of the user; may be repeated.")
@database_options
@click.pass_obj
def create(
    where: DatabaseOptions,
    user: str,
    tenant: str,
    name: str,
    admin: bool,
    roles: tuple[str, ...],
    as_json: bool,
    **place: Any,
) -> None:
    """Create a key and print it. It is shown only once; the database stores a hash.

    A missing database is created if the command line, STEPWELL_DB or stepwell.toml names it.
    """
    from stepwell.app.config import shown_database

    database = _Database.of(where, **place)
    database.require_meant()
    _check_accepted(database)
    new_file = database.new_file
    # Whoever can write to the database may create any key.
    who = Principal(user_id=user, tenant_id=tenant, is_admin=True)
    key, secret = asyncio.run(_create(database.db, who, name, is_admin=admin, roles=roles))
    if new_file is not None:
        click.echo(f"created the database {new_file.absolute()}", err=True)
    in_it = f"in the database {shown_database(database.db)}"
    note = f"key {key.id} of {user} in tenant {tenant}, {in_it}; it is not shown again:"
    click.echo(note, err=True)
    if as_json or where.as_json:
        _print_document({**_view(key), "secret": secret})
    else:
        click.echo(secret)


@command.command("list")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@database_options
@click.pass_obj
def list_keys(where: DatabaseOptions, tenant: str, as_json: bool, **place: Any) -> None:
    """List keys, without their secrets."""
    from stepwell.cli.database import read_database

    keys = read_database(where.database(**place), lambda store: _keys(store).list_keys(tenant))
    if as_json or where.as_json:
        _print_document([_view(key) for key in keys])
        return
    for key in keys:
        state = "revoked" if key.revoked_at else "valid"
        role = "admin" if key.is_admin else "user"
        click.echo(f"{key.id}  {key.prefix}  {key.user_id}  {role}  {state}  {key.name}")


@command.command("revoke")
@click.argument("key_id")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@database_options
@click.pass_obj
def revoke(where: DatabaseOptions, key_id: str, tenant: str, as_json: bool, **place: Any) -> None:
    """Revoke a key and close the live channels opened with it."""
    from stepwell.cli.database import change_database

    revoked = change_database(
        where.database(**place),
        lambda store: _keys(store).revoke(key_id, tenant_id=tenant),
        bus_url=where.bus_url(**place),
    )
    click.echo(f"key {key_id} revoked", err=True)
    if as_json or where.as_json:
        _print_document(_view(revoked))


def _check_accepted(database: _Database) -> None:
    """Raise if the configured application accepts no key in any mode; warn if its mode is dev."""
    from msgspec.structs import replace

    from stepwell.app.app_loader import load_app
    from stepwell.app.config import AuthConfig, AuthMode, load_config
    from stepwell.errors import ConfigurationError

    config = load_config({"db": database.db}, file=database.config)
    app = None if config.app is None else load_app(config)
    is_accepted = config.auth.mode is not AuthMode.DEV if app is None else app.accepts_keys
    if is_accepted:
        return
    with_keys = replace(config, auth=AuthConfig(mode=AuthMode.KEYS))
    if app is not None and not app.use_config(with_keys).accepts_keys:
        raise ConfigurationError(
            f"{config.app} has its own authenticator, which does not accept API keys. Give "
            "AgentApp an authenticator with accepts_keys = True that verifies them, or none and "
            "set auth.mode = keys"
        )
    click.echo(
        "auth.mode is dev, so a server does not accept the key; start it with "
        "STEPWELL_AUTH__MODE=keys",
        err=True,
    )


def _view(key: "ApiKeyRecord") -> dict[str, Any]:
    from stepwell.server.views import key_view

    return dict(key_view(key))


def _print_document(value: Any) -> None:
    from stepwell.cli.terminal import document

    click.echo(document(value))


async def _create(
    db: str, who: Principal, name: str, *, is_admin: bool, roles: tuple[str, ...]
) -> "tuple[ApiKeyRecord, str]":
    """Create a key, and the database if needed: keys may be made before the server starts."""
    from stepwell.stores.database_url import open_store

    store = await open_store(db)
    try:
        return await _keys(store).create(who, name, is_admin=is_admin, roles=roles)
    finally:
        await store.close()


def _keys(store: "Store") -> "KeyRing":
    from stepwell.server.auth.keys import KeyRing

    return KeyRing(store, SystemClock())

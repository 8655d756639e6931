"""``stepwell keys``: the API keys of a database."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from stepwell.cli.options import Where, stored_options
from stepwell.clock import SystemClock
from stepwell.sessions.principal import DEFAULT_TENANT, Principal

if TYPE_CHECKING:
    from stepwell.server.auth.keys import ApiKeyRecord, KeyRing
    from stepwell.sessions.ports import Store


class _Database(Struct, frozen=True):
    """Which database, and what of it the command line said."""

    db: str
    given: str | None
    config: Path | None

    @classmethod
    def of(cls, where: Where, db: str | None, config: Path | None) -> "_Database":
        """The one that the options of a subcommand and of the group mean."""
        return cls(where.database(db, config), db or where.db, config or where.config)

    def require_meant(self) -> None:
        """Raise if a key would make a database that nobody named: that of a wrong folder."""
        from stepwell.app.config import is_database_named
        from stepwell.errors import ConfigurationError

        if self.new_file is None or is_database_named(self.given, file=self.config):
            return
        raise ConfigurationError(
            f"there is no database {self.new_file} in {Path.cwd()}, and nothing names another. Go "
            "to the folder where the server is started, or name it: stepwell keys create --db "
            f"{self.db} ... makes it here"
        )

    @property
    def new_file(self) -> Path | None:
        """The file of an SQLite database that is not there yet."""
        from stepwell.app.config import shown_database

        file = Path(shown_database(self.db))
        return None if not self.db.startswith("sqlite") or file.exists() else file


@click.group("keys")
@stored_options
@click.pass_context
def command(ctx: click.Context, db: str | None, config: Path | None, as_json: bool) -> None:
    """Make, list and revoke API keys.

    Serve with STEPWELL_AUTH__MODE=keys, or mode = "keys" in the section [auth] of stepwell.toml.

    \b
    stepwell keys create --user ada        prints a key, once
    stepwell keys list
    stepwell keys revoke KEY_ID
    """
    ctx.obj = Where(db, config, as_json)


@command.command("create")
@click.option("--user", required=True, help="Whose key it is.")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@click.option("--name", default="command line", show_default=True, help="What it is for.")
@click.option("--admin", is_flag=True, help="It may see all of its tenant.")
@stored_options
@click.pass_obj
def create(
    where: Where, user: str, tenant: str, name: str, admin: bool, as_json: bool, **place: Any
) -> None:
    """Make a key and print it. It is shown only now; the database keeps a hash of it.

    A database that is not there yet is made, if the command line, STEPWELL_DB or a stepwell.toml
    names it.
    """
    from stepwell.app.config import shown_database

    database = _Database.of(where, **place)
    database.require_meant()
    _check_accepted(database)
    new_file = database.new_file
    # Whoever has the database in hand may make any key.
    who = Principal(user_id=user, tenant_id=tenant, is_admin=True)
    key, secret = asyncio.run(_created(database.db, who, name, is_admin=admin))
    if new_file is not None:
        click.echo(f"made a new database {new_file.absolute()}", err=True)
    in_it = f"in the database {shown_database(database.db)}"
    told = f"key {key.id} of {user} in tenant {tenant}, {in_it}; it is not shown again:"
    click.echo(told, err=True)
    if as_json or where.as_json:
        _tell_document({**_view(key), "secret": secret})
    else:
        click.echo(secret)


@command.command("list")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@stored_options
@click.pass_obj
def list_keys(where: Where, tenant: str, as_json: bool, **place: Any) -> None:
    """List keys, without their secrets."""
    from stepwell.cli.stored import read_stored

    keys = read_stored(where.database(**place), lambda store: _keys(store).listed(tenant))
    if as_json or where.as_json:
        _tell_document([_view(key) for key in keys])
        return
    for key in keys:
        state = "revoked" if key.revoked_at else "valid"
        role = "admin" if key.is_admin else "user"
        click.echo(f"{key.id}  {key.prefix}  {key.user_id}  {role}  {state}  {key.name}")


@command.command("revoke")
@click.argument("key_id")
@click.option("--tenant", default=DEFAULT_TENANT, show_default=True)
@stored_options
@click.pass_obj
def revoke(where: Where, key_id: str, tenant: str, as_json: bool, **place: Any) -> None:
    """Revoke a key; live channels that were opened with it are closed."""
    from stepwell.cli.stored import change_stored

    revoked = change_stored(
        where.database(**place),
        lambda store: _keys(store).revoke(key_id, tenant_id=tenant),
        bus_url=where.bus_url(**place),
    )
    click.echo(f"key {key_id} is revoked", err=True)
    if as_json or where.as_json:
        _tell_document(_view(revoked))


def _check_accepted(database: _Database) -> None:
    """Raise if the configured application accepts no key in any mode; warn if its mode is dev."""
    from msgspec.structs import replace

    from stepwell.app.config import AuthConfig, AuthMode, load_config
    from stepwell.app.loading import load_app
    from stepwell.errors import ConfigurationError

    config = load_config({"db": database.db}, file=database.config)
    app = None if config.app is None else load_app(config)
    is_accepted = config.auth.mode is not AuthMode.DEV if app is None else app.accepts_keys
    if is_accepted:
        return
    with_keys = replace(config, auth=AuthConfig(mode=AuthMode.KEYS))
    if app is not None and not app.configured(with_keys).accepts_keys:
        raise ConfigurationError(
            f"{config.app} has an authenticator of its own that does not accept API keys, so a key "
            "would be of no use. Give AgentApp an authenticator with accepts_keys = True that "
            "verifies them, or none and auth.mode = keys"
        )
    click.echo(
        "auth.mode is dev here, and a server in this mode does not accept the key; start it with "
        "STEPWELL_AUTH__MODE=keys",
        err=True,
    )


def _view(key: "ApiKeyRecord") -> dict[str, Any]:
    from stepwell.server.views import key_view

    return dict(key_view(key))


def _tell_document(value: Any) -> None:
    from stepwell.cli.terminal import document

    click.echo(document(value))


async def _created(
    db: str, who: Principal, name: str, *, is_admin: bool
) -> "tuple[ApiKeyRecord, str]":
    """A key, in a database that is made if need be: keys are made before the server starts."""
    from stepwell.stores.database_url import open_store

    store = await open_store(db)
    try:
        return await _keys(store).create(who, name, is_admin=is_admin)
    finally:
        await store.close()


def _keys(store: "Store") -> "KeyRing":
    from stepwell.server.auth.keys import KeyRing

    return KeyRing(store, SystemClock())

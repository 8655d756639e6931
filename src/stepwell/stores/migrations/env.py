"""How Alembic runs our migrations: on the connection that it is given."""

from alembic import context

from stepwell.stores.schema_version import VERSION_TABLE
from stepwell.stores.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()

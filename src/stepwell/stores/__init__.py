"""Sessions in a database: tables, migrations, SQLite and PostgreSQL."""

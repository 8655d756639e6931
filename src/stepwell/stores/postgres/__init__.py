"""Sessions in a PostgreSQL server."""

"""What somebody else does to a database."""

import sqlite3

import psycopg


def run_sql(url: str, statement: str) -> None:
    """Run a statement on that database, past the store."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        # What damages a file does not ask whether a value is allowed.
        connection.execute("PRAGMA ignore_check_constraints = ON")
        with connection:
            connection.execute(statement)
        connection.close()
    else:
        with psycopg.connect(url) as connection:
            connection.execute(statement)

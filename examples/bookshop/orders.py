"""The bookshop's own data: users who sign in, and their orders, in a SQLite file of its own."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

USERS = {"ada": "customer", "bob": "customer", "cleo": "staff"}
"""Who can sign in, and their role. A real shop has passwords; this one believes the name."""

FIRST_ORDERS = [
    (17, "ada", "The Mezzanine", 24.0),
    (18, "bob", "Life: A User's Manual", 31.5),
    (19, "ada", "A Void", 12.0),
]


@dataclass(frozen=True)
class Order:
    """One order of one customer."""

    id: int
    owner: str
    title: str
    amount: float
    refunded_by: str | None


class Orders:
    """The orders that one person may see: their own, or all for staff."""

    def __init__(self, file: Path, user: str, role: str) -> None:
        self._file = file
        self._user = user
        self._sees_all = role == "staff"

    def all(self) -> list[Order]:
        """List the orders."""
        with closing(sqlite3.connect(self._file)) as database:
            rows = database.execute(
                "SELECT id, owner, title, amount, refunded_by FROM orders ORDER BY id"
            ).fetchall()
        orders = [Order(*row) for row in rows]
        return [it for it in orders if self._sees_all or it.owner == self._user]

    def find(self, number: int) -> Order | None:
        """Return an order, or None if there is none that this person may see."""
        return next((it for it in self.all() if it.id == number), None)

    def refund(self, number: int) -> bool:
        """Mark an order as refunded. Return whether it was not refunded before."""
        if self.find(number) is None:
            return False
        with closing(sqlite3.connect(self._file)) as database, database:
            changed = database.execute(
                "UPDATE orders SET refunded_by = ? WHERE id = ? AND refunded_by IS NULL",
                (self._user, number),
            )
            return changed.rowcount == 1


def make_database(file: Path) -> None:
    """Create the table with the first orders, unless it is there."""
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, "
            "title TEXT NOT NULL, amount REAL NOT NULL, refunded_by TEXT)"
        )
        database.executemany(
            "INSERT OR IGNORE INTO orders (id, owner, title, amount) VALUES (?, ?, ?, ?)",
            FIRST_ORDERS,
        )

"""Counts what SQLite is asked to do in this process, for all connections opened after ``install``.

Tracing costs time, so nothing is timed in a process or pass that counts.
"""

import re
import sqlite3
import threading
from collections import Counter
from typing import Any

from msgspec import Struct

_CONTROL = frozenset({"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"})
_WORD = re.compile(r"\s*([A-Za-z]+)")
_connect = sqlite3.connect
_connection_class = sqlite3.Connection


class Counts(Struct, frozen=True, kw_only=True):
    """What was asked for since the counting began."""

    statements: int
    """Without transaction control."""
    control: int
    commits: int
    """Of transactions that change something, or might."""
    transactions: int
    """Those that begin with BEGIN, and statements that are one by themselves."""

    def since(self, earlier: "Counts") -> "Counts":
        """What was added to ``earlier``."""
        return Counts(
            **{
                name: getattr(self, name) - getattr(earlier, name)
                for name in self.__struct_fields__
            }
        )


class StatementCount:
    """Counts by first word. Statements that triggers and virtual tables run themselves don't count,
    nor does ``PRAGMA data_version``, which reads no page and opens no transaction."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._words: Counter[str] = Counter()
        self._alone = 0

    def counts(self) -> Counts:
        """The counts so far."""
        with self._lock:
            control = sum(self._words[word] for word in _CONTROL)
            return Counts(
                statements=self._words.total() - control,
                control=control,
                commits=self._words["COMMIT"] + self._words["END"],
                transactions=self._words["BEGIN"] + self._alone,
            )

    def install(self) -> None:
        """Trace every connection that is opened from now on."""
        count = self

        class TracedConnection(_connection_class):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                count.trace(self)

        def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            # A factory of the caller makes a TracedConnection by itself, or is traced here.
            connection = _connect(*arguments, **options)
            count.trace(connection)
            return connection

        sqlite3.Connection = TracedConnection
        sqlite3.connect = connect

    def uninstall(self) -> None:
        """Trace no further connections."""
        sqlite3.Connection = _connection_class
        sqlite3.connect = _connect

    def trace(self, connection: sqlite3.Connection) -> None:
        """Count the statements of that connection."""
        in_transaction = False

        def note(text: str) -> None:
            nonlocal in_transaction
            if text.startswith("--") or "data_version" in text:
                return
            found = _WORD.match(text)
            word = found[1].upper() if found else ""
            with self._lock:
                self._words[word] += 1
                if word == "BEGIN":
                    in_transaction = True
                elif word in ("COMMIT", "END") or (word == "ROLLBACK" and " TO " not in text):
                    in_transaction = False
                elif word not in _CONTROL and word != "PRAGMA" and not in_transaction:
                    self._alone += 1

        connection.set_trace_callback(note)

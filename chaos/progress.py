"""What the sender knows for sure, on disk, so that the next one goes on where it died."""

import json
from pathlib import Path

from msgspec import Struct


class SentScenario(Struct, frozen=True):
    """Where a scenario went."""

    session: str
    execution: str


class Progress:
    """Scenarios that were taken in, and operations that need no second try."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "sent.jsonl"
        self.sent: dict[int, SentScenario] = {}
        self.done: set[str] = set()
        """Such as ``cancel 5``."""
        for line in self._file.read_text().splitlines() if self._file.exists() else []:
            match json.loads(line):
                case [number, session, execution]:
                    self.sent[number] = SentScenario(session, execution)
                case str(operation):
                    self.done.add(operation)
                case other:
                    raise AssertionError(f"no progress: {other}")

    def add_sent(self, number: int, session: str, execution: str) -> None:
        """The scenario was taken in."""
        if number not in self.sent:
            self.sent[number] = SentScenario(session, execution)
            self._write([number, session, execution])

    def add_done(self, operation: str) -> None:
        """The operation is over."""
        self.done.add(operation)
        self._write(operation)

    def _write(self, line: object) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")

"""Which executions a kill or a freeze interrupted, and how long each waited for its next worker.

Known from the witness, who was told of every claim, and from the times at which executions ended or
paused.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from stepwell.sessions.records import EventType, Execution, StoredEntry


class InFlight(Struct, frozen=True):
    """A process that was stopped, and the executions that it had."""

    at: float
    worker: str
    executions: tuple[str, ...]


class Takeovers:
    """``kills`` and ``freezes`` with what they interrupted; ``seconds`` until the next claim after
    each kill, in ``seconds_with_outage`` those during which the database was away as well."""

    def __init__(
        self,
        witness: Sequence[Mapping[str, Any]],
        executions: Sequence[Execution],
        events: Iterable[StoredEntry],
    ) -> None:
        self._claims: dict[str, list[tuple[float, str]]] = {}
        for line in witness:
            if line["op"] == "claim":
                claims = self._claims.setdefault(line["execution"], [])
                claims.append((line["at"], line["by"]))
        self._ended = {
            execution.id: execution.completed_at.timestamp()
            for execution in executions
            if execution.completed_at is not None
        }
        self._pauses: dict[str | None, list[float]] = {}
        for event in events:
            if event.event_type == EventType.EXECUTION_PAUSED:
                self._pauses.setdefault(event.execution_id, []).append(event.created_at.timestamp())
        dead = [line for line in witness if line["op"] in ("kill", "crash")]
        self.kills = [self._hit(line) for line in dead]
        self.freezes = [self._hit(line) for line in witness if line["op"] == "freeze"]
        self._outages = _outages(witness)
        self.seconds: list[float] = []
        self.seconds_with_outage: list[float] = []
        for kill in self.kills:
            for id in kill.executions:
                self._measure(kill.at, self._next_claim(id, kill.at))
        self.seconds.sort()

    def _measure(self, killed_at: float, claim: tuple[float, str] | None) -> None:
        if claim is None:
            return
        hit = any(begun <= claim[0] and killed_at <= over for begun, over in self._outages)
        (self.seconds_with_outage if hit else self.seconds).append(claim[0] - killed_at)

    def quantile(self, part: float) -> float:
        """The takeover time below which that part of all lies; 0 if there was none."""
        if not self.seconds:
            return 0.0
        return self.seconds[min(len(self.seconds) - 1, int(part * len(self.seconds)))]

    def _hit(self, line: Mapping[str, Any]) -> InFlight:
        worker = line.get("worker", line["by"])
        had = [
            id for id, claims in self._claims.items() if self._had(worker, id, claims, line["at"])
        ]
        return InFlight(line["at"], worker, tuple(sorted(had)))

    def _had(
        self, worker: str, execution: str, claims: Sequence[tuple[float, str]], at: float
    ) -> bool:
        before = [claim for claim in claims if claim[0] <= at]
        if not before or before[-1][1] != worker or self._ended.get(execution, at) < at:
            return False
        since = before[-1][0]
        return not any(since <= paused <= at for paused in self._pauses.get(execution, ()))

    def _next_claim(self, execution: str, at: float) -> tuple[float, str] | None:
        return next((claim for claim in self._claims[execution] if claim[0] > at), None)


def _outages(witness: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """When the database was away, or a stopped process may have kept all others from writing."""
    found: list[tuple[float, float]] = []
    for begin, end in (("restart", "restarted"), ("hold", "released")):
        begun = [line["at"] for line in witness if line["op"] == begin]
        over = [line["at"] for line in witness if line["op"] == end]
        found.extend(zip(begun, over, strict=False))
    return found

"""What tools really did: external calls begun again, idempotent effects had twice, guarded ones
without an approval."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_EXTERNAL = ("external", "guarded")


class Effects:
    """The faults of tool calls by the witness, a sentence for each."""

    def __init__(self, witness: Sequence[Mapping[str, Any]]) -> None:
        begun: Counter[tuple[str, str]] = Counter()
        done: Counter[tuple[str, str]] = Counter()
        applied: dict[tuple[str, str], list[str]] = {}
        self.idempotent_repeats = 0
        for line in witness:
            if line["op"] not in ("begin", "effect"):
                continue
            call = (line["execution"], line["call"])
            if line["effect"] in _EXTERNAL:
                (begun if line["op"] == "begin" else done)[call] += 1
            elif line["effect"] == "idempotent" and line["op"] == "effect":
                if line["applied"]:
                    applied.setdefault(call, []).append(line["key"])
                else:
                    self.idempotent_repeats += 1
        self.silent_repeats = [
            f"external call {call} of execution {execution} began {begun[execution, call]} times "
            f"and took effect {done[execution, call]} times"
            for execution, call in sorted(begun | done)
            if begun[execution, call] > 1 or done[execution, call] > 1
        ]
        self.duplicate_effects = [
            f"idempotent call {call} of execution {execution} took effect under {keys}"
            for (execution, call), keys in sorted(applied.items())
            if len(keys) > 1
        ]
        self.unapproved = _unapproved(witness)
        self.approvals = sum(1 for line in witness if line["op"] == "approve")


def _unapproved(witness: Sequence[Mapping[str, Any]]) -> list[str]:
    """Guarded calls that began without an approval of this very call of this execution."""
    approved: set[tuple[str, str]] = set()
    faults: list[str] = []
    for line in sorted(witness, key=lambda line: line["at"]):
        if line["op"] == "approve" and line["approved"]:
            approved.add((line["execution"], line["call"]))
        elif line["op"] == "begin" and line["effect"] == "guarded":
            call = (line["execution"], line["call"])
            if call not in approved:
                faults.append(f"guarded call {call[1]} of execution {call[0]} ran unapproved")
    return faults

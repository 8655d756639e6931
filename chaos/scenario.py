"""What one execution of the chaos run does, as a function of its number and the seed.

Five turns: four with tool calls and a final answer whose digest covers every tool result. Both
sides use this: the scripted model to play it, the checker to recompute what must have come of it.
"""

import hashlib
import random
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from stepwell import Message, ToolCall

UNKNOWN = "unknown"
"""What the digest holds for an external call whose outcome is unknown."""
DENIED = "denied"
"""What it holds for a guarded call that a person denied."""
DROPPED = "dropped"
"""What it holds for a guarded call that was approved in the execution that a fork comes from."""
STEPS = 5
_TEXT = re.compile(r"chaos scenario (\d+) seed (\d+)\b")
_NOTE = re.compile(r"chaos note (\d+\.\d+)\b")
_UNKNOWN = re.compile(
    r"Error: (external|guarded) began at .* may or may not have taken effect", re.DOTALL
)
_DROPPED = re.compile(r"(Error: )?Not run in this fork")
_DENIED = re.compile(r"Error: Blocked: a person denied this call")
_ANSWER = re.compile(r"^scenario (\d+) done, digest ([0-9a-f]{16}), unknown: (\S+), notes: (\S+)$")
_NOTED = re.compile(r"^noted (\S+)$")


class PlannedCall(Struct, frozen=True):
    """A tool call that the scripted model makes. The name of the tool is its effect, or ``ask``, or
    ``guarded`` for an external one that a person has to approve."""

    id: str
    tool: str

    @property
    def pure_result(self) -> str:
        """What the pure tool makes of it."""
        return f"value {_digest(self.id)}"

    @property
    def answer(self) -> str:
        """What the person says whom ``ask`` asked."""
        return f"answer {_digest(self.id)}"

    @property
    def is_denied(self) -> bool:
        """Whether the person denies it, if it is a guarded one."""
        return int(_digest(self.id), 16) % 4 == 0

    @property
    def is_external(self) -> bool:
        """Whether it must not be run again when its outcome is unknown."""
        return self.tool in ("external", "guarded")


class Scenario(Struct, frozen=True):
    """The four turns with calls; the fifth is the answer."""

    number: int
    seed: int
    turns: tuple[tuple[PlannedCall, ...], ...]

    @property
    def calls(self) -> tuple[PlannedCall, ...]:
        """All of them, in order."""
        return tuple(call for turn in self.turns for call in turn)

    @property
    def guarded(self) -> int:
        """How many calls a person has to approve; each may take a step of its own."""
        return sum(1 for call in self.calls if call.tool == "guarded")

    @property
    def text(self) -> str:
        """What the user says to begin it."""
        return f"chaos scenario {self.number} seed {self.seed}: do what the script says"

    def answer(self, results: Mapping[str, str], notes: Sequence[str] = ()) -> str:
        """The final answer after these results, by call id; ``UNKNOWN`` for an unknown one. The
        notes are those that were seen on the way."""
        digest = _digest("\n".join(f"{call.id}={results.get(call.id)}" for call in self.calls))
        unknown = [call.id for call in self.calls if results.get(call.id) == UNKNOWN]
        return (
            f"scenario {self.number} done, digest {digest}, unknown: {_listed(unknown)}, "
            f"notes: {_listed(notes)}"
        )


def scenario(number: int, seed: int) -> Scenario:
    """The scenario of that number: its turns in an order of its own."""
    dice = random.Random(seed * 1_000_003 + number)
    first = "ask" if dice.random() < 0.5 else "pure"
    last = "guarded" if dice.random() < 0.4 else "external"
    turns = [[first], ["idempotent"], ["external", "pure"], ["idempotent", last]]
    dice.shuffle(turns)
    return Scenario(
        number,
        seed,
        tuple(
            tuple(PlannedCall(f"c{number}-{step}-{i}", name) for i, name in enumerate(names))
            for step, names in enumerate(turns, start=1)
        ),
    )


def scenario_in(text: str) -> Scenario | None:
    """The scenario that a user's message asks for."""
    found = _TEXT.search(text)
    return None if found is None else scenario(int(found[1]), int(found[2]))


def unknown_in(answer: str) -> frozenset[str] | None:
    """The calls that an answer says it knows nothing of; None if it is no answer of a scenario."""
    found = _ANSWER.match(answer)
    return None if found is None else frozenset(_names(found[3]))


def note_text(note: str) -> str:
    """What the user says to a running scenario."""
    return f"chaos note {note}: take this into account"


def note_in(text: str) -> str | None:
    """The note that a user's message is."""
    found = _NOTE.search(text)
    return None if found is None else found[1]


def note_answer(notes: Sequence[str]) -> str:
    """The answer to notes that came when no scenario ran."""
    return f"noted {_listed(notes)}"


def notes_in(answer: str) -> tuple[str, ...]:
    """The notes that an answer says it has seen."""
    found = _ANSWER.match(answer)
    if found is not None:
        return _names(found[4])
    found = _NOTED.match(answer)
    return () if found is None else _names(found[1])


def results_in(messages: Sequence[Message]) -> dict[str, str]:
    """What the tools said, by call id, as the digest wants it."""
    found: dict[str, str] = {}
    for message in messages:
        if (result := message.tool_result) is not None:
            found[result.call_id] = result.content
            if _UNKNOWN.match(result.content):
                found[result.call_id] = UNKNOWN
            elif _DENIED.match(result.content):
                found[result.call_id] = DENIED
            elif _DROPPED.match(result.content):
                found[result.call_id] = DROPPED
    return found


def order_fault(messages: Sequence[Message]) -> str | None:
    """Why a provider would refuse this history; None if it would not."""
    open_calls: dict[str, ToolCall] = {}
    for index, message in enumerate(messages):
        if (result := message.tool_result) is not None:
            if open_calls.pop(result.call_id, None) is None:
                return f"message {index} is a result of {result.call_id!r}, which is not open"
        elif open_calls:
            return f"message {index} comes before the results of {sorted(open_calls)}"
        open_calls.update({call.id: call for call in message.tool_calls})
    return f"no results of {sorted(open_calls)}" if open_calls else None


def _listed(names: Sequence[str]) -> str:
    return ",".join(names) or "none"


def _names(listed: str) -> tuple[str, ...]:
    return () if listed == "none" else tuple(listed.split(","))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]

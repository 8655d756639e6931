"""What is done to the execution of a scenario beside sending it, as a function of number and seed.

Every eighth scenario has a session of its own that is steered: notes are sent to it while it runs.
Of the others some are cancelled at some step, and some are forked at one.
"""

import random

from msgspec import Struct

STEERED_EVERY = 8
NOTES = 2
_CANCELLED = 0.15
_FORKED = 0.30
"""Of the executions that are not steered: below the first number they are cancelled, below the
second they are forked."""


class Operations(Struct, frozen=True, kw_only=True):
    """What is done to one execution, as soon as it has done so many steps."""

    cancel_at: int | None = None
    fork_at: int | None = None
    notes: tuple[str, ...] = ()
    """Each is sent in its turn; see ``scenario.note_text``."""

    @property
    def is_steered(self) -> bool:
        """Whether its session takes messages into a running execution."""
        return bool(self.notes)


def operations(number: int, seed: int) -> Operations:
    """The operations on the scenario of that number."""
    if number % STEERED_EVERY == STEERED_EVERY - 1:
        return Operations(notes=tuple(f"{number}.{note}" for note in range(NOTES)))
    dice = random.Random(seed * 7_368_787 + number)
    chance = dice.random()
    if chance < _CANCELLED:
        return Operations(cancel_at=dice.randint(0, 4))
    if chance < _FORKED:
        return Operations(fork_at=dice.randint(1, 4))
    return Operations()

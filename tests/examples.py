"""How many examples a property test tries: some in every run, all in `./dev test --all`."""

from hypothesis import settings

LONG = "long"
"""The hypothesis profile of `./dev test --all`."""


def is_long() -> bool:
    """Whether this run has the time for rare cases; known when a test module is imported."""
    return settings.get_current_profile_name() == LONG


def examples(all_of_them: int) -> int:
    """A quarter of them, or all in a long run."""
    return all_of_them if is_long() else max(10, all_of_them // 4)


def every(step: int) -> int:
    """The step of a range whose every value is tried in a long run."""
    return 1 if is_long() else step

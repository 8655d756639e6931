"""The metadata keys that capabilities keep their own facts under. Tools of the model can't write
them, and a subagent is given those that bind it as well.
"""

TASKS = "tasks"
ACTIVE_SKILL = "active_skill"
SUMMARY = "summary"
CRITIQUE = "critique"

RESERVED = frozenset({TASKS, ACTIVE_SKILL, SUMMARY, CRITIQUE})
RESERVED_PREFIX = "stepwell."

BINDS_SUBAGENTS = frozenset({ACTIVE_SKILL})
"""A subagent begins with these keys of its parent."""


def is_reserved(key: str) -> bool:
    """Whether no tool of the model may write this key."""
    return key in RESERVED or key.startswith(RESERVED_PREFIX)

"""From where on the log of a session tells of an execution, and up to where its stored messages
tell all that the log does: so that who opens a session knows which events to follow."""

from collections.abc import Sequence

from stepwell.sessions.records import Execution, Session

FIRST_SEQ = "first_seq"
"""The key in an execution's metadata for the number from which the log may tell of it."""


def first_seq_in(session: Session) -> dict[str, int]:
    """What the metadata of an execution says that begins now in a locked session."""
    return {FIRST_SEQ: session.last_seq + 1}


def settled_seq(session: Session, unfinished: Sequence[Execution]) -> int:
    """Up to where the stored messages of a session tell all that its log does, but for these
    executions, which are those that are not over. Rows of an older version say nothing, so for
    them it is the beginning."""
    begun = [execution.metadata.get(FIRST_SEQ, 1) - 1 for execution in unfinished]
    return min([session.last_seq, *begun])

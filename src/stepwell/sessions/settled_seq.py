"""Numbers of a session's log: where an execution begins in it, and up to where messages cover
it, so that a client knows from which event to follow."""

from collections.abc import Sequence

from stepwell.sessions.records import Execution, Session

FIRST_SEQ = "first_seq"
"""The metadata key for the first event number that may belong to an execution."""


def first_seq_in(session: Session) -> dict[str, int]:
    """Return the metadata of an execution that begins now. The session must be locked."""
    return {FIRST_SEQ: session.last_seq + 1}


def settled_seq(session: Session, unfinished: Sequence[Execution]) -> int:
    """Return the number up to which stored messages cover the log.

    ``unfinished`` are the executions that have not ended; those of an older version have no number,
    so they count from the start.
    """
    begun = [execution.metadata.get(FIRST_SEQ, 1) - 1 for execution in unfinished]
    return min([session.last_seq, *begun])

"""Adds the ids of the current execution to log records."""

import logging

from stepwell.ids import run_ids

FIELDS = ("session_id", "execution_id", "attempt", "step")


class RunIdsFilter(logging.Filter):
    """Sets ``session_id``, ``execution_id``, ``attempt`` and ``step`` of each record: those of the
    execution that the task or thread works for, or None.

    >>> handler = logging.StreamHandler()
    >>> handler.addFilter(RunIdsFilter())
    >>> handler.setFormatter(logging.Formatter("%(execution_id)s %(message)s"))
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Pass every record; fields that it already has are kept."""
        ids = run_ids()
        for field in FIELDS:
            if not hasattr(record, field):
                setattr(record, field, getattr(ids, field, None))
        return True

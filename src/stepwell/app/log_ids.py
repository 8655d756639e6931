"""The ids of the execution that a log record is about, for logs of servers and workers."""

import logging

from stepwell.ids import run_ids

FIELDS = ("session_id", "execution_id", "attempt", "step")


class RunIdsFilter(logging.Filter):
    """Gives each record of a handler the fields ``session_id``, ``execution_id``, ``attempt`` and
    ``step``: of the execution that the task or thread works for, and None where there is none.

    >>> handler = logging.StreamHandler()
    >>> handler.addFilter(RunIdsFilter())
    >>> handler.setFormatter(logging.Formatter("%(execution_id)s %(message)s"))
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record passes; one that has such a field already keeps it."""
        ids = run_ids()
        for field in FIELDS:
            if not hasattr(record, field):
                setattr(record, field, getattr(ids, field, None))
        return True

"""How log records become lines: what clients send can't forge a line, nor fill the disk."""

import logging
import re

_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_FLOODING = (
    "socket.accept() out of system resource",
    "Exceeded concurrency limit",
    "Invalid HTTP request received",
    "Unsupported upgrade request",
    "more than %d connections are open",
)
"""How messages begin that anybody who connects can cause, of asyncio, uvicorn and us."""
EVERY_SECONDS = 10.0


class OneLineFormatter(logging.Formatter):
    """One line for a message, whatever is in it; tracebacks stand indented below."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line, with line breaks and control characters written out."""
        line = super().formatMessage(record)
        return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), line)

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        """The traceback, which may hold what a client sent."""
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]
        return "\n".join(f"    {line}" for line in lines)


class FewOfAKind(logging.Filter):
    """Lets what clients can make the log say pass once in a while, and tells how many records were
    left out."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is told."""
        said = str(record.msg)
        kind = next((one for one in _FLOODING if said.startswith(one)), None)
        if kind is None:
            return True
        at, left_out = self._told.get(kind, (float("-inf"), 0))
        if record.created - at < EVERY_SECONDS:
            self._told[kind] = (at, left_out + 1)
            return False
        self._told[kind] = (record.created, 0)
        if left_out:
            record.msg = f"{said} ({left_out} more like this were left out)"
        return True

"""How log records become lines: what clients send can't forge a line, nor fill the disk. Each line
says which execution it is about.
"""

import json
import logging
import re
from copy import copy
from datetime import UTC, datetime

from stepwell.app.log_ids import FIELDS, RunIdsFilter

_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_FLOODING = (
    "socket.accept() out of system resource",
    "Exceeded concurrency limit",
    "Invalid HTTP request received",
    "Unsupported upgrade request",
    "more than %d connections are open",
)
"""How messages begin that anybody who connects can cause, of asyncio, uvicorn and us."""
EVERY_SECONDS = 10.0


def log_handler(format: str) -> logging.Handler:
    """Writes to standard error, as ``text`` or as ``json``."""
    handler = logging.StreamHandler()
    text = OneLineFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if format == "json" else text)
    handler.addFilter(FewOfAKind())
    handler.addFilter(RunIdsFilter())
    return handler


class OneLineFormatter(logging.Formatter):
    """One line for a message, whatever is in it; tracebacks stand indented below."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback as it is written here: what another handler made of it, and
        left in the record, may hold anything."""
        own = copy(record)
        own.exc_text = _below(own.exc_text) if own.exc_text and not own.exc_info else None
        return super().format(own)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line, with line breaks and control characters written out, and short ids."""
        line = super().formatMessage(record) + _short_ids(record)
        return _written_out(line)

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        """The traceback, which may hold what a client, a model or a tool said."""
        return _below(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Where it was logged."""
        return _below(stack_info)


def _written_out(line: str) -> str:
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), line)


def _below(text: str) -> str:
    return "\n".join(f"    {_written_out(line)}" for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object per record: time, level, logger, message, the ids, and the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        ids = {field: getattr(record, field, None) for field in FIELDS}
        told |= {field: id for field, id in ids.items() if id is not None}
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            told["stack"] = self.formatStack(record.stack_info)
        # JSON lets this one control character stand.
        return json.dumps(told, default=str).replace("\x7f", r"\u007f")


def _short_ids(record: logging.LogRecord) -> str:
    """The ends of the ids, which tell them apart, for people who look for them in the whole."""
    execution: str | None = getattr(record, "execution_id", None)
    if execution is None:
        return ""
    session: str | None = getattr(record, "session_id", None)
    step, attempt = getattr(record, "step", None), getattr(record, "attempt", None)
    told = [
        None if session is None else f"session ..{session[-8:]}",
        f"execution ..{execution[-8:]}",
        None if step is None else f"step {step}",
        None if attempt in (None, 1) else f"attempt {attempt}",
    ]
    return f" [{', '.join(part for part in told if part)}]"


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

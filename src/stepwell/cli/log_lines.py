"""Formats log records. Clients can neither forge a line nor flood the log. Each line names the
execution it is about.
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
"""Prefixes of messages of asyncio, uvicorn and Stepwell that any client can cause."""
EVERY_SECONDS = 10.0


def log_handler(format: str) -> logging.Handler:
    """Return a handler that writes to standard error as ``text`` or ``json``."""
    handler = logging.StreamHandler()
    text = OneLineFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if format == "json" else text)
    handler.addFilter(FloodFilter())
    handler.addFilter(RunIdsFilter())
    return handler


class OneLineFormatter(logging.Formatter):
    """Writes a message as one line, with tracebacks indented below."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record with its own traceback text; one that another handler cached in the
        record may contain anything."""
        own = copy(record)
        own.exc_text = _below(own.exc_text) if own.exc_text and not own.exc_info else None
        return super().format(own)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Escape line breaks and control characters, and append short ids."""
        line = super().formatMessage(record) + _short_ids(record)
        return _escape_controls(line)

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        """Indent the traceback, which may contain text of a client, a model or a tool."""
        return _below(super().formatException(ei))  # type: ignore[arg-type]

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - logging's name
        """Indent the stack."""
        return _below(stack_info)


def _escape_controls(line: str) -> str:
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), line)


def _below(text: str) -> str:
    return "\n".join(f"    {_escape_controls(line)}" for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """Writes one JSON object per record: time, level, logger, message, ids and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Format the record."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        ids = {field: getattr(record, field, None) for field in FIELDS}
        fields |= {field: id for field, id in ids.items() if id is not None}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        # JSON does not escape this control character.
        return json.dumps(fields, default=str).replace("\x7f", r"\u007f")


def _short_ids(record: logging.LogRecord) -> str:
    """Return the distinguishing ends of the ids, to search for."""
    execution: str | None = getattr(record, "execution_id", None)
    if execution is None:
        return ""
    session: str | None = getattr(record, "session_id", None)
    step, attempt = getattr(record, "step", None), getattr(record, "attempt", None)
    fields = [
        None if session is None else f"session ..{session[-8:]}",
        f"execution ..{execution[-8:]}",
        None if step is None else f"step {step}",
        None if attempt in (None, 1) else f"attempt {attempt}",
    ]
    return f" [{', '.join(part for part in fields if part)}]"


class FloodFilter(logging.Filter):
    """Limits how often messages that clients can cause are logged, and counts the dropped ones."""

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        said = str(record.msg)
        kind = next((one for one in _FLOODING if said.startswith(one)), None)
        if kind is None:
            return True
        at, left_out = self._logged.get(kind, (float("-inf"), 0))
        if record.created - at < EVERY_SECONDS:
            self._logged[kind] = (at, left_out + 1)
            return False
        self._logged[kind] = (record.created, 0)
        if left_out:
            record.msg = f"{said} ({left_out} similar messages dropped)"
        return True

"""What clients send can't forge a line of the log, nor flood it."""

import json
import logging
import sys
from typing import Any

from stepwell.cli.log_lines import EVERY_SECONDS, FloodFilter, JsonFormatter, OneLineFormatter


def record(message: str, *values: Any, at: float = 0.0, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("asyncio", logging.ERROR, "f.py", 1, message, values, None, **more)
    made.created = at
    return made


def test_a_line_break_in_a_message_is_written_out() -> None:
    formatter = OneLineFormatter("%(levelname)s %(message)s")
    line = formatter.format(record("user %s", "eve\r\nERROR forged\x1b[2J\u2028\x85\tü"))
    assert line == r"ERROR user eve\r\nERROR forged\x1b[2J\u2028\x85" + "\tü"


def test_a_traceback_stands_below_indented() -> None:
    try:
        raise ValueError("bad\nERROR forged")
    except ValueError:
        made = record("it broke")
        made.exc_info = sys.exc_info()
    first, *rest = OneLineFormatter("%(levelname)s %(message)s").format(made).splitlines()
    assert first == "ERROR it broke"
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in rest)


def test_nothing_below_a_line_steers_the_terminal() -> None:
    said = "a\x1b]0;PWN\x07\x9b2J\r\x85\u2028\u202e\x7fb\nERROR forged"
    try:
        raise ValueError(said)
    except ValueError:
        made = record("it broke")
        made.exc_info = sys.exc_info()
    made.stack_info = f"Stack:\n{said}"
    plain = logging.Formatter().format(made)  # Another handler, which leaves its text behind.
    assert "\x1b" in plain
    again = record("it broke")
    again.exc_text = said
    told = OneLineFormatter("%(levelname)s %(message)s")
    for one, times in ((made, 2), (again, 1)):
        _, *rest = told.format(one).split("\n")
        assert all(line.startswith("    ") and line.isprintable() for line in rest)
        assert "\n".join(rest).count(r"a\x1b]0;PWN\x07\x9b2J\r\x85\u2028\u202e\x7fb") == times
    as_json = JsonFormatter().format(made)
    assert as_json.isprintable()
    assert "forged" in json.loads(as_json)["exception"]


def test_what_anybody_can_cause_is_told_once_in_a_while() -> None:
    few = FloodFilter()
    text = "socket.accept() out of system resource\nsocket: %s"
    told = [few.filter(record(text, at=seconds)) for seconds in (0.0, 0.1, 0.2, 9.0)]
    assert told == [True, False, False, False]
    later = record(text, at=EVERY_SECONDS)
    assert few.filter(later)
    assert "(3 " in later.msg
    assert few.filter(record("Exceeded concurrency limit.", at=0.1))


def test_everything_else_is_told_each_time() -> None:
    few = FloodFilter()
    assert all(few.filter(record("error %s at %s %r", at=0.0)) for _ in range(3))

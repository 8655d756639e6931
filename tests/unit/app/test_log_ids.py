"""Log records say which execution they are about, as text and as JSON."""

import asyncio
import json
import logging
import sys
from typing import Any

import pytest

from stepwell.app import Config, LogFormat, RunIdsFilter, load_config
from stepwell.cli.log_lines import JsonFormatter, log_handler
from stepwell.errors import ConfigurationError
from stepwell.ids import RunIds, run_ids, running_as

IDS = RunIds("01a1e4f4-8469-76fd-97fe-5479a4bd5d76", "01a1e4f4-8468-70e9-8886-64651afbd57c", 2)
IDS.step = 3


def record(message: str = "it broke", **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("stepwell.worker", logging.ERROR, "f.py", 1, message, (), None, **more)
    made.created = 0.0
    RunIdsFilter().filter(made)
    return made


def test_json_is_one_object_with_time_level_logger_message_and_ids() -> None:
    with running_as(IDS):
        line = JsonFormatter().format(record())
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000+00:00",
        "level": "error",
        "logger": "stepwell.worker",
        "message": "it broke",
        "session_id": IDS.session_id,
        "execution_id": IDS.execution_id,
        "attempt": 2,
        "step": 3,
    }


def test_json_of_a_record_without_an_execution_has_no_ids() -> None:
    assert set(json.loads(JsonFormatter().format(record()))) == {
        *("time", "level", "logger", "message")
    }


def test_json_stays_on_one_line_whatever_is_in_it() -> None:
    try:
        raise ValueError("bad\nforged")
    except ValueError:
        made = record("eve\r\n{}\u2028\ud800")
        made.exc_info = sys.exc_info()
    line = JsonFormatter().format(made)
    assert len(line.splitlines()) == 1
    assert json.loads(line)["message"] == "eve\r\n{}\u2028\ud800"
    assert "ValueError: bad\nforged" in json.loads(line)["exception"]


def test_text_ends_with_short_ids() -> None:
    handler = log_handler("text")
    with running_as(IDS):
        line = handler.format(record())
    ids = "session ..1afbd57c, execution ..a4bd5d76, step 3, attempt 2"
    assert line.endswith(f"ERROR   stepwell.worker: it broke [{ids}]")
    assert handler.format(record()).endswith("stepwell.worker: it broke")


def test_a_record_that_names_its_execution_keeps_the_name() -> None:
    made = logging.makeLogRecord({"msg": "x", "execution_id": "mine"})
    with running_as(IDS):
        RunIdsFilter().filter(made)
    assert getattr(made, "execution_id") == "mine"  # noqa: B009 - an extra field
    assert getattr(made, "step") == 3  # noqa: B009


async def test_tasks_and_threads_know_what_they_work_for() -> None:
    async def child() -> RunIds | None:
        return await asyncio.to_thread(run_ids)

    with running_as(IDS):
        task = asyncio.create_task(child())
    assert run_ids() is None
    assert await task is IDS


def test_the_format_is_a_setting() -> None:
    assert Config().log_format is LogFormat.TEXT
    assert load_config({"log_format": "json"}, environment={}).log_format is LogFormat.JSON
    with pytest.raises(ConfigurationError, match="must be text or json"):
        load_config({"log_format": "xml"}, environment={})


def test_telemetry_is_a_setting_and_off() -> None:
    assert not Config().telemetry.enabled
    environment = {"STEPWELL_TELEMETRY__ENABLED": "true", "STEPWELL_TELEMETRY__CONTENT": "1"}
    telemetry = load_config(environment=environment).telemetry
    assert (telemetry.enabled, telemetry.content) == (True, True)

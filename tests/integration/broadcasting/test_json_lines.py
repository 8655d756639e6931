"""Envelopes in a file, one JSON line each, whatever happened to the file before."""

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.json_lines import JsonLinesBroadcaster, read_json_lines
from stepwell.errors import ConfigurationError
from stepwell.testing import ScriptedModel


def envelope(seq: int, content: str = "text") -> dict[str, object]:
    return {"seq": seq, "type": "agent.stream.chunk", "payload": {"content": content}}


def seqs(path: Path) -> list[int]:
    return [line.envelope["seq"] for line in read_json_lines(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_each_envelope_is_one_compact_line_with_its_channel(path: Path) -> None:
    lines = JsonLinesBroadcaster(path)
    lines.broadcast("agent.s", envelope(1, "two\nlines, caf\u00e9"))
    lines.broadcast("agent.t", envelope(2))

    # Flushed line by line: it is there before the file is closed.
    first, second = path.read_text(encoding="utf-8").splitlines()
    lines.close()
    assert json.loads(first) == {
        "channel": "agent.s",
        "envelope": envelope(1, "two\nlines, caf\u00e9"),
    }
    assert second == (
        '{"channel":"agent.t","envelope":'
        '{"seq":2,"type":"agent.stream.chunk","payload":{"content":"text"}}}'
    )
    assert [line.channel for line in read_json_lines(path)] == ["agent.s", "agent.t"]


def test_the_file_is_made_with_the_first_envelope_and_for_its_owner_only(path: Path) -> None:
    lines = JsonLinesBroadcaster(str(path))
    assert not path.exists()
    lines.broadcast("agent.s", envelope(1))
    lines.close()

    assert path.stat().st_mode & 0o077 == 0


def test_lines_are_appended_also_after_closing(path: Path) -> None:
    for seq in (1, 2):
        lines = JsonLinesBroadcaster(path)
        lines.broadcast("agent.s", envelope(seq))
        lines.close()
        lines.close()
    lines.broadcast("agent.s", envelope(3))
    lines.close()

    assert seqs(path) == [1, 2, 3]


def test_a_torn_last_line_does_not_spoil_the_next(path: Path) -> None:
    lines = JsonLinesBroadcaster(path)
    lines.broadcast("agent.s", envelope(1))
    with path.open("ab") as crashed:
        crashed.write(b'{"channel":"agent.s","envel')
    lines.broadcast("agent.s", envelope(2))
    lines.close()
    torn: list[int] = []
    read = list(read_json_lines(path, on_torn=lambda number, why: torn.append(number)))

    assert [line.envelope["seq"] for line in read] == [1, 2]
    assert torn == [2]


@pytest.mark.parametrize(
    "line", [b'{"channel":"a"', b"[]", b'{"channel":"a"}', b'{"channel":"\xff"}', b"\x00\x01"]
)
def test_a_line_that_is_not_whole_is_skipped_and_logged(
    path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = b'{"channel":"agent.s","envelope":{"seq":%d}}\n'
    path.write_bytes(good % 1 + line + b"\n\n" + good % 2)
    with caplog.at_level(logging.WARNING, logger="stepwell.broadcasting"):
        assert seqs(path) == [1, 2]

    assert len(caplog.records) == 1
    assert "line 2 is skipped" in caplog.records[0].getMessage()


def test_half_characters_are_replaced(path: Path) -> None:
    lines = JsonLinesBroadcaster(path)
    lines.broadcast("agent.s", envelope(1, "caf\udce9"))
    lines.close()

    assert [line.envelope["payload"]["content"] for line in read_json_lines(path)] == ["caf\ufffd"]


def test_open_files_are_written_to_and_left_open() -> None:
    text, binary = io.StringIO(), io.BytesIO()
    for file in (text, binary):
        lines = JsonLinesBroadcaster(file)
        lines.broadcast("agent.s", envelope(1))
        lines.close()

    assert not text.closed
    assert binary.getvalue().decode() == text.getvalue()
    assert json.loads(text.getvalue())["envelope"] == envelope(1)


def test_an_open_file_on_disk_is_flushed_with_each_line(path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        JsonLinesBroadcaster(file).broadcast("agent.s", envelope(1))

        assert seqs(path) == [1]


def test_a_folder_that_is_missing_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing does not exist; create it"):
        JsonLinesBroadcaster(tmp_path / "missing" / "run.jsonl")


@pytest.mark.parametrize("given", [None, 5, ""])
def test_what_is_no_file_is_refused_at_once(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"JsonLinesBroadcaster.* give (the|a) path"):
        JsonLinesBroadcaster(given)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a file; give a path"):
        JsonLinesBroadcaster(tmp_path)


def test_a_with_block_closes_what_it_opened(path: Path) -> None:
    with JsonLinesBroadcaster(path) as lines:
        lines.broadcast("agent.s", envelope(1))
        assert vars(lines)["_descriptor"] is not None

    assert vars(lines)["_descriptor"] is None
    assert seqs(path) == [1]


WRITER = """
import sys
from stepwell.broadcasting.broadcasters.json_lines import JsonLinesBroadcaster
lines = JsonLinesBroadcaster(sys.argv[1])
for seq in range(200):
    lines.broadcast(sys.argv[2], {"seq": seq, "payload": {"content": sys.argv[2] * 2000}})
"""


def test_two_processes_can_append_to_one_file(path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, os.fspath(path), channel])
        for channel in ("a", "b")
    ]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
    read = list(read_json_lines(path))

    for channel in ("a", "b"):
        own = [line.envelope["seq"] for line in read if line.channel == channel]
        assert own == list(range(200))
    assert len(read) == 400


def test_a_run_can_be_read_back(path: Path) -> None:
    lines = JsonLinesBroadcaster(path)
    adapter = AgentEventEnvelopeAdapter(lines, "session-1", "execution-1")
    agent = Agent(ScriptedModel(["Four."]))
    agent.wiretap(adapter.wiretap())
    agent.run_sync("What is 2 + 2?")
    lines.close()
    read = list(read_json_lines(path))

    assert [line.envelope["seq"] for line in read] == list(range(1, adapter.delivered + 1))
    assert read[-1].envelope["payload"]["status"] == "completed"
    assert {line.channel for line in read} == {"agent.session-1"}

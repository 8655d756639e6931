"""What people and models wrote can neither steer a terminal nor hide in it."""

import json
from pathlib import Path

from tests.integration.cli.command_line import CommandLine, write_shop

TITLE = "T\x1b]0;PWN\x07\x9b2J\u202etxt\u200b"
SEEN = "T⟨U+001B⟩]0;PWN⟨U+0007⟩⟨U+009B⟩2J⟨U+202E⟩txt⟨U+200B⟩"


def test_titles_and_names_are_written_out(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "hidden_titles")
    stepwell("run", "--app", shop, "--agent", "echoes", "Hello")
    session = stepwell("sessions", "--json").document[0]["id"]
    renamed = stepwell("sessions", "rename", session, TITLE)
    archived = stepwell("sessions", "archive", session)
    listed = stepwell("sessions", "--all-users", "--status", "archived")
    closed = stepwell("sessions", "close", session)
    for ran in (renamed, archived, listed, closed):
        assert SEEN in ran.out, (ran.out, ran.err)
        assert ran.out.replace("\n", "").isprintable()


def test_json_has_them_as_escapes(stepwell: CommandLine, tmp_path: Path):
    shop = write_shop(tmp_path, "hidden_json")
    ran = stepwell("run", "--app", shop, "--agent", "echoes", "--jsonl", f"Say {TITLE}")
    trace = stepwell("trace", "--json")
    lines = stepwell("trace", "--jsonl")
    said = [json.loads(line)["payload"].get("content") for line in ran.out.splitlines()]
    assert f"Say {TITLE}" in said
    for text in (ran.out, trace.out, lines.out):
        assert r"\u202etxt\u200b" in text
        assert text.replace("\n", "").isprintable()

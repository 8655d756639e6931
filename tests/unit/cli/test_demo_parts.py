"""What the check of the demo says, and what it takes for a file of the page."""

import json

import pytest

from stepwell.cli.demo.page_files import named_in
from stepwell.cli.demo.report import Part, Report, report_text
from stepwell.cli.demo.visitor import Missing, Seen

GOOD = Part(name="a limit", happened=True, seconds=0.5, detail="12 steps")
BAD = Part(name="a subagent", happened=False, seconds=0.1, detail="0 subagents ran")


def test_a_report_is_whole_only_if_every_part_happened() -> None:
    assert Report(parts=(GOOD,), seconds=1).is_whole
    assert not Report(parts=(GOOD, BAD), seconds=1).is_whole
    assert not Report(parts=(), seconds=1).is_whole


def test_what_is_missing_is_named() -> None:
    text = report_text(Report(parts=(GOOD, BAD), seconds=1.25))
    assert text.splitlines() == [
        "not ok: 1 of 2 parts did not happen",
        "missing: a subagent: 0 subagents ran",
    ]
    told = json.loads(report_text(Report(parts=(GOOD, BAD), seconds=1.25), as_json=True))
    assert told["ok"] is False
    assert [part["happened"] for part in told["parts"]] == [True, False]


def test_a_page_names_its_files() -> None:
    page = '<link rel="stylesheet" href="ui/style.css"><script src="ui/page/main.js"></script>'
    assert named_in("", page) == ["ui/style.css", "ui/page/main.js"]
    script = 'import { a } from "../vendor/a.js";\nconst b = await import("./b.js");\n'
    assert named_in("ui/page/main.js", script) == ["ui/vendor/a.js", "ui/page/b.js"]
    assert named_in("ui/style.css", '@import "page/more.css";') == ["ui/page/more.css"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("", '<script src="https://example.com/x.js"></script>'),
        ("", '<img src="//example.com/x.png">'),
        ("ui/page/main.js", 'import { a } from "https://example.com/a.js";'),
        ("ui/style.css", "body { background: url(http://example.com/x.png) }"),
        ("", '<script src="/ui/page/main.js"></script>'),
    ],
)
def test_a_file_from_elsewhere_is_refused(path: str, text: str) -> None:
    with pytest.raises(Missing, match="not a file of the page"):
        named_in(path, text)


def test_what_subagents_do_is_not_taken_for_the_execution_itself() -> None:
    def told(execution: str, status: str) -> dict[str, object]:
        payload = {"status": status}
        return {"type": "agent.status", "execution_id": execution, "seq": 1, "payload": payload}

    seen = Seen(session="s", execution="e", events=(told("e", "processing"), told("x", "failed")))
    assert seen.status == "processing"

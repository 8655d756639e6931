"""What a line that a person types means as an answer."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stepwell.cli.questions import approval_of, arguments_of, choice_of, prompt_of, waiting_lines
from stepwell.cli.terminal import (
    Style,
    clip,
    document,
    line_of,
    one_line,
    printable,
    printable_arguments,
    table,
)

HIDDEN = "\x1b\x7f\x9b\xad\u200b\u200f\u2028\u202e\u2066\u2060\ufeff\u3164\U000e0041"
"""Characters that steer a terminal or can't be seen."""


def approval(**arguments: Any) -> dict[str, Any]:
    return {
        "kind": "approval",
        "call_id": "c1\x1b[2J\nforged",
        "prompt": "May bash run?",
        "details": {"tool": "bash", "arguments": arguments},
    }


def test_an_approval_shows_the_arguments_whole_and_what_hides_in_them():
    command = f"echo {'x' * 3000}; rm -rf /\u202e\u200b"
    told = arguments_of(approval(command=command, script="first\nlast\r\n"))
    assert "rm -rf /⟨U+202E⟩⟨U+200B⟩" in told.replace("\n  │ ", "")
    assert told.endswith('  "script":\n  │ first\n  │ last⟨U+000D⟩\n  │\x20\n')
    assert arguments_of(approval()) == ""
    assert arguments_of({**approval(), "details": {}}) == ""


def test_no_argument_can_look_like_another():
    forged = "harmless" + " " * 100 + '"path": "/tmp"'
    for arguments in ({"a": forged}, {"a": f"x\n{forged}"}, {"a": "本" * 60 + '"path"'}):
        first, *rest = printable_arguments(arguments, width=40).splitlines()
        assert first.startswith('"a":')
        assert rest
        assert all(line.startswith("│ ") for line in rest)
    assert printable_arguments([1, "a"]) == '[1,"a"]'


def test_what_an_execution_waits_for_is_told_in_one_line_each():
    paused = cast("Any", SimpleNamespace(questions=[approval()]))
    assert waiting_lines(paused, "again")[1] == "  approval c1⟨U+001B⟩[2J forged: May bash run?"


def test_what_hides_is_written_out():
    assert printable("a\u202eb\x1b[2J\tc\r\nd\re") == "a⟨U+202E⟩b⟨U+001B⟩[2J\tc\nd⟨U+000D⟩e"
    assert [printable(sign) for sign in HIDDEN] == [f"⟨U+{ord(sign):04X}⟩" for sign in HIDDEN]
    assert one_line(f"a{HIDDEN}b", 500) == f"a{printable(HIDDEN)}b"
    assert printable("pass\u200dword \ud800") == "pass⟨U+200D⟩word ⟨U+D800⟩"


@pytest.mark.parametrize(
    "text", ["👩\u200d👧", "❤\ufe0f", "1\ufe0f\u20e3", "\u06cc\u200c\u062e", "naïve ü"]
)
def test_what_scripts_and_emoji_need_stays(text: str):
    assert printable(text) == text


def test_json_is_the_same_without_what_hides():
    value = {f"k{HIDDEN}": [HIDDEN, "ü\n\t"]}
    for text in (document(value), line_of(value)):
        assert json.loads(text) == value
        assert not set(HIDDEN) & set(text)
        assert "ü" in text


def test_an_option_is_chosen_by_its_number_and_anything_else_is_taken_as_typed():
    options = ["Gatwick", "Heathrow"]
    assert [choice_of(typed, options) for typed in ("1", "2", "3", "Stansted", "")] == [
        "Gatwick",
        "Heathrow",
        "3",
        "Stansted",
        None,
    ]


def test_an_approval_is_yes_no_with_a_reason_or_other_arguments():
    assert approval_of("YES") is True
    assert approval_of("no not on a Friday") == {"approved": False, "message": "not on a Friday"}
    assert approval_of('e {"amount": 3}') == {"approved": True, "arguments": {"amount": 3}}
    assert approval_of("perhaps") is None


@pytest.mark.parametrize("typed", ["e", "e {", "e [1]", "e 3"])
def test_arguments_that_are_no_object_are_refused(typed: str):
    with pytest.raises(ValueError, match="must be a JSON object"):
        approval_of(typed)


def test_a_budget_is_asked_for_without_the_ways_of_the_http_api():
    pending = {
        "kind": "budget",
        "prompt": "steps_limit was reached; to grant more: POST /agent/executions/x/resume",
        "details": {"stop_reason": "steps_limit"},
    }
    assert prompt_of(pending).startswith("steps_limit was reached")


def test_long_texts_are_clipped_and_say_how_much_is_left():
    text = "\n".join(f"line {number}" for number in range(30))
    assert clip(text, 2).startswith("line 0\nline 1... [")
    assert "more characters; --full shows all" in clip(text, 2)
    assert clip("short\n") == "short"
    assert one_line("a\n\tb  c") == "a b c"


def test_colours_are_only_where_they_are_seen():
    assert Style(True).bad("no") == "\x1b[31mno\x1b[0m"
    assert Style(False).bad("no") == "no"
    assert table([]) == ""

"""What a line that a person types means as an answer."""

import pytest

from stepwell.cli.asking import approval_of, choice_of, prompt_of
from stepwell.cli.terminal import Style, clipped, one_line, table


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
    assert prompt_of(pending) == "steps_limit was reached; more is needed"


def test_long_texts_are_clipped_and_say_how_much_is_left():
    text = "\n".join(f"line {number}" for number in range(30))
    assert clipped(text, 2).splitlines()[:2] == ["line 0", "line 1"]
    assert "more characters; --full shows all" in clipped(text, 2)
    assert clipped("short\n") == "short"
    assert one_line("a\n\tb  c") == "a b c"


def test_colours_are_only_where_they_are_seen():
    assert Style(True).bad("no") == "\x1b[31mno\x1b[0m"
    assert Style(False).bad("no") == "no"
    assert table([]) == ""

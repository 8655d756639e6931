"""Front matter: what is split off, what is repaired, and what is refused in bounded time."""

from time import thread_time

import pytest

from stepwell.errors import ConfigurationError
from stepwell.specs.front_matter import DefinitionError, Document, read_document
from stepwell.specs.yaml import MAX_DEPTH

SECONDS = 5.0
"""Far more than any of them needs here, and far less than a quadratic one takes."""


def fields_of(matter: str) -> dict[str, object]:
    return dict(read_document(f"---\n{matter}\n---\nbody").fields)


def refusal_of(matter: str) -> str:
    with pytest.raises(DefinitionError) as caught:
        read_document(f"---\n{matter}\n---\nbody")
    return str(caught.value)


def test_text_without_front_matter_is_all_body() -> None:
    assert read_document("# Title\n\n---\na: 1\n---\n") == Document(
        body="# Title\n\n---\na: 1\n---\n"
    )


def test_an_empty_front_matter_is_one() -> None:
    document = read_document("---\n---\nbody")

    assert document.has_front_matter
    assert document.fields == {}
    assert document.body == "body"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("close", ["---", "--- \t", "..."])
def test_line_ends_marks_and_closings(end: str, mark: str, close: str) -> None:
    text = mark + end.join(["---", "a: 1", close, "one", "two"])

    assert read_document(text) == Document(fields={"a": 1}, body="one\ntwo", has_front_matter=True)


def test_values_are_plain_and_words_stay_words() -> None:
    values = "[yes, no, on, off, true, False, ~, null, 12, -3, 1.5, 1.5e3, 007, 0x1F, 1_000, .inf]"

    assert fields_of(f"v: {values}")["v"] == [
        *("yes", "no", "on", "off", True, False, None, None, 12, -3, 1.5, 1500.0),
        *("007", "0x1F", "1_000", ".inf"),
    ]
    assert fields_of("v: 2024-01-01\nw: 12:30:00\nx: 9999999999999999999999") == {
        "v": "2024-01-01",
        "w": "12:30:00",
        "x": "9999999999999999999999",
    }


def test_names_of_fields_are_what_is_written() -> None:
    assert fields_of("no: 1\n12: 2\nnull: 3\n2024-01-01: 4") == {
        "no": 1,
        "12": 2,
        "null": 3,
        "2024-01-01": 4,
    }


def test_quoted_text_is_text() -> None:
    assert fields_of("a: '12'\nb: \"true\"\nc: !!str 5") == {"a": "12", "b": "true", "c": "5"}


def test_joined_lines_are_lines_only_where_they_are_not_quoted() -> None:
    assert fields_of(r"a: One.\n\nTwo.") == {"a": "One.\n\nTwo."}
    assert fields_of(r"a: 'One.\n\nTwo.'") == {"a": r"One.\n\nTwo."}
    assert fields_of(r"a: C:\new\nine") == {"a": r"C:\new\nine"}


def test_a_repair_is_told() -> None:
    document = read_document("---\na: b: c\nd: 1\n---\n")

    assert document.fields == {"a": "b: c", "d": 1}
    assert document.notes == ("put quotes around a",)


def test_reading_line_by_line_is_told_with_the_fault() -> None:
    document = read_document("---\na: b: c\n  d: e\nf: [x]\n---\n")

    assert document.fields == {"a": "b: c\n  d: e", "f": "[x]"}
    assert document.notes[0].startswith("line 2: not YAML: ")
    assert document.notes[0].endswith("; so the front matter was read line by line")


def test_faults_name_their_line() -> None:
    assert refusal_of("a: 1\nb: 2\na: 3") == "line 4: 'a' is given twice, first in line 2; keep one"
    assert refusal_of("a:\n  b: 1\n  b: 2").startswith("line 4: 'b' is given twice")
    assert refusal_of("a: 1\nb: !!python/name:os.system x").startswith("line 3: the tag")
    assert refusal_of("a: &a [*a]") == "line 2: 'a' contains itself"
    assert refusal_of("- a") == "line 2: the front matter contains no `name: value` fields"


def test_what_begins_but_never_ends_is_refused() -> None:
    with pytest.raises(DefinitionError, match="line 3: the front matter that starts here is not"):
        read_document("\n\n---\na: 1\n")


def test_text_that_is_none_is_refused() -> None:
    with pytest.raises(DefinitionError, match="line 2: contains a NUL character"):
        read_document("a\nb\0")
    with pytest.raises(DefinitionError, match="line 1: contains half a character"):
        read_document("\ud800")


def test_a_definition_error_is_a_configuration_error_with_its_line() -> None:
    error = DefinitionError("is odd", line=3)

    assert isinstance(error, ConfigurationError)
    assert (str(error), error.line) == ("line 3: is odd", 3)


def test_nesting_has_a_limit() -> None:
    within = MAX_DEPTH - 1

    assert fields_of(f"a: {'[' * within}{']' * within}")
    assert "nested deeper than 32 levels" in refusal_of(f"a: {'[' * MAX_DEPTH}{']' * MAX_DEPTH}")


ALIASES = "\n".join(
    [f"a0: &a0 [{'x, ' * 9}]", *(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 12))]
)
HOSTILE = {
    "aliases of lists": ALIASES,
    "aliases of a long text": f"a: &a {'x' * 50_000}\nb: [{'*a, ' * 10_000}]",
    "merged mappings": f"a: &a {{{', '.join(f'k{n}: v' for n in range(5000))}}}\n"
    + "\n".join(f"b{n}: {{<<: *a}}" for n in range(5000)),
    "open lists": "a: " + "[" * 200_000,
    "open mappings": "a: " + "{b: " * 60_000,
    "dashes": "- " * 120_000,
    "question marks": "? " * 120_000,
    "too long": "a: " + "x" * 300_000,
}


@pytest.mark.parametrize("matter", HOSTILE.values(), ids=HOSTILE)
def test_hostile_front_matter_is_refused(matter: str) -> None:
    started = thread_time()

    assert len(refusal_of(matter)) < 300
    assert thread_time() - started < SECONDS


SLOW = {
    "colons": "".join(f"a{n}: b: c\n" for n in range(15_000)),
    "quotes": "a: '" + "'" * 200_001,
    "escapes": 'a: "' + '\\"' * 100_000,
    "tags": "a: b: c\n" + "<x>" * 60_000,
    "comments": "a: b: c\n" + "#\n" * 100_000,
}


@pytest.mark.parametrize("matter", SLOW.values(), ids=SLOW)
def test_long_repairs_end(matter: str) -> None:
    started = thread_time()

    assert fields_of(matter)
    assert thread_time() - started < SECONDS

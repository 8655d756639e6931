"""Agent specs survive every file format, and no text breaks the readers in an unnamed way."""

import string
from typing import Any

import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from stepwell.errors import ConfigurationError
from stepwell.models import ModelSettings
from stepwell.specs.front_matter import DefinitionError, read_document
from stepwell.specs.parser import AgentSpecParser, SpecFormat
from stepwell.specs.spec import AgentModel, AgentSpec
from stepwell.state import Budget

ODD = st.sampled_from(
    [
        *("---", "- a", "a: b", "no", "1.5e5", "~", "0x1F", "2024-01-01", "#", "\\n<x>", "''"),
        *("*", "&a", "!!str x", "{", "[", "%", "@", "`", "\t", "\x85", "\u2028", "\x1b", "\ufeff"),
        *('"', "<<", "🙂"),
    ]
)
TEXT = st.lists(st.text(max_size=12) | ODD | st.just("\n"), max_size=5).map("".join)
PROSE = TEXT.map(lambda text: f"{text}Use it.{text[::-1]}")
LETTERS = string.ascii_letters + string.digits + "_-.é "
NAME = st.text(LETTERS, min_size=1, max_size=20).filter(lambda name: name.strip(" ."))
TOOL = NAME | st.sampled_from(["Bash(git add:*, git log)", "mcp__*", "all", "none", "inherit", "*"])
FINITE = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | TEXT | FINITE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
AMOUNT = st.none() | st.integers(0, 10**6)
SETTINGS = st.builds(
    ModelSettings,
    model=st.none() | NAME,
    temperature=st.none() | st.floats(0, 2),
    max_tokens=st.none() | st.integers(1, 9),
    stop=st.lists(TEXT, max_size=2).map(tuple),
    parallel_tool_calls=st.none() | st.booleans(),
    thinking=st.sampled_from([None, "low", "high"]),
    extra_body=st.dictionaries(TEXT, PLAIN, max_size=2),
)
FIELDS = st.fixed_dictionaries(
    {"name": NAME, "description": PROSE, "system_prompt": PROSE},
    optional={
        "tools": st.none() | st.lists(TOOL, max_size=3),
        "denied_tools": st.lists(TOOL, max_size=3),
        "model": st.none() | NAME | st.builds(AgentModel, preset=st.none() | NAME) | SETTINGS,
        "skills": st.lists(NAME, max_size=3),
        "budget": st.none() | st.builds(Budget, steps=AMOUNT, tokens=AMOUNT, seconds=AMOUNT),
        "metadata": st.dictionaries(TEXT, PLAIN, max_size=3),
    },
)


def spec_of(fields: dict[str, Any]) -> AgentSpec:
    model = fields.get("model")
    if isinstance(model, ModelSettings):
        return AgentSpec(**{**fields, "model": AgentModel(settings=model)})
    return AgentSpec(**fields)


@pytest.mark.parametrize("format", SpecFormat)
@given(fields=FIELDS)
def test_b276_a_spec_is_the_same_after_it_was_written_and_read(
    format: SpecFormat, fields: dict[str, Any]
) -> None:
    try:
        spec = spec_of(fields)
    except ConfigurationError:
        reject()

    written = getattr(spec, f"to_{format.value}")()

    assert AgentSpecParser().parse(written, format) == spec
    assert AgentSpec.from_dict(spec.to_dict()) == spec


LINE = st.sampled_from(
    [
        *("---", "...", "name: a", "description: b: c", "tools: [a", "  - x", "\tkey: v", "+++"),
        *("<example>", "</example>", "user: hi", "<!--", "-->", "# note", "k: |", "? x", "- - -"),
        *("x: *a", "y: &a 1", "z: !!python/name:os.system", '"', "'", "{a: b", "<<: {a: 1}"),
        *("a: &a [*a]", "\ud800"),
    ]
)


@given(st.lists(LINE | st.text(max_size=20), max_size=12), st.sampled_from(["\n", "\r\n", "\r"]))
@example(["---", "a: 1", "a: 2", "---"], "\n")
def test_any_text_is_a_document_or_a_definition_error(lines: list[str], end: str) -> None:
    for text in (end.join(lines), end.join(["---", *lines, "---", "body"])):
        try:
            document = read_document(text)
        except DefinitionError:
            continue
        assert isinstance(document.body, str)
        assert all(isinstance(name, str) for name in document.fields)


@pytest.mark.parametrize("format", SpecFormat)
@pytest.mark.parametrize("strict", [True, False])
@given(lines=st.lists(LINE | st.text(max_size=20), max_size=8), body=TEXT)
def test_any_text_is_a_spec_or_a_definition_error(
    format: SpecFormat, strict: bool, lines: list[str], body: str
) -> None:
    parser = AgentSpecParser(strict=strict)
    for text in ("\n".join(["---", *lines, "---", body]), "\n".join(lines)):
        try:
            spec = parser.parse(text, format)
        except DefinitionError:
            continue
        assert AgentSpecParser().parse(spec.to_markdown()) == spec

"""Every agent file in the corpus loads as expected, or is refused with a precise error."""

from pathlib import Path

import pytest

from stepwell.specs.front_matter import DefinitionError
from stepwell.specs.parser import AgentSpecParser
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from tests.wild.agent_cases import CASES, Fails, Loads

WILD = Path(__file__).parents[2] / "wild" / "agents"
LOADING = {file: case for file, case in CASES.items() if isinstance(case, Loads)}
FAILING = {file: case for file, case in CASES.items() if isinstance(case, Fails)}


def spec_of(file: str) -> AgentSpec:
    return AgentSpecParser(strict=False).parse_file(WILD / file)


def test_every_file_is_a_case() -> None:
    assert {path.name for path in WILD.iterdir()} == set(CASES)
    assert len(LOADING) > 80
    assert len(FAILING) > 50


@pytest.mark.parametrize("file", LOADING)
def test_a_wild_file_loads(file: str) -> None:
    case = LOADING[file]

    parsed = AgentSpecParser(strict=False).parse_file_with_notes(WILD / file)

    assert parsed.spec.name == case.name
    assert parsed.spec.tools == case.tools
    assert bool(parsed.notes) == bool(case.note)
    assert case.note in "".join(parsed.notes[:1])


@pytest.mark.parametrize("file", FAILING)
def test_b271_a_wild_file_is_refused_with_the_reason(file: str) -> None:
    """Among them: another extension, not UTF-8, without front matter, with an empty body."""
    with pytest.raises(DefinitionError) as caught:
        AgentSpecParser(strict=False).parse_file(WILD / file)

    assert str(caught.value).startswith(f"{WILD / file}: {FAILING[file].text}")


@pytest.mark.parametrize("file", LOADING)
def test_b276_a_wild_file_survives_every_format(file: str) -> None:
    spec = spec_of(file)

    for format in ("markdown", "yaml", "json"):
        written = getattr(spec, f"to_{format}")()
        assert AgentSpecParser().parse(written, format) == spec


def test_the_corpus_as_one_directory() -> None:
    registry = AgentRegistry().load_directory(WILD, strict=False)

    assert registry.names == tuple(sorted(case.name for case in LOADING.values()))
    # A file that no format reads is passed over in a directory.
    assert {Path(problem.path).name for problem in registry.problems} == set(FAILING) - {
        "text-file.txt"
    }


STRICTLY_REFUSED = {
    "both-missing.md": "lacks name and description",
    "comment-only-front-matter.md": "lacks name and description",
    "empty-front-matter.md": "lacks name and description",
    "name-missing.md": "lacks name",
    "name-null.md": "lacks name",
    "tools-switches.md": "lacks name",
    "unknown-fields.md": "has unknown fields: shoe_size, zodiac; known: name, description, tools",
}


@pytest.mark.parametrize("file", CASES)
def test_b274_strictly_only_names_and_unknown_fields_differ(file: str) -> None:
    """Files of other programs must load (SPEC 7), so what is read leniently keeps its unknown
    fields as metadata, with a note."""
    try:
        strict = AgentSpecParser(strict=True).parse_file(WILD / file)
    except DefinitionError as error:
        said = str(error).removeprefix(f"{WILD / file}: ")
    else:
        assert file not in STRICTLY_REFUSED
        assert strict == spec_of(file)
        return

    if file in STRICTLY_REFUSED:
        assert STRICTLY_REFUSED[file] in said
    else:
        assert said.startswith(FAILING[file].text)


def test_git_kept_the_bytes() -> None:
    assert b"name: windows\r\n" in (WILD / "crlf.md").read_bytes()
    assert b"\n" not in (WILD / "cr-only.md").read_bytes()
    assert (WILD / "bom.md").read_bytes().startswith(b"\xef\xbb\xbf---\n")
    assert b"caf\xe9" in (WILD / "latin1.md").read_bytes()
    assert b"tools: Read, Grep   \n" in (WILD / "trailing-spaces.md").read_bytes()


def test_b271_line_ends_and_marks_leave_no_trace() -> None:
    assert spec_of("crlf.md").system_prompt == "Line one.\nLine two."
    assert spec_of("cr-only.md").system_prompt == "Line one.\nLine two."
    assert spec_of("mixed-line-ends.md").system_prompt == "One.\nTwo."


def test_examples_in_a_description_are_kept_whole() -> None:
    one_line = spec_of("one-line-examples.md").description
    lines = spec_of("real-line-examples.md").description
    inside = spec_of("examples-with-fields-inside.md")

    assert one_line.startswith("Use this agent when tests should run after a change. Examples:\n\n")
    assert '\nuser: "CI fails: why?"\n' in one_line
    assert one_line.count("<example>") == one_line.count("</example>") == 2
    assert lines.count("<example>") == lines.count("</example>") == 2
    assert 'assistant: "The db-tuner agent reads plans."' in lines
    assert "tools: not-the-tools" in inside.description


@pytest.mark.parametrize(
    ("file", "description"),
    [
        ("quoted-with-inner-quotes.md", 'Use when the user says "please review" or "have a look"'),
        ("quoted-escaped.md", 'Use when the user says "go".\n\nThen go: at once.'),
        ("single-quoted-apostrophe.md", "Fixes it's and its: people's oldest mistake."),
        ("single-quoted-broken-apostrophe.md", "Don't ask, it's broken"),
        ("hash-in-description.md", "Writes C# and F# code"),
        ("hash-with-colon.md", "Links issues: see #42 for the format"),
        ("brace-value.md", "{{project}} specific helper: fill in the name"),
        ("bracket-value.md", "[WIP] Drafts changelogs"),
        ("name-on.md", "off"),
    ],
)
def test_descriptions_are_what_their_authors_meant(file: str, description: str) -> None:
    assert spec_of(file).description == description


def test_a_body_keeps_its_rules() -> None:
    assert spec_of("body-rules.md").system_prompt.startswith("First part.\n\n---\n\nname: this is")
    assert spec_of("body-code-fence.md").system_prompt.endswith("---\nname: example\n---\n```")


def test_the_other_fields_of_wild_files() -> None:
    assert spec_of("disallowed-tools.md").denied_tools == ("Write", "Edit", "Bash(rm:*)")
    assert spec_of("tools-switches.md").denied_tools == ("write", "edit", "bash")
    assert spec_of("skills-comma.md").skills == ("pdf-tools", "code-review")
    assert spec_of("model-capital.md").preset == "Sonnet"
    assert spec_of("model-inherit.md").preset is None
    assert spec_of("model-config.yaml").model_settings.max_tokens == 2000
    assert spec_of("model-config.yaml").preset == "anthropic"
    bounded, thrifty = spec_of("max-turns.md").budget, spec_of("budget-aliases.yaml").budget
    assert bounded is not None
    assert thrifty is not None
    assert bounded.steps == 12
    assert (thrifty.steps, thrifty.tokens, thrifty.seconds, thrifty.cost) == (5, 1000, 2.5, 0.1)


def test_what_other_programs_would_act_upon_is_only_kept() -> None:
    parsed = AgentSpecParser(strict=False).parse_file_with_notes(WILD / "hooks-and-servers.md")

    assert set(parsed.spec.metadata) == {"permissionMode", "mcpServers", "hooks", "color"}
    assert parsed.notes == ("fields without effect: permissionMode, mcpServers, hooks",)

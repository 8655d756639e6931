"""Every skill file in the corpus loads as expected, or is refused with a precise error."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from stepwell import Agent
from stepwell.capabilities.skills import Skill, SkillLibrary, UseSkills
from stepwell.testing import ScriptedModel, call

WILD = Path(__file__).parents[2] / "wild" / "skills"


class Loads(Struct, frozen=True):
    """How a description begins, the allowed tools, a name unlike the directory's, and a note."""

    description: str
    tools: tuple[str, ...] = ()
    name: str = ""
    note: str = ""


LOADING = {
    "UPPER-CASE": Loads("Shouts.", note="the name 'UPPER-CASE' is not in lower case with hyphens"),
    "alias": Loads("Says it twice."),
    "apostrophe": Loads("Don't use for the team's private repositories"),
    "at-sign": Loads("@mentions are resolved to people", note="put quotes around description"),
    "backtick-first": Loads(
        "`make test` and what to do when it fails", note="put quotes around description"
    ),
    "blank-body": Loads(
        "Has blank lines only.", note="has no instructions: the body after the front matter is empt"
    ),
    "blank-lines-first": Loads("Begins late."),
    "bom": Loads("Begins with a mark."),
    "bom-alone": Loads("Text behind a mark."),
    "bom-crlf": Loads("Both."),
    "brace-first": Loads(
        "{{name}} placeholders are filled in templates", note="put quotes around description"
    ),
    "bracket-first": Loads("[BETA] Draws sequence diagrams", note="put quotes around description"),
    "camel-keys": Loads("Keys in camel case.", tools=("Read",)),
    "capital-keys": Loads("Keys begin with capitals.", tools=("Read",)),
    "colon-at-the-end": Loads("Helps with the following:", note="put quotes around description"),
    "colon-in-description": Loads(
        "Use this skill when: the user asks for charts, e.g.: bar or ",
        note="put quotes around description",
    ),
    "comment-first": Loads(
        "Begins with a comment.", note="skipped a comment before the front matter"
    ),
    "comment-never-closed": Loads("name: comment-never-closed"),
    "comment-only": Loads(
        "To be written.", note="lacks a name; called 'comment-only' after its directory"
    ),
    "compatibility-mapping": Loads("x", note="compatibility is not text; kept as extra"),
    "context-odd": Loads("x", note="context is not known (only fork is); kept as extra"),
    "continued-line": Loads("A text that goes on in the next line without a mark"),
    "cr-only": Loads("From an old Mac."),
    "crlf": Loads("From Windows.", tools=("Read", "Bash(git:*)")),
    "dash-in-description": Loads("Review - fast, blunt - of a pull request"),
    "dates": Loads("x"),
    "description-empty": Loads("Builds it.", note="lacks a description; took the first paragraph"),
    "description-html": Loads("Makes <b>bold</b> claims & keeps them"),
    "description-long": Loads("Knows a lot about many things. Knows a lot about many things"),
    "description-missing": Loads(
        "Corrects spelling in German texts, and leaves quotations alo",
        note="lacks a description; took the first paragraph",
    ),
    "description-null": Loads("", note="lacks a description; it has none"),
    "dots-at-the-end": Loads("Closed with dots."),
    "double-quoted": Loads('Says: "done" when it is done'),
    "empty-front-matter": Loads(
        "Translates menus.", note="lacks a name; called 'empty-front-matter' after its director"
    ),
    "escaped-lines": Loads(
        "Finds slow queries.\n\nUse it for: PostgreSQL", note="put quotes around description"
    ),
    "every-field": Loads(
        "Uses all fields that are known.", tools=("Read", "Grep", "Bash(git log:*)")
    ),
    "examples-in-description": Loads(
        "Use this skill for schema changes. Examples:\n\n<example>\nCont",
        tools=("Read", "Edit"),
        note="line 3: not YAML: mapping values are not allowed in this con",
    ),
    "fenced-front-matter": Loads(
        "Body.", note="starts like front matter, which was not read; put lines of -"
    ),
    "folded": Loads("Extracts text and tables from PDF files."),
    "folded-stripped": Loads("Extracts text and tables from PDF files.\nUse it for forms, t"),
    "four-dashes": Loads(
        "name: four-dashes", note="starts like front matter, which was not read; put lines of -"
    ),
    "front-matter-in-body": Loads("Shows how a skill looks."),
    "hash-after-a-space": Loads("Posts to the channel"),
    "hash-in-description": Loads("Handles C# and F# projects"),
    "hint-in-brackets": Loads("x", note="put quotes around argument-hint"),
    "hint-list": Loads("x"),
    "hooks": Loads("x"),
    "invokable": Loads("x"),
    "json-front-matter": Loads("Written as JSON.", tools=("Read",)),
    "key-with-space": Loads("x"),
    "license-text": Loads("x"),
    "line-separator": Loads(
        "Odd\u2028line ends.", note="line 5: not YAML: could not find expected ':'; so the fron"
    ),
    "literal": Loads("First line.\nSecond line."),
    "literal-kept": Loads("Keeps the end."),
    "merge-key": Loads("x"),
    "metadata-inline": Loads("x"),
    "metadata-nested": Loads("x"),
    "metadata-text": Loads("x", note="metadata is not a mapping; kept as extra"),
    "name-chinese": Loads(
        "审查代码并给出建议。用于:合并请求、提交。",
        name="代码审查",
        note="the name '代码审查' is not in lower case with hyphens",
    ),
    "name-emoji": Loads(
        "🚀 Ships things, 🎉 celebrates.",
        name="rocket-🚀",
        note="the name 'rocket-🚀' is not in lower case with hyphens",
    ),
    "name-empty": Loads(
        "Its name is the empty text.", note="lacks a name; called 'name-empty' after its directory"
    ),
    "name-missing": Loads(
        "It has no name of its own.", note="lacks a name; called 'name-missing' after its directory"
    ),
    "name-null": Loads(
        "Its name was left empty.", note="lacks a name; called 'name-null' after its directory"
    ),
    "name-with-namespace": Loads(
        "From a plugin.",
        name="acme:deploy",
        note="the name 'acme:deploy' is not in lower case with hyphens",
    ),
    "name-with-spaces": Loads(
        "A title as a name.",
        name="PDF Processing (v2)",
        note="the name 'PDF Processing (v2)' is not in lower case with hyp",
    ),
    "name_with_underscores": Loads(
        "Old style.", note="the name 'name_with_underscores' is not in lower case with h"
    ),
    "no-front-matter": Loads("Write them in the imperative, with at most 50 characters."),
    "no-line-after-it": Loads(
        "The file ends with the dashes.",
        note="has no instructions: the body after the front matter is empt",
    ),
    "only-a-sentence": Loads("Always answer in French."),
    "only-front-matter": Loads(
        "There is no text behind it.",
        note="has no instructions: the body after the front matter is empt",
    ),
    "other-directory": Loads(
        "Is called otherwise.",
        name="quite-another-name",
        note="is called 'quite-another-name', unlike its directory",
    ),
    "percent-first": Loads("%-formatting becomes f-strings", note="put quotes around description"),
    "plain": Loads("Formats tables in Markdown files."),
    "quoted-word-first": Loads(
        '"Ship it" checklist: tests, docs, tag', note="put quotes around description"
    ),
    "quotes-inside": Loads('Use when the user says "deploy", "ship" or \'release\''),
    "rule-in-body": Loads("The body has lines of dashes."),
    "single-quoted": Loads("It's for letters that aren't mail"),
    "spaces-after-dashes": Loads("Blanks behind the dashes."),
    "star-first": Loads("*Always* use this before a commit", note="put quotes around description"),
    "tabs": Loads("Tabs instead of blanks.", note="replaced tabs by spaces"),
    "tags-text": Loads("x"),
    "title-instead": Loads(
        "Uses title for name.", note="lacks a name; called 'title-instead' after its directory"
    ),
    "tools-bare-star": Loads("x", note="put quotes around allowed-tools"),
    "tools-commas": Loads("x", tools=("Read", "Write", "Edit", "Grep")),
    "tools-empty": Loads("x"),
    "tools-flow-list": Loads("x", tools=("Read", "Write", "Edit")),
    "tools-key": Loads("x", tools=("Read", "Grep"), note="read tools as allowed-tools"),
    "tools-limit-as-mapping": Loads(
        "x",
        tools=("Bash(npm: *)",),
        note="line 5: not YAML: did not find expected alphabetic or numeri",
    ),
    "tools-limit-with-colon": Loads(
        "x", tools=("Bash(npm: *)", "Read"), note="put quotes around allowed-tools"
    ),
    "tools-limited": Loads("x", tools=("Bash(git add:*)", "Bash(git status:*)", "Read")),
    "tools-limited-list": Loads("x", tools=("Bash(npm run test:*)", "Read(src/**)")),
    "tools-limited-spaces": Loads("x", tools=("Bash(git:*)", "Bash(jq:*)", "Read")),
    "tools-lines": Loads("x", tools=("Read", "Grep")),
    "tools-list": Loads("x", tools=("Read", "Write")),
    "tools-mcp": Loads("x", tools=("mcp__github__get_issue", "mcp__linear__*")),
    "tools-null": Loads("x"),
    "tools-spaces": Loads("x", tools=("Read", "Write", "Edit")),
    "tools-star": Loads("x"),
    "tools-unclosed": Loads(
        "x",
        tools=("Read", "Bash(git add:*, Write"),
        note="allowed-tools: the parentheses of 'Bash(git add:*, Write' do",
    ),
    "tools-unindented": Loads("x", tools=("Read", "Bash")),
    "two-dashes": Loads(
        "-- name: two-dashes description: Opened with too few dashes.",
        note="starts like front matter, which was not read; put lines of -",
    ),
    "unclosed-quote": Loads(
        '"Generates release notes from commits', note="put quotes around description"
    ),
    "url-in-description": Loads("Reads https://example.org/docs#top and answers from it"),
    "version-dots": Loads("x"),
    "version-number": Loads("x"),
}

FAILING = {
    "alias-bomb": "line 9: contains too many values, with aliases expanded",
    "bang-first": "line 3: the tag '!important' is not supported; remove it",
    "binary": "line 1: byte 0x89 is not UTF-8; save the file as UTF-8",
    "blank-file": "is empty; write the instructions",
    "deep": "line 4: nested deeper than 32 levels",
    "description-list": "description must be text, got ['one', 'two']; put it in quotes",
    "description-number": "description must be text, got 42; put it in quotes",
    "duplicate-key": "line 4: 'description' is given twice, first in line 3; keep one",
    "empty-file": "is empty; write the instructions",
    "latin-1": "line 3: byte 0xfc is not UTF-8; save the file as UTF-8",
    "list-instead": "line 2: the front matter contains no `name: value` fields",
    "model-list": "model must be text, got ['opus', 'sonnet']; put it in quotes",
    "name-dots": "name '..' looks like a path; use letters, digits and -",
    "name-invisible": "name 'zero\\u200bwidth' contains the character U+200B; remove it",
    "name-list": "name must be text, got ['a', 'b']; put it in quotes",
    "name-long": "name has 129 characters; use at most 100: long-long-long-long-long-long-lon",
    "name-number": "name must be text, got 2048; put it in quotes",
    "name-path": "name '../../etc/passwd' looks like a path; use letters, digits and -",
    "name-true": "name must be text, got True; put it in quotes",
    "name-two-lines": "name 'first\\nsecond' contains the character U+000A; remove it",
    "nul": "line 5: contains a NUL character; this is not a text file",
    "python-tag": "line 3: the tag 'tag:yaml.org,2002:python/object/apply:os.system' is not su",
    "second-document": "line 3: a second YAML document starts here; keep one",
    "switch-odd": "disable-model-invocation is 'sometimes'; write true or false",
    "text-instead": "line 2: the front matter contains no `name: value` fields",
    "toml": "line 1: the front matter is TOML; write YAML between lines of ---",
    "tools-mapping": "allowed-tools is {'Read': True, 'Bash': False}; write a list of names",
    "tools-number": "allowed-tools is 3; write a list of names",
    "tools-twice": "allowed-tools is given twice, as 'tools' and 'allowed-tools'; keep one",
    "unclosed": "line 1: the front matter that starts here is not closed; end it with a line",
    "utf-16-be": "is UTF-16; save it as UTF-8",
    "utf-16-without-mark": "line 1: contains a NUL character; this is not a text file",
    "utf-16": "is UTF-16; save it as UTF-8",
}

NOT_FOUND = {"lower-case"}

FIELDS: Mapping[str, dict[str, Any]] = {
    "every-field": {
        "license": "Apache-2.0",
        "compatibility": "Needs git and Python 3.11 or newer",
        "metadata": {"author": "example-org", "version": "1.0"},
        "model": "opus",
        "context": "fork",
        "agent": "Explore",
        "argument_hint": "[branch] [path]",
        "user_invocable": False,
        "disable_model_invocation": True,
        "tags": ("git", "review"),
        "extra": {},
    },
    "alias": {"compatibility": "Says it twice."},
    "camel-keys": {"argument_hint": "<file>", "user_invocable": False},
    "compatibility-mapping": {
        "compatibility": None,
        "extra": {"compatibility": {"node": ">=18", "os": ["linux"]}},
    },
    "context-odd": {"context": None, "extra": {"context": "A project with React"}},
    "dates": {"extra": {"created": "2025-10-16", "updated": "2025-10-16T08:00:00Z"}},
    "hint-in-brackets": {"argument_hint": "[issue-number] [priority]"},
    "hint-list": {"argument_hint": "[file]"},
    "invokable": {"user_invocable": False},
    "license-text": {"license": "Proprietary. LICENSE.txt has complete terms"},
    "merge-key": {"license": "MIT"},
    "metadata-inline": {
        "metadata": {"clawdbot": {"emoji": "♊️", "requires": {"bins": ["gemini"]}}}
    },
    "metadata-text": {"metadata": {}, "extra": {"metadata": "none so far"}},
    "no-front-matter": {
        "body": "# Commit messages\n\nWrite them in the imperative,\nwith at most 50 characters."
        "\n\nThen a blank line."
    },
    "crlf": {"body": "Body."},
    "only-front-matter": {"body": ""},
    "rule-in-body": {"body": "First part.\n\n---\n\nname: not-a-field\n\n---\n\nLast part."},
    "tags-text": {"tags": ("php", "testing")},
    "title-instead": {"extra": {"title": "A Nice Title", "version": 2}},
    "version-dots": {"extra": {"version": "1.2.3"}},
}


@pytest.fixture(scope="module")
def library() -> SkillLibrary:
    return SkillLibrary(WILD)


def skill_in(library: SkillLibrary, directory: str) -> Skill:
    return library.get(LOADING[directory].name or directory)


def test_every_directory_is_a_case() -> None:
    found = {path.name for path in WILD.iterdir()}

    assert found == {*LOADING, *FAILING, *NOT_FOUND}
    assert len(found) > 130


def test_the_corpus_as_one_library(library: SkillLibrary) -> None:
    assert set(library.names) == {case.name or name for name, case in LOADING.items()}
    assert {Path(problem.path).parent.name for problem in library.problems} == set(FAILING)


@pytest.mark.parametrize("directory", LOADING)
def test_a_wild_skill_loads(library: SkillLibrary, directory: str) -> None:
    case = LOADING[directory]

    skill = skill_in(library, directory)

    assert skill.path == WILD / directory / "SKILL.md"
    assert skill.description[:60] == case.description
    assert skill.allowed_tools == case.tools
    notes = [note.message for note in library.notes if note.path == str(skill.path)]
    assert bool(notes) == bool(case.note)
    assert "".join(notes[:1]).startswith(case.note)


@pytest.mark.parametrize("directory", FAILING)
def test_a_wild_skill_is_refused_with_the_reason(library: SkillLibrary, directory: str) -> None:
    path = str(WILD / directory / "SKILL.md")
    (problem,) = [problem for problem in library.problems if problem.path == path]

    assert problem.message.startswith(FAILING[directory])


@pytest.mark.parametrize("directory", FIELDS)
def test_the_fields_of_a_wild_skill(library: SkillLibrary, directory: str) -> None:
    skill = skill_in(library, directory)

    assert {name: getattr(skill, name) for name in FIELDS[directory]} == FIELDS[directory]


async def test_every_wild_skill_can_be_loaded_by_a_model(library: SkillLibrary) -> None:
    names = [s.name for s in library.skills if not (s.disable_model_invocation or s.is_fork)]
    calls = [call("load_skill", name=name, arguments="a 'b c'") for name in names]
    model = ScriptedModel([calls, "Done."])

    state = await Agent(model, capabilities=[UseSkills(library)]).run("Load them all")

    shown = [m.tool_result for m in state.messages if m.tool_result is not None]
    assert state.final_response == "Done."
    assert len(shown) == len(names) > 100
    assert not any(result.is_error for result in shown)


def test_a_file_in_lower_case_is_noted(library: SkillLibrary) -> None:
    path = str(WILD / "lower-case" / "skill.md")

    assert [note.message for note in library.notes if note.path == path] == [
        "is ignored; rename it to SKILL.md"
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"---\nname: huge\n---\n" + b"x" * 300_000, "is larger than 262,144 bytes"),
        (b"---\n" + b"a: b\n" * 50_000 + b"---\n", "line 3: 'a' is given twice"),
        (b"---\n" + b"[" * 100_000 + b"\n---\n", "line 2: nested deeper than 32 levels"),
        (b"---\n" * 50_000, None),
        (b"<!--" * 60_000, None),
        (b"---\nallowed-tools: " + b"(" * 100_000 + b"\n---\n", None),
        (b"---\nname: x\n---\n" + b"```!\n" * 40_000, None),
    ],
    ids=["huge", "many-fields", "deep", "dashes", "comments", "brackets", "fences"],
)
def test_files_made_to_harm_are_read_or_refused_in_time(
    tmp_path: Path, text: bytes, said: str | None
) -> None:
    (tmp_path / "hostile").mkdir()
    (tmp_path / "hostile" / "SKILL.md").write_bytes(text)

    library = SkillLibrary(tmp_path)

    assert len(library.skills) == (said is None)
    assert [problem.message.startswith(said or "?") for problem in library.problems] == (
        [] if said is None else [True]
    )


def test_links_in_place_of_wild_files(tmp_path: Path) -> None:
    for name, target in (("out", WILD / "plain" / "SKILL.md"), ("gone", Path("nowhere"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").symlink_to(target)

    library = SkillLibrary(tmp_path)

    assert library.names == ()
    assert [problem.message.partition(",")[0] for problem in library.problems] == [
        "can't be read: No such file or directory",
        f"is a link out of {tmp_path}",
    ]
    assert SkillLibrary(tmp_path, trust_links=True).names == ("plain",)
